"""What engines say of themselves, and what becomes of it when it is old."""

from __future__ import annotations

import math

from pointsman.dispatch.dispatcher import Dispatcher, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.policies import policy as rows
from pointsman.policies.catalogue import policy_named
from pointsman.router.engine.reading import EngineReading
from pointsman.router.engine.scraper import Reading, ScrapeSettings
from pointsman.router.engines import Engines


class Heard:
    """A dispatcher over two replicas, and engines that are heard when the test says so."""

    def __init__(self, policy: str = "least_requests") -> None:
        self.now_ms = 0.0
        facts = [ReplicaFacts(), ReplicaFacts()]
        self.dispatcher = Dispatcher(Rules(policy_named(policy)), facts, lambda: self.now_ms)
        self.engines = Engines(self.dispatcher, ScrapeSettings(interval_s=1.0), print)

    def hear(self, replica: int, **told: float) -> None:
        reading = Reading(EngineReading(**told), self.now_ms, 3000.0)
        self.engines._scraper.readings.keep(replica, reading)
        self.engines._hear(replica, reading)

    def requests(self) -> list[float]:
        said = self.dispatcher.ledger.live.replicas
        foreign = said["foreign_waiting"] + said["foreign_running"]
        return (self.dispatcher.ledger.requests + foreign).tolist()


def test_requests_of_another_router_count_until_the_reading_is_old():
    heard = Heard()
    heard.hear(0, waiting_requests=5, running_requests=9)
    assert heard.requests() == [4 + 9, 0]
    heard.now_ms = 3000.0
    heard.engines.check()
    assert heard.requests() == [4 + 9, 0]
    heard.now_ms = 3001.0
    heard.engines.check()
    assert heard.requests() == [0, 0]


def test_where_all_readings_are_old_requests_are_routed_by_our_own_accounts():
    """Both engines said that they are full, and then nothing: both get their turn as if they had
    never said it."""
    heard = Heard("llmd_load_aware")
    for replica in (0, 1):
        heard.hear(replica, waiting_requests=500, running_requests=128, kv_use=1.0)
    heard.now_ms = 60_000.0
    heard.engines.check()
    chosen = [heard.dispatcher.choose(Question(str(number))).replica for number in range(20)]
    assert set(chosen) == {0, 1}
    said = heard.dispatcher.ledger.live.replicas
    assert all(math.isnan(value) for value in said["kv_use"][:2])


def test_an_engine_that_tells_nothing_of_its_load_changes_nothing():
    heard = Heard()
    heard.hear(0, prompt_tokens=100)
    assert heard.requests() == [0, 0]


def test_choices_are_the_same_with_and_without_readings_of_what_was_sent_from_here():
    def chosen(is_asked: bool) -> list[int]:
        heard = Heard("fewest_misses")
        found = []
        for number in range(60):
            heard.now_ms += 7.0
            question = Question(str(number), prompt_tokens=500 + 37 * (number % 5), streams=True)
            found.append(heard.dispatcher.choose(question).replica)
            if is_asked:
                waiting = heard.dispatcher.ledger.requests.tolist()
                for replica, count in enumerate(waiting):
                    heard.hear(replica, waiting_requests=int(count), running_requests=0)
        return found

    assert chosen(is_asked=True) == chosen(is_asked=False)


def test_a_reading_and_what_we_know_stand_under_names_of_their_own():
    heard = Heard()
    heard.dispatcher.choose(Question("ours", streams=True))
    heard.hear(0, waiting_requests=0, running_requests=1, kv_use=0.25)
    said = heard.dispatcher.ledger.live.replicas[0]
    assert (said["waiting"], said["running"], said["kv_use"]) == (0.0, 1.0, 0.25)
    assert heard.dispatcher.ledger.requests.tolist() == [1, 0]
    assert rows.LOGGED_ROWS[rows.KV_USE] == "kv_use"
