"""What a replay found, in each form."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

from pointsman.replay.replay import Difference, Replay
from pointsman.report.replay import replay_text

DIFFERENCE = Difference(3, "r\x1b[31m3", 12.25, "http://a", "shortest_queue", "http://b", "home")
REPLAY = Replay("queue_aware", "queue_aware", 2000, [DIFFERENCE], 1, 0)
MANY = replace(REPLAY, differences=[replace(DIFFERENCE, sequence=i) for i in range(1025)])


def test_the_json_has_a_schema_and_every_difference():
    document = json.loads(replay_text(MANY, "json"))
    assert document["schema"] == "pointsman.replay/1"
    assert (document["choices"], document["agreeing"]) == (2000, 975)
    assert len(document["differences"]) == 1025
    assert document["differences"][3]["time_ms"] == 12.25


def test_the_csv_has_a_line_a_difference():
    rows = list(csv.DictReader(replay_text(MANY, "csv").splitlines()))
    assert len(rows) == 1025
    assert rows[0]["recorded_replica"] == "http://a"


def test_the_table_shows_the_first_differences_and_counts_the_others():
    text = replay_text(MANY, "table")
    assert "choices that agree: 975 of 2,000\n" in text
    assert text.count("http://a (shortest_queue)  http://b (home)") == 20
    assert text.endswith("... and 1,005 more; --format json lists all\n")


def test_no_clients_id_reaches_the_terminal_as_an_escape():
    assert "\x1b" not in replay_text(REPLAY, "table")
