"""What one replica of an experiment has room for, as its engine is started."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.checks import check_integer

LLAMACPP_BATCH_TOKENS = 2048  # n_batch of llama.cpp's server, its default


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """``max_num_seqs`` requests at once (llama.cpp: its slots), ``max_num_batched_tokens`` of an
    iteration (llama.cpp: n_batch), ``kv_tokens`` of the cache, ``context_tokens`` of a request.

    None: never full; any length. ``async_scheduling``: None where it is not known. ``shares_late``:
    requests find what others computed once these have ended (llama.cpp).
    """

    max_num_seqs: int
    max_num_batched_tokens: int = LLAMACPP_BATCH_TOKENS
    kv_tokens: int | None = None
    context_tokens: int | None = None
    async_scheduling: bool | None = False
    shares_late: bool = False

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            check_integer("engine limits", name, getattr(self, name), 1)
        for name in ("kv_tokens", "context_tokens"):
            if getattr(self, name) is not None:
                check_integer("engine limits", name, getattr(self, name), 1)

    def kv_blocks(self, block_size: int) -> int | None:
        """Whole blocks of the cache; None: never full."""
        return None if self.kv_tokens is None else max(1, self.kv_tokens // block_size)
