"""Rows of a client and logs of a router, made by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pointsman.bench.client.rows import Row
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.record import Choice, LogHead, Outcome, Usage
from pointsman.policies.policy import LOGGED_ROWS

A, B = "http://a", "http://b"


def row(number: int = 0, **changes) -> Row:
    """Due at 10 ms, sent at 12; first token at 340, last one at 440."""
    fields = {
        "number": number,
        "request_id": f"g-{number}",
        "asked_prompt_tokens": 100,
        "asked_output_tokens": 11,
        "intended_ms": 10.0,
        "client_queue_ms": 1.0,
        "sent_ms": 12.0,
        "first_token_ms": 340.0,
        "last_token_ms": 440.0,
        "end_ms": 441.0,
        "prompt_tokens": 100,
        "output_tokens": 11,
        "status": "ok",
    }
    return Row(**{**fields, **changes})


def head(**changes) -> LogHead:
    """Replicas A and B, by turns."""
    fields = {
        "schema": "pointsman.decision-log",
        "version": 3,
        "pointsman": "0",
        "started_at": "2025-01-01T00:00:00.000+00:00",
        "policy": "round_robin",
        "parameters": {},
        "reads": [],
        "signals": ["queue"],
        "replicas": [A, B],
        "seed": 0,
        "block_tokens": 64,
        "facts": [ReplicaFacts(), ReplicaFacts()],
    }
    return LogHead(**{**fields, **changes})


# A computes prompts for B; or B does both.
PAIRS = head(version=4, pairs=[(0, 1), (1, None)], moves_all=True)


def choice(sequence: int = 0, **changes) -> Choice:
    """Of request g-SEQUENCE: replica 1, which is B, at 1,000 ms, after 5 ms in the router."""
    fields = {
        "sequence": sequence,
        "time_ms": 1000.0,
        "request_id": f"g-{sequence}",
        "path": "/v1/completions",
        "prompt_tokens": 100,
        "output_tokens": 11,
        "block_hashes": [],
        "session": None,
        "home": None,
        "random": 0.25,
        "key": 0,
        "priced_tokens": 100,
        "shows_first_token": True,
        "candidates": [0, 1],
        "seen": [0, 1],
        "hits": {},
        "view": {name: [0.0, 0.0] for name in LOGGED_ROWS},
        "replica": 1,
        "reason": "next_in_turn",
        "expected_wait_ms": 0.0,
        "expected_work_ms": 0.0,
        "waited_ms": 5.0,
    }
    return Choice(**{**fields, **changes})


def pair_choice(sequence: int = 0, **changes) -> Choice:
    """Of the pair of both."""
    return choice(sequence, **{"replica": 0, "pair": (0, 1), **changes})


def outcome(sequence: int = 0, first_token_ms: float | None = 1320.0, **changes) -> Outcome:
    fields = {
        "sequence": sequence,
        "request_id": f"g-{sequence}",
        "status": "ok",
        "http_status": 200,
        "first_token_ms": first_token_ms,
        "finish_ms": 1500.0,
        "realised_wait_ms": None,
        "usage": Usage(100, 11, 0),
        "response_bytes": 12,
    }
    return Outcome(**{**fields, **changes})


def written(path: Path, first: LogHead, *lines: msgspec.Struct) -> tuple[Path, ...]:
    """The files of a log."""
    path.write_bytes(msgspec.json.Encoder().encode_lines([first, *lines]))
    return (path,)
