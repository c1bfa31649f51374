"""By what a model is known, so that two results of different weights are never taken for equal."""

from __future__ import annotations

import hashlib
import json

import pytest

from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import Model
from pointsman.bench.identity import identity_of

COMMIT = "7ae557604adf67be50417f59c2c2f167def9a775"


def known(path, tmp_path, **settings):
    return identity_of(Model(str(path), "m", **settings), Machine((), tmp_path / "hub"))


@pytest.fixture
def in_hub(tmp_path):
    """``org/small`` as the hub's cache has it, main at COMMIT."""
    at = tmp_path / "hub" / "models--org--small"
    snapshot = at / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (at / "refs").mkdir()
    (at / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    return snapshot


@pytest.fixture
def folder(tmp_path):
    at = tmp_path / "model"
    at.mkdir()
    (at / "config.json").write_text('{"dtype": "float16"}')
    (at / "model.safetensors").write_bytes(b"12345678")
    return at


def test_a_file_is_known_by_the_digest_of_its_bytes(tmp_path):
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"GGUF and no more")
    digest = f"sha256:{hashlib.sha256(b'GGUF and no more').hexdigest()}"
    found = known(file, tmp_path)
    assert (found.id, found.revision) == ("weights.gguf", digest)
    assert (found.tokenizer, found.tokenizer_revision) == ("weights.gguf", digest)
    assert found.dtype is None  # it is no GGUF that says


def test_gguf_says_what_its_weights_are(tmp_path):
    gguf = pytest.importorskip("gguf")
    file = tmp_path / "weights.gguf"
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert known(file, tmp_path).dtype == "MOSTLY_Q8_0"
    assert known(file, tmp_path, dtype="q4").dtype == "q4"


def test_a_model_of_the_hub_is_known_by_its_commit(in_hub, tmp_path):
    found = known("org/small", tmp_path)
    assert (found.id, found.revision) == ("org/small", COMMIT)
    assert (found.tokenizer, found.tokenizer_revision) == ("org/small", COMMIT)
    assert found.dtype == "bfloat16"


def test_a_revision_is_a_name_of_a_commit_or_the_commit(in_hub, tmp_path):
    (in_hub.parents[1] / "refs" / "v1").write_text(COMMIT)
    assert known("org/small", tmp_path, revision="v1").revision == COMMIT
    assert known("org/small", tmp_path, revision=COMMIT).revision == COMMIT


def test_another_tokenizer_has_a_name_and_no_revision_that_is_known(in_hub, tmp_path):
    found = known("org/small", tmp_path, tokenizer="org/other")
    assert (found.tokenizer, found.tokenizer_revision) == ("org/other", None)


@pytest.mark.parametrize(
    ("given", "found"), [(None, "float16"), ("auto", "float16"), ("bfloat16", "bfloat16")]
)
def test_the_number_format_is_what_was_asked_for_else_what_config_json_says(
    folder, tmp_path, given, found
):
    assert known(folder, tmp_path, dtype=given).dtype == found


def test_a_folder_is_known_by_its_json_and_by_names_and_sizes_of_the_rest(folder, tmp_path):
    before = known(folder, tmp_path).revision
    assert before.startswith("listing-sha256:")
    assert known(folder, tmp_path).revision == before
    (folder / "config.json").write_text('{"dtype": "float64"}')  # as long as it was
    after = known(folder, tmp_path).revision
    assert after != before
    (folder / "model.safetensors").write_bytes(b"123456789")
    assert known(folder, tmp_path).revision not in (before, after)


def test_the_same_files_in_another_folder_are_the_same_model(folder, tmp_path):
    other = tmp_path / "copy"
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    assert known(other, tmp_path).revision == known(folder, tmp_path).revision


def test_what_cannot_be_seen_from_here_is_not_made_up(tmp_path):
    found = known("org/elsewhere", tmp_path, revision="main")
    assert (found.id, found.revision, found.dtype) == ("org/elsewhere", "main", None)
    assert (found.tokenizer, found.tokenizer_revision) == (None, None)


def test_a_config_that_is_no_json_says_nothing(folder, tmp_path):
    (folder / "config.json").write_text("{")
    assert known(folder, tmp_path).dtype is None
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4}))
    assert known(folder, tmp_path).dtype is None
