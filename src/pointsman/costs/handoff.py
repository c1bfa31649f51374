"""The hand-off of a KV cache from a prefill to a decode replica.

Time is ``base + bytes / rate``, as in the lesson on distributed inference; bytes are those that
the destination lacks, in whole blocks (a prefix that it holds is not sent again).
"""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.errors import wrong_value
from pointsman.costs.models import ModelShape


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How a KV cache is kept: bytes of a token over all layers, tokens of a block."""

    bytes_per_token: float
    block_size: int = 16

    @classmethod
    def of(
        cls, model: ModelShape, block_size: int = 16, bytes_per_kv_value: float = 2.0
    ) -> KvLayout:
        """Of a model; copies of heads on further ranks are made there and not sent."""
        return cls(model.kv_bytes_per_token(bytes_per_kv_value), block_size)

    def token_bytes(self, tokens: int) -> float:
        """Of so many tokens, exactly."""
        return tokens * self.bytes_per_token

    def missing_blocks(self, prompt_tokens: int, held_blocks: int = 0) -> int:
        """Blocks of a prompt, the last one perhaps partly filled, that the destination lacks."""
        return max(-(-prompt_tokens // self.block_size) - held_blocks, 0)

    def missing_bytes(self, prompt_tokens: int, held_blocks: int = 0) -> float:
        """The same in bytes; blocks are sent whole."""
        blocks = self.missing_blocks(prompt_tokens, held_blocks)
        return blocks * self.block_size * self.bytes_per_token


@dataclass(frozen=True, slots=True)
class HandoffLink:
    """What a transfer takes: ``base_ms`` before the first byte, then a rate.

    1 GB/s is 1e6 bytes per ms. Transfers that share a link are for the simulator to queue.
    """

    base_ms: float
    bytes_per_ms: float

    def __post_init__(self) -> None:
        if not 0 <= self.base_ms < float("inf"):
            raise wrong_value("hand-off", "base_ms", self.base_ms, "a finite number >= 0")
        if not 0 < self.bytes_per_ms < float("inf"):
            raise wrong_value("hand-off", "bytes_per_ms", self.bytes_per_ms, "a finite number > 0")

    def time_ms(self, transferred_bytes: float) -> float:
        """Of one transfer alone on the link; nothing to send takes no time."""
        if not transferred_bytes:
            return 0.0
        return self.base_ms + transferred_bytes / self.bytes_per_ms
