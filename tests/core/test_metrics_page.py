"""The text format as Prometheus' documentation describes it, held against its own client."""

from __future__ import annotations

import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.core.metrics_page import Sample, samples_of


def one(text: str) -> Sample:
    [sample] = samples_of(text, {"m"})
    return sample


def test_a_sample_without_labels_is_read():
    assert one("m 12\n") == Sample("m", {}, 12.0)


def test_a_sample_with_labels_exponent_and_timestamp_is_read():
    text = 'm{a="1",b_2="x y"} 1.2345e+06 1395066363000\n'
    assert one(text) == Sample("m", {"a": "1", "b_2": "x y"}, 1234500.0)


def test_spaces_and_a_last_comma_are_allowed():
    assert one('  m { a = "1" , } \t 3\r\n') == Sample("m", {"a": "1"}, 3.0)


def test_escaped_labels_are_unescaped():
    assert one(r'm{path="C:\\DIR",said="\"no\"\n}"} 1').labels == {
        "path": "C:\\DIR",
        "said": '"no"\n}',
    }


def test_a_line_separator_within_a_label_does_not_end_the_line():
    assert one('m{a="x\u2028y\x0bz"} 1').labels == {"a": "x\u2028y\x0bz"}


@pytest.mark.parametrize(("text", "value"), [("+Inf", math.inf), ("-Inf", -math.inf)])
def test_infinite_values_are_values(text, value):
    assert one(f"m {text}").value == value


def test_nan_is_a_value():
    assert math.isnan(one("m NaN").value)


def test_only_wanted_names_are_parsed():
    text = 'other{a="b} 3\nm_total 4\nm 1\n# TYPE m gauge\n\n'
    assert samples_of(text, {"m"}) == [Sample("m", {}, 1.0)]


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m{",
        "m 1 2 3",
        'm{a="1"',
        'm{a="1"b="2"} 1',
        "m{a=1} 1",
        "m 1_0",
        "m one",
        "m{} ",
        "7 1",
    ],
)
def test_what_is_no_sample_is_refused_with_its_line(line):
    with pytest.raises(InputError, match=r"metrics line 2: .* is no sample; expected NAME"):
        samples_of(f"m 1\n{line}\n", {"m"})


LABELS = st.dictionaries(
    st.text(string.ascii_lowercase, min_size=1).filter(lambda name: name != "le"),
    st.text(st.characters(exclude_categories=("Cs",))),
    max_size=4,
)


@given(LABELS, st.floats(allow_nan=False))
def test_what_prometheus_own_client_writes_is_read_as_it_was(labels, value):
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    registry = client.CollectorRegistry()
    gauge = client.Gauge("m", "help", list(labels), registry=registry)
    (gauge.labels(*labels.values()) if labels else gauge).set(value)
    text = client.generate_latest(registry).decode()
    assert samples_of(text, {"m"}) == [Sample("m", labels, value)]
