"""Tiny cases of the batching replica, worked out by hand from docs/simulator.md.

Each is (name, engine, arrivals, expected): any implementation of `run(engine, arrivals)` can be
held against them. The comments show the arithmetic. The costs are (a, b, c, d, e) of the page;
blocks are named b0, b1, ... in the order in which the queue holds them at first. "A 4>5" reads:
A's computed tokens go from 4 to 5.
"""

from __future__ import annotations

from tests.batching_oracle import Arrival, Engine, Result

Case = tuple[str, Engine, list[Arrival], list[Result]]

PLAIN = (10.0, 1.0, 1.0, 0.0, 0.0)
"""10 an iteration, 1 a prefill token, 1 a decoding request."""


def engine(
    capacity: int = 8,
    budget: int = 64,
    seqs: int = 8,
    reserve_full: bool = True,
    costs: tuple[float, float, float, float, float] = PLAIN,
    **flags: int,
) -> Engine:
    """Blocks of four tokens; everything is roomy unless the case says otherwise."""
    return Engine(seqs, budget, capacity, 4, reserve_full, costs, **flags)


def finished(
    scheduled: float, first: float, finish: float, cached: int = 0, preemptions: int = 0
) -> Result:
    return Result("finished", scheduled, first, finish, cached, preemptions)


REJECTED = Result("rejected", None, None, None, 0, 0)

TIMES: list[Case] = [
    (
        "a single request alone",
        engine(costs=(8.0, 1.0, 2.0, 0.5, 0.25)),
        [Arrival(10.0, 4, 3, ())],
        # prefill  8 + 1*4 + 0.25 * 4*(0 + 4/2) = 14    10   > 24
        # decode   8 + 2*1 + 0.5 * (4 + 1) = 12.5       24   > 36.5
        # decode   8 + 2*1 + 0.5 * (5 + 1) = 13         36.5 > 49.5
        [finished(10.0, 24.0, 49.5)],
    ),
    (
        "a prefill in two chunks",
        engine(budget=4, costs=(8.0, 1.0, 2.0, 0.5, 0.25)),
        [Arrival(0.0, 6, 1, ())],
        # 0>4   8 + 4 + 0.25 * 4*(0 + 2) = 14      0  > 14
        # 4>6   8 + 2 + 0.25 * 2*(4 + 1) = 12.5    14 > 26.5, the only token
        [finished(0.0, 26.5, 26.5)],
    ),
    (
        "an arrival in a decode stretch, with asynchronous scheduling",
        engine(async_scheduling=True),
        [Arrival(0.0, 2, 9, ()), Arrival(30.0, 3, 1, ())],
        # A prefill 12, decodes 11 each: 12, 23, 34, 45. B comes in the one that ends at 34, is
        # known at the start of the one after next, 45, which takes 10 + 3 + 1 = 14: to 59.
        # A: 9 tokens: 12, 23, 34, 45, 59, 70, 81, 92, 103.
        [finished(0.0, 12.0, 103.0), finished(45.0, 59.0, 59.0)],
    ),
    (
        "a decode stretch of one",
        engine(costs=(8.0, 1.0, 2.0, 0.5, 0.0)),
        [Arrival(0.0, 3, 5, ())],
        # prefill 8 + 3 = 11; base 8 + 2 + 0.5*4 = 12, growth 0.5:
        # four iterations take 4*12 + 0.5 * 4*3/2 = 51      11 > 62
        [finished(0.0, 11.0, 62.0)],
    ),
    (
        "a decode stretch of two",
        engine(costs=(8.0, 1.0, 2.0, 0.5, 0.0)),
        [Arrival(0.0, 3, 5, ()), Arrival(1.0, 2, 4, ())],
        # A 0>3             8 + 3 = 11                   0  > 11
        # A 3>4, B 0>2      8 + 2 + 2 + 0.5*4 = 14       11 > 25
        # both lack three; base 8 + 2*2 + 0.5*(5 + 3) = 16, growth 0.5*2 = 1:
        # three iterations take 3*16 + 1 * 3*2/2 = 51    25 > 76
        [finished(0.0, 11.0, 76.0), finished(11.0, 25.0, 76.0)],
    ),
    (
        "an arrival at the very end of an iteration comes after the next one's start",
        engine(),
        [Arrival(0.0, 4, 2, ()), Arrival(14.0, 4, 1, ())],
        # A 0>4   14   0 > 14; the end comes first, and the next starts at once
        # A 4>5   11   14 > 25
        # B 0>4   14   25 > 39
        [finished(0.0, 14.0, 25.0), finished(25.0, 39.0, 39.0)],
    ),
    (
        "of two that arrive together at an idle replica the first starts the iteration",
        engine(),
        [Arrival(0.0, 4, 1, ()), Arrival(0.0, 4, 1, ())],
        # A 0>4   14   0 > 14
        # B 0>4   14   14 > 28
        [finished(0.0, 14.0, 14.0), finished(14.0, 28.0, 28.0)],
    ),
]

