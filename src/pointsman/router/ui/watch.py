"""What the live page shows of requests, kept only while somebody looks.

    nobody looks --the page asks--> watching --nobody asks for WATCHED_S--> nobody looks

While nobody looks the dispatcher writes where it always does, and nothing here is called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
)
from pointsman.router.held import CallLater, call_later
from pointsman.router.ui.first_tokens import FirstTokens

WATCHED_S = 5.0  # it ends after this time without a question, and before twice as long
MOST_DECISIONS = 50  # that are kept, and that are added between two questions
WINDOW_MS = 60_000.0
MARK_EVERY_MS = 500.0

UNPLACED: Final = "unplaced"
Follower: TypeAlias = int | Literal["unplaced"]


@dataclass(slots=True)
class Seen:
    """A decision and what has become of it since.

    ``followed_by``: what ended that the request was held, by its sequence.
    """

    what: Chosen | Ask | Unplaced
    followed_by: Follower | None = None
    first_token_ms: float | None = None
    outcome: Outcome | None = None


@dataclass(slots=True)
class Sums:
    """Of one replica: requests sent there, and tokens of the prompts that it computes, as they are
    priced and taken to be cached; as its engine counted both, of those that it did."""

    requests: int = 0
    prompt_tokens: int = 0
    expected_cached_tokens: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0

    def plus(self, more: Sums, times: int = 1) -> Sums:
        """The sums of both; ``times`` -1: what came since."""
        return Sums(
            self.requests + times * more.requests,
            self.prompt_tokens + times * more.prompt_tokens,
            self.expected_cached_tokens + times * more.expected_cached_tokens,
            self.reported_prompt_tokens + times * more.reported_prompt_tokens,
            self.reported_cached_tokens + times * more.reported_cached_tokens,
        )


NOTHING = Sums()


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted until an instant: choices in all, and sums of each replica that had one."""

    at_ms: float
    choices: int
    of_replicas: dict[int, Sums]


class Lookout:
    """Takes the lines of the decision log, hands them on, and keeps what is shown of the last ones.

    ``behind``: who takes them while nobody looks; None where nobody does. Of more decisions between
    two questions than are shown only the first ones are kept: to keep one takes longer than to
    count it.
    """

    def __init__(self, behind: DecisionSink | None, now_ms: float) -> None:
        self.behind = behind
        self.since_ms = now_ms
        self.decisions: dict[int, Seen] = {}  # by sequence, oldest first; below 0: unplaced
        self.first_tokens = FirstTokens()
        self._room = MOST_DECISIONS
        self._sent: dict[int, tuple[float, int]] = {}  # of those in flight: when, who computes it
        self._choices = 0
        self._unplaced = 0
        self._sums: dict[int, Sums] = {}
        self._marks = deque([Tally(now_ms, 0, {})])

    @property
    def lost_lines(self) -> int:
        """Of the log behind it."""
        return 0 if self.behind is None else self.behind.lost_lines

    def write_choice(self, chosen: Chosen) -> None:
        """Take a choice that is sent, whose view is good until the next one."""
        if self.behind is not None:
            self.behind.write_choice(chosen)
        sequence, replica = chosen.sequence, chosen.replica
        if self._room:
            self._keep(sequence, chosen.kept())
        hold = chosen.wait.hold
        if hold is not None:
            self._follow(hold.sequence, sequence)
        self._sent[sequence] = chosen.situation.now_ms, replica
        sums = self._sums_of(replica)
        sums.requests += 1
        sums.prompt_tokens += chosen.question.priced_tokens
        sums.expected_cached_tokens += chosen.hit_tokens
        self._choices += 1

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
            self._follow(line.after, line.sequence)
        elif isinstance(line, Unplaced):
            self._unplaced += 1
            self._keep(-self._unplaced, line)
            self._follow(line.after, UNPLACED)

    def mark(self, now_ms: float) -> None:
        """Somebody asks: keep decisions again, and remember what was counted until now, for a
        minute."""
        self._room = MOST_DECISIONS
        marks = self._marks
        if now_ms - marks[-1].at_ms >= MARK_EVERY_MS:
            marks.append(self.tally(now_ms))
        while len(marks) > 1 and marks[1].at_ms <= now_ms - WINDOW_MS:
            marks.popleft()

    def tally(self, now_ms: float) -> Tally:
        """What was counted since somebody looks."""
        sums = {replica: NOTHING.plus(each) for replica, each in self._sums.items()}
        return Tally(now_ms, self._choices, sums)

    def last_minute(self, now_ms: float) -> tuple[float, Tally]:
        """How long ago the mark of a minute ago was, or the first, and what was counted since."""
        before = self._marks[0]
        since = {
            replica: each.plus(before.of_replicas.get(replica, NOTHING), times=-1)
            for replica, each in self._sums.items()
        }
        return now_ms - before.at_ms, Tally(now_ms, self._choices - before.choices, since)

    def _take_choice(self, line: Choice) -> None:
        """Of a pair: made for the log already."""
        computes, decode = (line.replica, None) if isinstance(line.pair, UnsetType) else line.pair
        if self._room:
            self._keep(line.sequence, line)
        self._follow(line.after, line.sequence)
        self._sent[line.sequence] = line.time_ms, computes
        sums = self._sums_of(computes)
        sums.requests += 1
        sums.prompt_tokens += line.priced_tokens
        sums.expected_cached_tokens += line.hit_tokens
        if decode is not None:
            self._sums_of(decode).requests += 1
        self._choices += 1

    def _take_first_token(self, line: FirstToken) -> None:
        sent = self._sent.get(line.sequence)
        if sent is not None:
            self.first_tokens.add(line.time_ms, line.time_ms - sent[0])
        seen = self.decisions.get(line.sequence)
        if seen is not None:
            seen.first_token_ms = line.time_ms

    def _take_outcome(self, line: Outcome) -> None:
        sent, usage = self._sent.pop(line.sequence, None), line.usage
        if sent is None:
            return
        if usage.prompt_tokens is not None and usage.cached_tokens is not None:
            sums = self._sums_of(sent[1])
            sums.reported_prompt_tokens += usage.prompt_tokens
            sums.reported_cached_tokens += usage.cached_tokens
        seen = self.decisions.get(line.sequence)
        if seen is not None:
            seen.outcome = line

    def _keep(self, key: int, what: Chosen | Ask | Unplaced) -> None:
        if self._room:
            self._room -= 1
            self.decisions[key] = Seen(what)
            if len(self.decisions) > MOST_DECISIONS:
                del self.decisions[next(iter(self.decisions))]

    def _follow(self, held: int | None, follower: Follower) -> None:
        seen = None if held is None else self.decisions.get(held)
        if seen is not None:
            seen.followed_by = follower

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
