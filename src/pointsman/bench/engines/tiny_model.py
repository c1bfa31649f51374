"""A tiny random Llama as a GGUF file: a real model for a real engine, with nothing to download.

It talks nonsense, at a few thousand tokens a second on one core. The same file every time with one
Python: the tokenizer is trained on its library, the weights are drawn from a fixed seed. They are
wider than usual, so that the likeliest token leads by much and greedy answers stay the same.
Needs gguf and tokenizers (extra [llamacpp]).
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.bench.installed import lacks
from pointsman.core.errors import MachineError

HIDDEN = 256
LAYERS = 4
VOCABULARY = 4096
HEAD = 64
HEADS = HIDDEN // HEAD
KV_HEADS = HEADS // 2
FEED_FORWARD = 3 * HIDDEN
CONTEXT = 8192

NEEDS = ("gguf", "tokenizers")  # modules
EXTRA = "llamacpp"  # which brings them
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRAINING_FILES = 150


def tiny_model(folder: Path | None = None) -> Path:
    """The file, made at the first call; it is kept in ``folder``, else in the user's cache folder
    ($XDG_CACHE_HOME or ~/.cache). Made at the same time by several, it is there once, whole.

    Raises MachineError, with the extra to install, where a module that makes it is missing.
    """
    path = tiny_path(folder)
    if not path.exists():
        _check_modules()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".gguf")
        os.close(handle)
        try:
            _write(Path(temporary))
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return path


def tiny_path(folder: Path | None = None) -> Path:
    """Where ``tiny_model`` has it, or would have it."""
    name = f"tiny-{HIDDEN}x{LAYERS}-{sys.version_info.major}{sys.version_info.minor}.gguf"
    return (models_folder() if folder is None else folder) / name


def models_folder() -> Path:
    """Where models that we make are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "pointsman" / "models"


def _check_modules() -> None:
    for name in NEEDS:
        if find_spec(name) is None:
            raise MachineError(f"the tiny model cannot be made: {lacks(name, EXTRA)}")


def tokenizer() -> Any:
    """Of ``tokenizers``, trained."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:TRAINING_FILES]
    trained.train([str(path) for path in library], trainer)
    return trained


def _write(path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10_000.0)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    _add_tokenizer(writer)
    for name, tensor in _tensors():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any) -> None:
    import gguf

    trained = json.loads(tokenizer().to_str())["model"]
    tokens = sorted(trained["vocab"], key=trained["vocab"].get)
    pairs = trained["merges"]
    special, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([special if token in SPECIAL else normal for token in tokens])
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in pairs])
    writer.add_vocab_size(len(tokens))
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _tensors() -> Iterator[tuple[str, NDArray[Any]]]:
    draws = np.random.default_rng(0)

    def normal(rows: int, columns: int, deviation: float) -> NDArray[Any]:
        return (draws.standard_normal((rows, columns)) * deviation).astype(np.float16)

    ones = np.ones(HIDDEN, dtype=np.float32)
    yield "token_embd.weight", normal(VOCABULARY, HIDDEN, 1.0)
    yield "output.weight", normal(VOCABULARY, HIDDEN, 0.1)
    yield "output_norm.weight", ones
    shapes = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (KV_HEADS * HEAD, HIDDEN),
        "attn_v": (KV_HEADS * HEAD, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (FEED_FORWARD, HIDDEN),
        "ffn_up": (FEED_FORWARD, HIDDEN),
        "ffn_down": (HIDDEN, FEED_FORWARD),
    }
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", ones
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", normal(*shape, 0.08)


if __name__ == "__main__":
    try:
        print(tiny_model())
    except MachineError as missing:
        sys.exit(str(missing))