PREFIXES: list[Case] = [
    (
        "a shared prefix: the second arrives during the first's prefill",
        engine(),
        [Arrival(0.0, 8, 1, (1, 2)), Arrival(5.0, 10, 1, (1, 2))],
        # A 0>8    18   0 > 18; its blocks enter at that end
        # B 8>10   12   18 > 30
        [finished(0.0, 18.0, 18.0), finished(18.0, 30.0, 30.0, cached=8)],
    ),
    (
        "a shared prefix: both are prefilled in the same iteration",
        engine(),
        [Arrival(0.0, 1, 1, ()), Arrival(1.0, 8, 1, (1, 2)), Arrival(2.0, 10, 1, (1, 2))],
        # X 0>1             11             0  > 11
        # A 0>8, B 0>10     10 + 18 = 28   11 > 39; nothing was in the cache at 11
        [finished(0.0, 11.0, 11.0), finished(11.0, 39.0, 39.0), finished(11.0, 39.0, 39.0)],
    ),
    (
        "a shared prefix: the second arrives afterwards",
        engine(),
        [Arrival(0.0, 8, 1, (1, 2)), Arrival(40.0, 10, 1, (1, 2))],
        # A 0>8    18   0 > 18
        # B 8>10   12   40 > 52; free blocks keep their content
        [finished(0.0, 18.0, 18.0), finished(40.0, 52.0, 52.0, cached=8)],
    ),
    (
        "a prefix that a running request holds needs no blocks of its own",
        engine(capacity=3),
        [Arrival(0.0, 4, 4, (1,)), Arrival(1.0, 5, 1, (1,))],
        # A 0>4            14   0  > 14   b0
        # A 4>5, B 4>5     12   14 > 26   A: b0 b1, B: b0 b2; two full sets would be four blocks
        # A 5>6            11   26 > 37   b0 stays A's
        # A 6>7            11   37 > 48
        [finished(0.0, 14.0, 48.0), finished(14.0, 26.0, 26.0, cached=4)],
    ),
    (
        "only leading blocks make a prefix",
        engine(),
        [Arrival(0.0, 8, 1, (7, 2)), Arrival(40.0, 10, 1, (1, 2))],
        # A 0>8     18   0 > 18
        # B 0>10    20   40 > 60; id 2 is in the cache, id 1 before it is not
        [finished(0.0, 18.0, 18.0), finished(40.0, 60.0, 60.0)],
    ),
    (
        "the last token is never taken from the cache",
        engine(),
        [Arrival(0.0, 8, 1, (1, 2)), Arrival(40.0, 8, 1, (1, 2))],
        # A 0>8   18   0 > 18
        # B: at most (8 - 1) // 4 = 1 block: 4>8   14   40 > 54
        [finished(0.0, 18.0, 18.0), finished(40.0, 54.0, 54.0, cached=4)],
    ),
    (
        "an answer fills blocks that the next turn hits",
        engine(),
        [Arrival(0.0, 4, 5, (1, 2)), Arrival(100.0, 9, 1, (1, 2))],
        # A 0>4       14          0   > 14
        # A 4>8       4*11 = 44   14  > 58; block 2 is full with the fourth token of five
        # B 8>9       11          100 > 111
        [finished(0.0, 14.0, 58.0), finished(100.0, 111.0, 111.0, cached=8)],
    ),
    (
        "the last token of an answer is not in the cache",
        engine(),
        [Arrival(0.0, 4, 4, (1, 2)), Arrival(100.0, 9, 1, (1, 2))],
        # A 0>4       14          0   > 14
        # A 4>7       3*11 = 33   14  > 47; block 2 lacks the eighth token
        # B 4>9       15          100 > 115
        [finished(0.0, 14.0, 47.0), finished(100.0, 115.0, 115.0, cached=4)],
    ),
]

