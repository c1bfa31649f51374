"""KV events over real sockets: what is reported stands in the cache, whatever got lost."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import asynccontextmanager

import pytest

from pointsman.core.errors import InputError, MachineError
from pointsman.router.engine.kv_endpoint import KvEndpoint, KvSource, kv_endpoint, refuse_clashes
from pointsman.router.engine.kv_events import KvSubscriber, load_zmq
from pointsman.router.engine.kv_sequence import SilenceAlarm

pytest.importorskip("zmq", reason="pyzmq is missing: pip install pointsman[kv-events]")

from tests.router.engine.kv_publishers import (
    CLEARED,
    Index,
    Publisher,
    heard,
    packed,
    removed,
    stored,
    until,
)
from tests.router.routers import run


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@asynccontextmanager
async def following(index: Index, *sources: KvSource, **settings):
    settings = {"clock_ms": lambda: 0.0, **settings}
    subscriber = KvSubscriber(sources, index.callbacks(), **settings)
    subscriber.start()
    try:
        yield subscriber
    finally:
        await subscriber.stop()


@asynccontextmanager
async def pair(*, replay: str | None = None, before: int = 0, **settings):
    """An engine that binds, and who follows it as replica 7 after so many messages."""
    index = Index()
    publisher = Publisher("tcp://*:0", replay=replay)
    for number in range(before):
        publisher.miss(packed(stored(number)))
    where = kv_endpoint(publisher.address)
    source = KvSource(7, where, replay=kv_endpoint(publisher.replay) if replay else None)
    try:
        async with following(index, source, **settings) as subscriber:
            await publisher.subscribed()
            yield publisher, subscriber, index
    finally:
        await publisher.close()


def test_events_of_an_engine_that_binds_arrive_in_order():
    async def main() -> None:
        async with pair() as (publisher, subscriber, index):
            await publisher.publish(stored(1, 2), stored(3, parent=2))
            await publisher.publish(removed(3))
            await publisher.publish(CLEARED)
            await heard(subscriber, 7, 3)
        assert index.said == [
            ("stored", 7, 1, 2),
            ("stored", 7, 3),
            ("removed", 7, 3),
            ("cleared", 7),
        ]
        [counts] = subscriber.counts(7)
        assert (counts.messages, counts.events, counts.gaps, counts.clears) == (3, 4, 0, 0)

    run(main())


def test_engines_that_connect_are_told_apart_by_their_topics():
    # Topics of which one begins as the other does, and one that is nobody's.
    async def main() -> None:
        index = Index()
        address = free_address()
        sources = [
            KvSource(replica, kv_endpoint(f"@{address}"), topic=f"kv@{name}")
            for replica, name in enumerate(("1", "10"))
        ]
        async with following(index, *sources) as subscriber:
            publishers = [Publisher(address, f"kv@{name}") for name in ("1", "10", "100")]
            for publisher in publishers:
                await publisher.subscribed()
            for number, publisher in enumerate(publishers):
                await publisher.publish(stored(number))
            await heard(subscriber, 0, 1)
            await heard(subscriber, 1, 1)
            await until(lambda: subscriber.foreign_messages == 1)
            for publisher in publishers:
                await publisher.close()
        assert index.held == {0: {0}, 1: {1}}

    run(main())


def test_a_gap_without_a_replay_clears_the_replica_before_anything_else_is_told():
    async def main() -> None:
        async with pair() as (publisher, subscriber, index):
            await publisher.publish(stored(1))
            publisher.miss(packed(removed(1)))
            await publisher.publish(stored(2))
            await publisher.publish(stored(3))
            await heard(subscriber, 7, 3)
        assert index.said == [("stored", 7, 1), ("cleared", 7), ("stored", 7, 2), ("stored", 7, 3)]
        [counts] = subscriber.counts(7)
        assert (counts.gaps, counts.clears, counts.replayed) == (1, 1, 0)

    run(main())


@pytest.mark.parametrize("layout", ["older", "newer"])
def test_a_gap_is_filled_by_a_replay_in_order_and_nothing_is_cleared(layout):
    async def main() -> None:
        async with pair(replay=layout) as (publisher, subscriber, index):
            await publisher.publish(stored(1))
            publisher.miss(packed(removed(1)))
            publisher.miss(packed(stored(2)))
            await publisher.publish(stored(3))
            await publisher.publish(stored(4))
            await heard(subscriber, 7, 3)
            await until(lambda: len(index.said) == 5)
            assert publisher.asked == [1]
        assert [what[0] for what in index.said] == [
            "stored",
            "removed",
            "stored",
            "stored",
            "stored",
        ]
        assert index.held == {7: {2, 3, 4}}
        [counts] = subscriber.counts(7)
        assert (counts.gaps, counts.clears, counts.replayed) == (1, 0, 2)

    run(main())


def test_a_replay_that_has_lost_the_beginning_clears_and_tells_the_rest():
    async def main() -> None:
        async with pair(replay="older") as (publisher, _, index):
            await publisher.publish(stored(1))
            for block in (2, 3):
                publisher.miss(packed(stored(block)))
            del publisher.kept[:2]  # its buffer is short
            await publisher.publish(stored(4))
            await until(lambda: len(index.said) == 4)
        assert index.said == [("stored", 7, 1), ("cleared", 7), ("stored", 7, 3), ("stored", 7, 4)]

    run(main())


def test_a_replay_that_does_not_answer_is_waited_for_only_so_long_and_then_cleared():
    async def main() -> None:
        index = Index()
        publisher = Publisher("tcp://*:0")
        source = KvSource(7, kv_endpoint(publisher.address), replay=kv_endpoint(free_address()))
        async with following(index, source, replay_timeout_s=0.05):
            await publisher.subscribed()
            await publisher.publish(stored(1))
            await until(lambda: index.said == [("stored", 7, 1)])
            publisher.miss(packed(removed(1)))
            await publisher.publish(stored(2))
            await until(lambda: len(index.said) == 3)
        await publisher.close()
        assert index.said[1:] == [("cleared", 7), ("stored", 7, 2)]

    run(main())


def test_who_comes_late_catches_up_by_a_replay():
    async def main() -> None:
        async with pair(replay="older", before=3) as (publisher, _, index):
            await publisher.publish(stored(9))
            await until(lambda: len(index.said) == 4)
            assert publisher.asked == [0]
        assert index.held == {7: {0, 1, 2, 9}}

    run(main())


def test_who_comes_late_and_cannot_catch_up_begins_with_nothing():
    async def main() -> None:
        async with pair(before=3) as (publisher, subscriber, index):
            await publisher.publish(stored(9))
            await heard(subscriber, 7, 1)
        assert index.said == [("stored", 7, 9)]

    run(main())


def test_an_engine_that_counts_from_0_again_has_an_empty_cache():
    async def main() -> None:
        async with pair() as (publisher, subscriber, index):
            for block in (1, 2, 3):
                await publisher.publish(stored(block))
            publisher.restart()
            await publisher.publish(stored(4))
            await publisher.publish(stored(5))
            await heard(subscriber, 7, 5)
        assert index.held == {7: {4, 5}}
        [counts] = subscriber.counts(7)
        assert (counts.restarts, counts.gaps) == (1, 0)

    run(main())


def test_a_message_that_cannot_be_read_clears_the_replica_and_is_complained_of_once():
    async def main() -> None:
        async with pair() as (publisher, subscriber, index):
            await publisher.publish(stored(1))
            await publisher.send(b"\xc1")
            await publisher.send(b"\xc1")
            await publisher.publish(stored(2))
            await heard(subscriber, 7, 4)
        assert index.held == {7: {2}}
        assert len(index.complaints) == 1
        assert index.complaints[0].startswith("replica 7: KV events: ")
        assert subscriber.counts(7)[0].undecodable == 2

    run(main())


def test_a_replica_that_was_away_is_cleared_when_it_is_forgotten():
    async def main() -> None:
        async with pair() as (publisher, subscriber, index):
            await publisher.publish(stored(1))
            await publisher.publish(stored(2))
            await heard(subscriber, 7, 2)
            subscriber.forget(7)
            publisher.restart()
            await publisher.publish(stored(3))
            await heard(subscriber, 7, 3)
        assert index.said[2:] == [("cleared", 7), ("stored", 7, 3)]
        assert subscriber.counts(7)[0].restarts == 0

    run(main())


@pytest.mark.parametrize("replay", ["newer", None])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_left_after_losses_stands_in_the_cache_and_with_replay_it_is_all(replay, seed):
    draws = random.Random(seed)

    async def main() -> None:
        truth: set[int] = set()
        async with pair(replay=replay) as (publisher, subscriber, index):
            sent = 0
            for block in range(200):
                if truth and draws.random() < 0.4:
                    gone = draws.choice(sorted(truth))
                    truth.discard(gone)
                    event = removed(gone)
                else:
                    truth.add(block)
                    event = stored(block)
                if draws.random() < 0.1 and block < 199:
                    publisher.miss(packed(event))
                else:
                    await publisher.publish(event)
                    sent += 1
            [counts] = subscriber.counts(7)
            await until(lambda: counts.events == (200 if replay else sent))
            assert counts.gaps > 3
        assert index.held[7] <= truth
        if replay:
            assert index.held[7] == truth
            assert counts.clears == 0
        else:
            assert index.held[7] < truth
            assert counts.clears == counts.gaps

    run(main())


# Silence.


def test_a_replica_that_computes_and_publishes_nothing_is_complained_of_once():
    now_ms = [0.0]

    async def main() -> None:
        settings = {"clock_ms": lambda: now_ms[0], "silent_after_ms": 1000.0}
        async with pair(**settings) as (publisher, subscriber, index):
            for now_ms[0] in (0.0, 999.0):
                subscriber.computed(7, 600)
            assert not subscriber.is_silent(7)
            for now_ms[0] in (1000.0, 1500.0):  # the first of them raises it
                subscriber.computed(7, 600)
            assert subscriber.is_silent(7)
            assert index.complaints == [
                "KV events: replica 7 computes tokens and publishes nothing to "
                f"{publisher.address}; see that one side binds and the other connects"
            ]
            await publisher.publish(stored(1))
            await until(lambda: not subscriber.is_silent(7))
            for now_ms[0] in (2000.0, 2999.0):
                subscriber.computed(7, 600)
            assert not subscriber.is_silent(7)

    run(main())


def test_a_replica_that_computes_nothing_is_not_complained_of():
    now_ms = [0.0]

    async def main() -> None:
        settings = {"clock_ms": lambda: now_ms[0], "silent_after_ms": 1000.0}
        async with pair(**settings) as (_, subscriber, index):
            subscriber.computed(7, 600)
            now_ms[0] = 5000.0
            assert not subscriber.is_silent(7)
            assert index.complaints == []

    run(main())


@pytest.mark.parametrize(
    "flow",
    [
        [(0.0, 600), (1001.0, 600), (2003.0, 600)],  # requests too rare to be a flow
        [(float(at), 511) for at in range(0, 5000, 100)],  # that need not fill a block
    ],
)
def test_requests_that_are_few_or_small_raise_no_alarm(flow):
    alarm = SilenceAlarm(1000.0)
    assert not any(alarm.computed(7, tokens, at_ms) for at_ms, tokens in flow)


def test_a_replica_that_nobody_follows_is_never_silent():
    async def main() -> None:
        async with pair(silent_after_ms=0.0) as (_, subscriber, index):
            subscriber.computed(8, 600)
            assert index.complaints == []

    run(main())


def test_both_sides_on_the_wrong_end_is_the_silence_that_the_alarm_is_for():
    # The engine is told a host, so it connects; and so do we.
    async def main() -> None:
        index = Index()
        address = free_address()
        source = KvSource(7, kv_endpoint(address))
        async with following(index, source, silent_after_ms=0.0) as subscriber:
            publisher = Publisher(address)
            await publisher.publish(stored(1))
            subscriber.computed(7, 600)
            assert subscriber.is_silent(7)
            await publisher.close()
        assert index.said == []

    run(main())


# Endpoints.


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("tcp://10.0.0.5:5557", KvEndpoint("tcp://10.0.0.5:5557", binds=False)),
        ("tcp://engine-0.svc:5557", KvEndpoint("tcp://engine-0.svc:5557", binds=False)),
        ("tcp://[::1]:5557", KvEndpoint("tcp://[::1]:5557", binds=False)),
        ("tcp://*:5557", KvEndpoint("tcp://*:5557", binds=True)),
        ("tcp://0.0.0.0:5557", KvEndpoint("tcp://0.0.0.0:5557", binds=True)),
        ("tcp://[::]:5557", KvEndpoint("tcp://[::]:5557", binds=True)),
        ("@tcp://127.0.0.1:5557", KvEndpoint("tcp://127.0.0.1:5557", binds=True)),
    ],
)
def test_the_form_of_an_endpoint_says_who_binds(text, endpoint):
    assert kv_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    ["", "tcp://host", "tcp://host:0", "tcp://host:70000", "http://h:1", "ipc:///tmp/x", "*:5"],
)
def test_what_is_no_endpoint_is_refused(text):
    with pytest.raises(
        InputError, match=r"KV events: endpoint .* is none; expected tcp://HOST:PORT"
    ):
        kv_endpoint(text)


@pytest.mark.parametrize("topics", [(None, None), ("a", None), ("a", "a")])
def test_engines_that_cannot_be_told_apart_are_refused(topics):
    endpoint = kv_endpoint("tcp://*:5557")
    sources = [KvSource(replica, endpoint, topic) for replica, topic in enumerate(topics)]
    with pytest.raises(InputError, match=r"2 engines publish to .* and cannot be told apart"):
        refuse_clashes(sources)


def test_an_endpoint_of_both_kinds_and_a_replay_to_bind_are_refused():
    binds, connects = kv_endpoint("@tcp://h:5557"), kv_endpoint("tcp://h:5557")
    with pytest.raises(InputError, match="is both bound and connected to"):
        refuse_clashes([KvSource(0, binds, "a"), KvSource(1, connects, "b")])
    with pytest.raises(InputError, match=r"replay endpoint tcp://\*:5558 is to be bound"):
        refuse_clashes([KvSource(0, connects, replay=kv_endpoint("tcp://*:5558"))])


def test_an_endpoint_that_is_taken_is_one_clear_error():
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            source = KvSource(0, kv_endpoint(f"@{address}"))
            subscriber = KvSubscriber([source], Index().callbacks(), lambda: 0.0)
            with pytest.raises(MachineError, match=f"KV events: cannot bind {address}: Address"):
                subscriber.start()
            await subscriber.stop()

    run(main())


def test_without_pyzmq_the_error_names_the_extra():
    def absent(name: str) -> None:
        raise ImportError(name)

    with pytest.raises(InputError, match=r"pip install 'pointsman\[kv-events\]'"):
        load_zmq(absent)


def test_a_failure_of_who_listens_is_complained_of():
    async def main() -> None:
        index = Index()
        publisher = Publisher("tcp://*:0")
        callbacks = index.callbacks()
        failing = type(callbacks)(
            lambda *_: 1 // 0,
            *[getattr(callbacks, name) for name in ("removed", "cleared", "complain")],
        )
        source = KvSource(7, kv_endpoint(publisher.address))
        subscriber = KvSubscriber([source], failing, lambda: 0.0)
        subscriber.start()
        await publisher.subscribed()
        await publisher.publish(stored(1))
        await until(lambda: bool(index.complaints))
        await subscriber.stop()
        await publisher.close()
        assert "ZeroDivisionError" in index.complaints[0]
        await asyncio.sleep(0)

    run(main())
