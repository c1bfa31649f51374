"""What the live page shows of requests, kept only while somebody looks.

    nobody looks --the page asks--> watching --nobody asks for WATCHED_S--> nobody looks

While nobody looks the dispatcher writes where it always does, and nothing here is called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from msgspec import UnsetType

from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.dispatcher import DecisionSink, Dispatcher
from pointsman.dispatch.record import (
    Ask,
    Choice,
    Event,
    FirstToken,
    Held,
    Outcome,
    Unplaced,
    Usage,
)
from pointsman.router.held import CallLater, call_later

WATCHED_S = 5.0  # it ends after this time without a question, and before twice as long
MOST_DECISIONS = 50
MOST_FIRST_TOKENS = 8192
WINDOW_MS = 60_000.0
MARK_EVERY_MS = 500.0

ALL = -1  # in place of a replica's number


@dataclass(slots=True)
class Seen:
    """A decision and what has become of it since."""

    what: Chosen | Ask | Unplaced
    first_token_ms: float | None = None
    outcome: Outcome | None = None


@dataclass(slots=True)
class Sums:
    """Requests sent, and tokens of their prompts: as they are priced and taken to be cached; as
    engines counted both, of those that did."""

    requests: int = 0
    prompt_tokens: int = 0
    expected_cached_tokens: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0

    def less(self, before: Sums) -> Sums:
        """What came since."""
        return Sums(
            self.requests - before.requests,
            self.prompt_tokens - before.prompt_tokens,
            self.expected_cached_tokens - before.expected_cached_tokens,
            self.reported_prompt_tokens - before.reported_prompt_tokens,
            self.reported_cached_tokens - before.reported_cached_tokens,
        )


NOTHING = Sums()

# The sums of ALL and of each replica that had a request.
SumsOfReplicas = dict[int, Sums]


class Lookout:
    """Takes the lines of the decision log, hands them on, and keeps what is shown of the last ones.

    ``behind``: who takes them while nobody looks; None where nobody does.
    """

    def __init__(self, behind: DecisionSink | None, now_ms: float) -> None:
        self.behind = behind
        self.since_ms = now_ms
        self.decisions: dict[int, Seen] = {}  # by sequence, oldest first; below 0: unplaced
        # When each of the last first tokens came, and how long after its choice.
        self.first_tokens: deque[tuple[float, float]] = deque(maxlen=MOST_FIRST_TOKENS)
        self._sent: dict[int, tuple[float, int]] = {}  # of those in flight: when, who computes it
        self._sums: SumsOfReplicas = {ALL: Sums()}
        self._marks: deque[tuple[float, SumsOfReplicas]] = deque([(now_ms, {})])
        self._unplaced = 0

    @property
    def lost_lines(self) -> int:
        """Of the log behind it."""
        return 0 if self.behind is None else self.behind.lost_lines

    def write_choice(self, chosen: Chosen) -> None:
        """Take a choice that is sent, whose view is good until the next one."""
        if self.behind is not None:
            self.behind.write_choice(chosen)
        self._keep(chosen.sequence, chosen.kept())
        sent = chosen.situation.now_ms, chosen.replica
        self._count(chosen.sequence, sent, chosen.tokens[0], chosen.hit_tokens)
        self._sums_of(chosen.replica).requests += 1

    def write(self, line: Event) -> None:
        """Take any other line."""
        if self.behind is not None:
            self.behind.write(line)
        if isinstance(line, FirstToken):
            self._take_first_token(line)
        elif isinstance(line, Outcome):
            self._take_outcome(line)
        elif isinstance(line, Choice):
            self._take_choice(line)
        elif isinstance(line, Held):
            self._keep(line.sequence, line)
        elif isinstance(line, Unplaced):
            self._unplaced += 1
            self._keep(-self._unplaced, line)

    def mark(self, now_ms: float) -> None:
        """Remember the sums of this instant, and of no more before the last minute than needed."""
        marks = self._marks
        if now_ms - marks[-1][0] >= MARK_EVERY_MS:
            marks.append((now_ms, {r: sums.less(NOTHING) for r, sums in self._sums.items()}))
        while len(marks) > 1 and marks[1][0] <= now_ms - WINDOW_MS:
            marks.popleft()

    def last_minute(self, now_ms: float) -> tuple[float, SumsOfReplicas]:
        """How long ago the mark of a minute ago was, or the first, and the sums since."""
        begun_ms, before = self._marks[0]
        since = {r: sums.less(before.get(r, NOTHING)) for r, sums in self._sums.items()}
        return now_ms - begun_ms, since

    def _take_choice(self, line: Choice) -> None:
        """One of a pair, or among many candidates: made for the log already."""
        pair = (line.replica, None) if isinstance(line.pair, UnsetType) else line.pair
        self._keep(line.sequence, line)
        self._count(line.sequence, (line.time_ms, pair[0]), line.priced_tokens, line.hit_tokens)
        for replica in pair:
            if replica is not None:
                self._sums_of(replica).requests += 1

    def _take_first_token(self, line: FirstToken) -> None:
        sent = self._sent.get(line.sequence)
        if sent is not None:
            self.first_tokens.append((line.time_ms, line.time_ms - sent[0]))
        seen = self.decisions.get(line.sequence)
        if seen is not None:
            seen.first_token_ms = line.time_ms

    def _take_outcome(self, line: Outcome) -> None:
        sent = self._sent.pop(line.sequence, None)
        if sent is not None:
            self._count_reported(sent[1], line.usage)
        seen = self.decisions.get(line.sequence)
        if seen is not None:
            seen.outcome = line

    def _keep(self, key: int, what: Chosen | Ask | Unplaced) -> None:
        self.decisions[key] = Seen(what)
        if len(self.decisions) > MOST_DECISIONS:
            del self.decisions[next(iter(self.decisions))]

    def _count(self, sequence: int, sent: tuple[float, int], prompt: int, cached: int) -> None:
        self._sent[sequence] = sent
        self._sums[ALL].requests += 1
        for sums in (self._sums[ALL], self._sums_of(sent[1])):
            sums.prompt_tokens += prompt
            sums.expected_cached_tokens += cached

    def _count_reported(self, replica: int, usage: Usage) -> None:
        if usage.prompt_tokens is None or usage.cached_tokens is None:
            return
        for sums in (self._sums[ALL], self._sums_of(replica)):
            sums.reported_prompt_tokens += usage.prompt_tokens
            sums.reported_cached_tokens += usage.cached_tokens

    def _sums_of(self, replica: int) -> Sums:
        sums = self._sums.get(replica)
        if sums is None:
            sums = self._sums[replica] = Sums()
        return sums


class Watch:
    """Puts a Lookout before the dispatcher's log for as long as somebody asks."""

    def __init__(self, dispatcher: Dispatcher, later: CallLater = call_later) -> None:
        self._dispatcher = dispatcher
        self._later = later
        self._lookout: Lookout | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._was_asked = False

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._lookout is not None

    def look(self, now_ms: float) -> Lookout:
        """What was kept; from now on for a while, more is."""
        if self._lookout is None:
            self._lookout = Lookout(self._dispatcher.log, now_ms)
            self._dispatcher.log = self._lookout
            self._timer = self._later(WATCHED_S, self._look_whether_asked)
        self._was_asked = True
        self._lookout.mark(now_ms)
        return self._lookout

    def end(self) -> None:
        """Keep nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._lookout is not None:
            self._dispatcher.log = self._lookout.behind
            self._lookout = None

    def _look_whether_asked(self) -> None:
        if not self._was_asked:
            self.end()
            return
        self._was_asked = False
        self._timer = self._later(WATCHED_S, self._look_whether_asked)
