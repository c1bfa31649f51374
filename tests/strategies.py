"""Workloads and their parts, as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.workload import Workload

times_ms = st.floats(0, 1e9, allow_nan=False, allow_infinity=False)
tokens = st.integers(0, 2_000)
names = st.text(min_size=1, max_size=6)
BLOCK_SIZES = (1, 16, 512)


@st.composite
def rows(draw, index: int, *, ids: bool, block_size_tokens: int, keyed: bool) -> Row:
    """A row as a reader would make it; prefixes are keys, or chains of blocks.

    All blocks but the last of a chain are whole.
    """
    service_ms = draw(st.none() | times_ms)
    needed = service_ms is None
    prompt_tokens = draw(tokens if needed else st.none() | tokens)
    row = {
        "arrival_ms": draw(times_ms),
        "request_id": f"r{index}" if ids else None,
        "service_ms": service_ms,
        "prompt_tokens": prompt_tokens,
        "output_tokens": draw(tokens if needed else st.none() | tokens),
        "session": draw(st.none() | names),
        "adapter": draw(st.none() | names),
    }
    if draw(st.booleans()):
        if keyed:
            row["chain"] = (draw(names),)
            covered = st.integers(0, 2_000 if prompt_tokens is None else prompt_tokens)
            row["prefix_tokens"] = draw(st.none() | covered)
        else:
            most = 5 * block_size_tokens
            if prompt_tokens is not None:
                most = min(most, prompt_tokens)
            covered = draw(st.integers(0, most))
            whole, rest = divmod(covered, block_size_tokens)
            partial = rest > 0 and draw(st.booleans())
            blocks = whole + partial
            row["chain"] = tuple(draw(st.lists(names, min_size=blocks, max_size=blocks)))
            row["prefix_tokens"] = covered if partial else None
    return Row(**row)


@st.composite
def workloads(draw, min_size: int = 1, max_size: int = 8) -> Workload:
    """A workload that the builder made, of ``min_size`` to ``max_size`` requests."""
    keyed = draw(st.booleans())
    block_size_tokens = 1 if keyed else draw(st.sampled_from(BLOCK_SIZES))
    ids = draw(st.booleans())
    builder = WorkloadBuilder(block_size_tokens)
    for index in range(draw(st.integers(min_size, max_size))):
        row = draw(rows(index, ids=ids, block_size_tokens=block_size_tokens, keyed=keyed))
        builder.add(row, f"row {index}")
    return builder.build()
