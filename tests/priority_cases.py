"""Cases as in ``batching_cases``, of what does not go by arrival alone."""

from __future__ import annotations

from tests.batching_cases import REJECTED, Case, engine, finished
from tests.batching_oracle import Arrival

PRIORITIES: list[Case] = [
    (
        "the lowest priority goes first, and among equals who came first",
        engine(seqs=1, by_priority=True),
        [Arrival(0.0, 4, 1, ()), *(Arrival(1.0, 4, 1, (), priority) for priority in (1, 0, 1))],
        # 14 each, A at once, then C, B, D
        [
            finished(0.0, 14.0, 14.0),
            finished(28.0, 42.0, 42.0),
            finished(14.0, 28.0, 28.0),
            finished(42.0, 56.0, 56.0),
        ],
    ),
    (
        "the highest priority is preempted first, be it the one that lacks a block",
        engine(capacity=4, by_priority=True),
        [Arrival(0.0, 4, 6, (), 1), Arrival(1.0, 4, 6, (), 0)],
        # A 0>4            14   0   > 14    A: b0
        # A 4>5, B 0>4     15   14  > 29    A: b0 b1, B: b2
        # A 5>6, B 4>5     12   29  > 41    B: b2 b3
        # A 6>7, B 5>6     12   41  > 53
        # A 7>8, B 6>7     12   53  > 65    A has five tokens, B four
        # nobody           10   65  > 75    A lacks a block and goes last: it frees b1 b0, and the
        #                                   step ends before B gets its turn, as in vLLM
        # B 7>8            11   75  > 86    A hits b0 b1 and needs one more
        # B 8>9            11   86  > 97    takes b1; finishes
        # A 4>9            15   97  > 112   b0 was kept; its sixth token
        [finished(0.0, 14.0, 112.0, preemptions=1), finished(14.0, 29.0, 97.0)],
    ),
    (
        "prompt and output together are at most max_model_len",
        engine(max_model_len=8),
        [Arrival(0.0, 4, 5, ()), Arrival(0.0, 7, 1, ())],
        [REJECTED, finished(0.0, 17.0, 17.0)],
    ),
]