EVICTIONS: list[Case] = [
    (
        "a request's last block is evicted before its first",
        engine(capacity=4),
        [Arrival(0.0, 8, 1, (1, 2)), Arrival(100.0, 12, 1, ()), Arrival(200.0, 9, 1, (1, 2))],
        # A 0>8    18   0   > 18    b0 b1, then the queue is b2 b3 b1 b0
        # B 0>12   22   100 > 122   b2 b3 b1: id 2 is gone, id 1 is not
        # C 4>9    15   200 > 215
        [
            finished(0.0, 18.0, 18.0),
            finished(100.0, 122.0, 122.0),
            finished(200.0, 215.0, 215.0, cached=4),
        ],
    ),
    (
        "a block that was hit goes back to the end of the queue",
        engine(capacity=4),
        [
            Arrival(0.0, 4, 1, (1,)),
            Arrival(100.0, 4, 1, (2,)),
            Arrival(200.0, 5, 1, (1,)),
            Arrival(300.0, 8, 1, ()),
            Arrival(400.0, 5, 1, (1,)),
            Arrival(500.0, 5, 1, (2,)),
        ],
        # A 0>4   14   takes b0         then the queue is b1 b2 b3 b0
        # B 0>4   14   takes b1         b2 b3 b0 b1
        # C 4>5   11   hits b0, b2      b3 b1 b2 b0
        # D 0>8   18   takes b3 b1      b2 b0 b1 b3: id 2 is gone
        # E 4>5   11   hits b0, b2      b1 b3 b2 b0
        # F 0>5   15
        [
            finished(0.0, 14.0, 14.0),
            finished(100.0, 114.0, 114.0),
            finished(200.0, 211.0, 211.0, cached=4),
            finished(300.0, 318.0, 318.0),
            finished(400.0, 411.0, 411.0, cached=4),
            finished(500.0, 515.0, 515.0),
        ],
    ),
    (
        "of two blocks with one id only the first is cached",
        engine(capacity=4),
        [
            Arrival(0.0, 1, 1, ()),
            Arrival(1.0, 4, 1, (1,)),
            Arrival(2.0, 4, 1, (1,)),
            Arrival(100.0, 12, 1, ()),
            Arrival(200.0, 5, 1, (1,)),
        ],
        # X 0>1          11   0   > 11    b0, then the queue is b1 b2 b3 b0
        # A 0>4, B 0>4   18   11  > 29    b1 and b2; b1 is the cached one; b3 b0 b1 b2
        # C 0>12         22   100 > 122   b3 b0 b1: id 1 is gone
        # D 0>5          15   200 > 215   b2 holds the same tokens, but is not in the cache
        [
            finished(0.0, 11.0, 11.0),
            finished(11.0, 29.0, 29.0),
            finished(11.0, 29.0, 29.0),
            finished(100.0, 122.0, 122.0),
            finished(200.0, 215.0, 215.0),
        ],
    ),
    (
        "a free block that is hit is no longer free for others",
        engine(capacity=4),
        [Arrival(0.0, 4, 1, (1,)), Arrival(1.0, 5, 3, ()), Arrival(15.0, 12, 1, (1,))],
        # A 0>4    14   0  > 14   b0, then the queue is b1 b2 b3 b0
        # L 0>5    15   14 > 29   b1 b2; free are b3 b0
        # L 5>6    11   29 > 40   B needs b0, which it hits, and two more: three of two
        # L 6>7    11   40 > 51   the same
        # B 4>12   18   51 > 69
        [
            finished(0.0, 14.0, 14.0),
            finished(14.0, 29.0, 51.0),
            finished(51.0, 69.0, 69.0, cached=4),
        ],
    ),
    (
        "one that waits is admitted once its prefix is evicted and its first chunk alone has room",
        engine(capacity=6, budget=9, reserve_full=False),
        [
            Arrival(0.0, 3, 7, ()),
            Arrival(1.0, 4, 1, (1,)),
            Arrival(2.0, 12, 1, (1, 2, 3)),
            Arrival(33.0, 20, 1, (1, 2, 3)),
        ],
        # L 0>3                  13   0   > 13    L: b0
        # L 3>4, X 0>4, A 0>4    19   13  > 32    X: b1, A: b2; X finishes; id 1 is in b1
        # L 4>5, A 4>12          19   32  > 51    L: b0 b3, A: b2 b4 b5; free are b1 b5 b4 b2
        # L 5>8               3*11    51  > 84    B hits b1 b4 b5 and lacks two more: five of four
        # L 8>9, B 0>8           19   84  > 103   L takes b1: id 1 is gone, and B takes b5 b4
        # B 8>17, B 17>20     19+13   103 > 135
        [
            finished(0.0, 13.0, 103.0),
            finished(13.0, 32.0, 32.0),
            finished(13.0, 51.0, 51.0),
            finished(84.0, 135.0, 135.0),
        ],
    ),
]

