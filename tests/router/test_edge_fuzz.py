"""Whatever bytes a client sends: no exception, nothing doubtful passed on, an answer or a close.

The inputs are those of ``corpus``, and mutations of them cut into reads anywhere. A mutation that
has once shown something is kept there.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.router.memory_transport import Seen, seen_in
from tests.router.strict_http import requests_in

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.http"))
INPUTS = [path.read_bytes() for path in CORPUS]

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")

WORDS = [
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b":", b";", b",", b"\0", b"\xff", b"0"),
    *(b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:chunked", b"Content-Length: 3\r\n"),
    *(b"Content-Length", b"chunked", b"identity", b"0\r\n\r\n", b"5\r\nhello\r\n", b"ffffffff"),
    *(b"HTTP/1.0", b"HTTP/1.1", b"Connection: close\r\n", b"Connection: upgrade\r\n"),
    *(b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"Host: other\r\n", b"GET / HTTP/1.1\r\n"),
    *(b"CONNECT ", b"http://", b"[", b"#", b"?", b"*"),
]


@st.composite
def mutated(draw) -> bytes:
    """An input or two with a few slices taken out, doubled, overwritten, or words put in."""
    data = b"".join(draw(st.lists(st.sampled_from(INPUTS), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.integers(0, 12)))
        new = draw(st.sampled_from(WORDS) | st.binary(max_size=3) | st.just(data[start:stop] * 2))
        data = data[:start] + new + data[stop:]
    return data


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    starts = [0, *ends[:-1]]
    return [data[start:end] for start, end in zip(starts, ends, strict=True) if start < end]


def check(seen: Seen, data: bytes) -> None:
    assert seen.complaints == []
    assert seen.is_closed
    passed = [(each.method, each.target, bytes(each.body)) for each in seen.requests]
    expected = [(each.method, each.target, each.body) for each in requests_in(data)]
    assert passed == expected[: len(passed)]
    answers = [int(code) for code in STATUS.findall(seen.written) if code != b"100"]
    assert answers[: len(passed)] == [200] * len(passed)
    refusals = answers[len(passed) :]
    assert not refusals or (len(refusals) == 1 and 400 <= refusals[0] < 500)
    for request in seen.requests:
        assert request.has_target
        assert request.path is not None


async def _both(data: bytes, places: list[int]) -> tuple[Seen, Seen]:
    failures: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    seen = await seen_in([data] if data else []), await seen_in(cut(data, places))
    assert failures == []
    return seen


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_kept_input_is_answered_or_closed_in_one_read_and_byte_by_byte(loop, path):
    data = path.read_bytes()
    whole, pieces = loop.run(_both(data, list(range(len(data)))))
    check(whole, data)
    check(pieces, data)
    assert whole == pieces


@settings(max_examples=400)
@given(mutated(), st.lists(st.integers(0, 2000), max_size=6))
@example(b"", [])
def test_any_bytes_in_any_reads_are_answered_or_closed(loop, data, places):
    whole, pieces = loop.run(_both(data, places))
    check(whole, data)
    check(pieces, data)
    assert whole.requests == pieces.requests


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_noise_is_answered_or_closed(loop, data, places):
    for seen in loop.run(_both(data, places)):
        check(seen, data)
