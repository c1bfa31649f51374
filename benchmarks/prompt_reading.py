"""How long reading a prompt for its prefix holds the event loop: milliseconds a request, by size.

    python benchmarks/prompt_reading.py [--runs 30]

Each row is the median of several reads of one body: everything from its bytes to the question that
the policy is asked, and of that the decoding of JSON alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from pointsman.router.messages import ClientRequest
from pointsman.router.prompt import CHAT, COMPLETIONS, QuestionReader

SIZES = {"1 KB": 1_000, "220 KB": 220_000, "1 MB": 1_000_000}
KINDS = {
    "prose": "All happy families are alike. ",
    "code": '\tif "a" in b:\n',
    "Chinese, escaped": "\u4f60\u597d",
}


def chat_of(content: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    return json.dumps(body).encode()


def bodies(size: int) -> dict[str, tuple[str, bytes]]:
    """Name to path and body of about that many bytes."""
    made = {
        kind: (CHAT, chat_of(text * (size // len(json.dumps(text)[1:-1]))))
        for kind, text in KINDS.items()
    }
    url = {"url": "data:image/png;base64," + "iVBORw0K" * (size // 8)}
    made["image"] = (CHAT, chat_of([{"type": "image_url", "image_url": url}]))
    ids = [100_000 + place % 9 for place in range(size // 8)]
    made["token ids"] = (COMPLETIONS, json.dumps({"model": "m", "prompt": ids}).encode())
    return made


def median_ms(call: Callable[[], object], runs: int) -> float:
    took = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        took.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(took), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    reader = QuestionReader(bytes(16))
    for size, count in SIZES.items():
        for kind, (path, body) in bodies(count).items():
            request = ClientRequest(b"POST", path.encode(), [], body, True, True)
            row = {
                "size": size,
                "prompt": kind,
                "body_bytes": len(body),
                "read_ms": median_ms(lambda each=request: reader.question(each, "id"), runs),
                "decode_ms": median_ms(lambda each=body: msgspec.json.decode(each), runs),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