PREEMPTIONS: list[Case] = [
    (
        "the last running one is preempted, and resumes from its own cached block",
        engine(capacity=4),
        [Arrival(0.0, 4, 6, (1,)), Arrival(1.0, 4, 6, (2,))],
        # A 0>4            14   0  > 14   A: b0
        # A 4>5, B 0>4     15   14 > 29   A: b0 b1, B: b2
        # A 5>6, B 4>5     12   29 > 41   B: b2 b3
        # A 6>7, B 5>6     12   41 > 53
        # A 7>8, B 6>7     12   53 > 65   A has five tokens, B four
        # A 8>9            11   65 > 76   A lacks a block: B frees b3 b2, A takes b3; A finishes
        # B 4>8            14   76 > 90   id 2 is still in b2; total 4 + 4; B's fifth token
        # B 8>9            11   90 > 101
        [finished(0.0, 14.0, 76.0), finished(14.0, 29.0, 101.0, preemptions=1)],
    ),
    (
        "a preempted one that hits its own block needs the rest beside it",
        engine(capacity=4, budget=4, reserve_full=False),
        [Arrival(0.0, 4, 7, ()), Arrival(1.0, 4, 5, ())],
        # A 0>4            14   0  > 14    A: b0
        # A 4>5, B 0>3     14   14 > 28    A: b0 b1, B: b2
        # A 5>6, B 3>4     12   28 > 40
        # A 6>7, B 4>5     12   40 > 52    B: b2 b3
        # A 7>8, B 5>6     12   52 > 64    A has five tokens, B three
        # A 8>9            11   64 > 75    B frees b3 b2, A takes b3; b2 keeps B's first block
        # A 9>10           11   75 > 86    B would hit b2 and need one block more; A finishes
        # B 4>7            13   86 > 99    its total is 4 + 3: the fourth token
        # B 7>8            11   99 > 110
        [finished(0.0, 14.0, 86.0), finished(14.0, 40.0, 110.0, preemptions=1)],
    ),
    (
        "one that resumes with all but its last token cached is decoding",
        engine(capacity=4, costs=(10.0, 1.0, 2.0, 0.0, 0.0)),
        [Arrival(0.0, 4, 5, ()), Arrival(1.0, 7, 4, (1, 2))],
        # A 0>4            14   0  > 14   A: b0
        # A 4>5, B 0>7     19   14 > 33   A: b0 b1, B: b2 b3
        # A 5>6, B 7>8     14   33 > 47   id 2 enters; B has two tokens
        # A 6>7            12   47 > 59   B lacks a block and is itself the last
        # A 7>8            12   59 > 71   B needs b2 b3 and one more: three of two; A finishes
        # B 8>9            12   71 > 83   8 = total - 1, so that it costs 2 and not 1
        # B 9>10           12   83 > 95
        [finished(0.0, 14.0, 71.0), finished(14.0, 33.0, 95.0, preemptions=1)],
    ),
    (
        "two that are preempted keep their order",
        engine(capacity=4),
        [
            Arrival(0.0, 3, 3, ()),
            Arrival(1.0, 4, 4, ()),
            Arrival(2.0, 4, 2, ()),
            Arrival(3.0, 4, 2, ()),
        ],
        # A 0>3                        13   0  > 13   A: b0
        # A 3>4, B 0>4, C 0>4, D 0>4   23   13 > 36   B: b1, C: b2, D: b3
        # A 4>5, B 4>5                 12   36 > 48   A takes D's b3, B takes C's b2; A finishes
        # B 5>6, C 0>5                 16   48 > 64   two blocks are free: C's; C finishes
        # B 6>7, D 0>5                 16   64 > 80
        [
            finished(0.0, 13.0, 48.0),
            finished(13.0, 36.0, 80.0),
            finished(13.0, 36.0, 64.0, preemptions=1),
            finished(13.0, 36.0, 80.0, preemptions=1),
        ],
    ),
]

RESERVED = [Arrival(0.0, 4, 3, ()), Arrival(1.0, 12, 1, ())]
"""A grows to two blocks; B needs three, but only two for its first chunk of seven or eight."""

LIMITS: list[Case] = [
    (
        "reserve_full: all of a prompt's blocks must be free",
        engine(capacity=4, budget=8),
        RESERVED,
        # A 0>4    14   0  > 14
        # A 4>5    11   14 > 25   b0 b1; B needs three of two
        # A 5>6    11   25 > 36
        # B 0>8    18   36 > 54
        # B 8>12   14   54 > 68
        [finished(0.0, 14.0, 36.0), finished(36.0, 68.0, 68.0)],
    ),
    (
        "without reserve_full: those of the first chunk suffice",
        engine(capacity=4, budget=8, reserve_full=False),
        RESERVED,
        # A 0>4           14   0  > 14
        # A 4>5, B 0>7    18   14 > 32   A: b0 b1, B: b2 b3
        # A 5>6           11   32 > 43   B wants 5, lacks a block and is itself the last
        # B 4>12          18   43 > 61   its first block is still in b2
        [finished(0.0, 14.0, 43.0), finished(14.0, 61.0, 61.0, preemptions=1)],
    ),
    (
        "nobody behind one that does not fit is admitted",
        engine(capacity=4, budget=8),
        [*RESERVED, Arrival(2.0, 1, 1, ())],
        # A 0>4            14   0  > 14
        # A 4>5            11   14 > 25   B needs three of two; C would need one
        # A 5>6            11   25 > 36
        # B 0>8            18   36 > 54   the budget is used up
        # B 8>12, C 0>1    15   54 > 69
        [finished(0.0, 14.0, 36.0), finished(36.0, 69.0, 69.0), finished(54.0, 69.0, 69.0)],
    ),
    (
        "max_num_seqs",
        engine(seqs=1),
        [Arrival(0.0, 4, 2, ()), Arrival(1.0, 4, 1, ())],
        # A 0>4   14   0  > 14
        # A 4>5   11   14 > 25   B could have blocks and budget, but A runs
        # B 0>4   14   25 > 39
        [finished(0.0, 14.0, 25.0), finished(25.0, 39.0, 39.0)],
    ),
    (
        "what can never fit is rejected, and is in nobody's way",
        engine(capacity=2),
        [Arrival(0.0, 5, 5, ()), Arrival(3.0, 5, 4, ())],
        # R: 5 + 5 - 1 = 9 tokens are three blocks of two
        # A: 5 + 4 - 1 = 8 tokens are two
        # A 0>5   15          3  > 18
        # A 5>8   3*11 = 33   18 > 51
        [REJECTED, finished(3.0, 18.0, 51.0)],
    ),
]

CASES: list[Case] = [*TIMES, *PREFIXES, *EVICTIONS, *PREEMPTIONS, *LIMITS]
