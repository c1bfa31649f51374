"""The page of a result in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman import POLICIES, FifoFleet, workload_of_columns
from pointsman.comparison.fleets import Trial, compare_on_fleet
from pointsman.comparison.policies import compare_policies
from pointsman.costs.calibrated import read_calibrated
from pointsman.fleet.description import FleetDescription
from pointsman.fleet.groups import Group, Recorded
from pointsman.metrics.goodput import Objectives
from pointsman.report.document import comparison_document, text_of
from pointsman.report.fleet_document import fleet_comparison_document
from pointsman.report.html.page import page_of_document
from pointsman.workload.reading import ReadOptions
from tests.fleet.cost_files import write_costs

pytestmark = pytest.mark.browser

WIDTHS = (360, 1440)
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> tuple[dict, Path]:
    """A comparison on a fleet with all that a page shows of one, and the page."""
    folder = tmp_path_factory.mktemp("page")
    count = 240
    workload = workload_of_columns(
        [41.0 * k for k in range(count)],
        prompt_tokens=[100 + 30 * (k % 4) for k in range(count)],
        output_tokens=[3 + k % 8 for k in range(count)],
        session=[k % 9 for k in range(count)],
    )
    costs = read_calibrated(write_costs(folder / "costs.json"))
    comparison = compare_on_fleet(
        workload,
        [POLICIES[name] for name in ("round_robin", "locality_aware", "least_requests")],
        FleetDescription(groups=(Group(count=3, hardware=Recorded("costs.json", costs)),)),
        Trial(objectives=Objectives(ttft_ms=150.0), over_time=True, own_intervals=True),
    )
    document = fleet_comparison_document(comparison, ReadOptions())
    return saved(document | {"warnings": [f"number {k} of five" for k in range(1, 6)]}, folder)


def saved(document: dict, folder: Path) -> tuple[dict, Path]:
    path = folder / "page.html"
    path.write_text(page_of_document(document, "a trace"))
    return json.loads(text_of(document)), path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_without_an_error_or_a_request_and_fits_the_screen(
    page, seen, result, width, scheme
):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(result[1].as_uri())
    assert page.evaluate(SIDEWAYS) == 0
    assert (seen.errors, seen.asked) == ([], [result[1].as_uri()])


@pytest.mark.parametrize("width", WIDTHS)
def test_every_chart_and_every_open_table_stays_on_the_screen(page, result, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(result[1].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    assert page.evaluate(SIDEWAYS) == 0
    boxes = [each.bounding_box() for each in page.locator(".chart > svg").all()]
    assert len(boxes) > 10
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    assert all(box["width"] > 250 and box["height"] > 50 for box in boxes)


def test_figures_on_the_page_are_those_of_the_json(page, result):
    document, path = result
    page.goto(path.as_uri())
    rows = page.locator("#answer tbody tr").all()
    for row, each in zip(rows, document["results"], strict=True):
        values = row.locator("data").evaluate_all("(all) => all.map((one) => Number(one.value))")
        m = each["metrics"]
        assert values[:4] == [
            m["goodput"]["fraction"],
            *(m["ttft_ms"][name] for name in ("p50", "p95", "p99")),
        ]
    assert page.locator(".verdict").inner_text() == document["advice"]["sentence"]


def test_light_and_dark_are_readable(page, result):
    """Contrast of text and paper by WCAG 2's formula; 4.5 is its level AA."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(result[1].as_uri())
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for place in (".verdict", ".remark", "th", "td", "nav a", "summary", "figcaption"):
            colour = page.locator(place).first.evaluate("(each) => getComputedStyle(each).color")
            assert contrast(colour, paper) >= 4.5, (scheme, place)
        for colour in series_colours(page):
            assert contrast(colour, paper) >= 3.0, (scheme, colour)  # of graphics


def series_colours(page) -> list[str]:
    return page.locator(".chart .point").evaluate_all(
        "(all) => [...new Set(all.map((each) => getComputedStyle(each).fill))]"
    )


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour.strip("rgb()").split(",")]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_keyboard_reads_the_values_of_a_chart(page, result):
    document, path = result
    page.goto(path.as_uri())
    chart = page.locator("figure", has=page.get_by_text("TTFT", exact=True)).locator("> svg")
    chart.focus()
    page.keyboard.press("End")
    first = document["results"][0]
    words = page.locator("#tip").inner_text().splitlines()
    assert words[0] == first["policy"]
    assert words[2] == "share of requests: 100%"
    page.keyboard.press("ArrowDown")
    assert page.locator("#tip").inner_text().splitlines()[0] == document["results"][1]["policy"]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


@pytest.mark.parametrize("key", ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"])
def test_the_first_arrow_shows_the_first_value_and_the_next_one_goes_on(page, result, key):
    document, path = result
    page.goto(path.as_uri())
    chart = page.locator("figure", has=page.get_by_text("TTFT", exact=True)).locator("> svg")
    chart.focus()
    page.keyboard.press(key)
    name, _, share = page.locator("#tip").inner_text().splitlines()
    assert (name, share) == (document["results"][0]["policy"], "share of requests: 0%")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text().splitlines()[2] == "share of requests: 1%"


def test_the_keyboard_reaches_every_chart_and_its_table(page, result):
    page.goto(result[1].as_uri())
    summary = page.locator(".chart summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".chart details").first.evaluate("(each) => each.open")
    assert page.locator(".chart > svg:not([tabindex='0'])").count() == 0
    assert page.locator(".chart > svg:not([aria-label])").count() == 0


def test_pointing_at_a_chart_shows_the_nearest_value(page, result):
    page.goto(result[1].as_uri())
    page.locator(".chart > svg").first.hover()
    assert page.locator("#tip").is_visible()
    assert "share of requests" in page.locator("#tip").inner_text()


def test_every_question_of_the_list_leads_to_its_charts(page, result):
    page.goto(result[1].as_uri())
    links = page.locator("nav a")
    assert links.count() == page.locator("section.view").count() > 4
    for link in links.all():
        assert page.locator(link.get_attribute("href")).locator("figure").count() > 0


def test_on_paper_there_is_no_navigation_and_nothing_is_cut(page, result):
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})
    page.goto(result[1].as_uri())
    assert page.locator("nav").is_hidden()
    assert page.locator(".chart > svg").first.is_visible()
    assert page.evaluate(SIDEWAYS) == 0


def test_on_paper_every_warning_is_read_and_then_they_are_folded_again(page, result):
    page.goto(result[1].as_uri())
    page.evaluate(
        """() => addEventListener("beforeprint", () => {
            window.printed = [...document.querySelectorAll("p.warning")]
                .filter((each) => each.checkVisibility()).map((each) => each.textContent);
        })"""
    )
    page.pdf()
    printed = page.evaluate("window.printed")
    assert printed == [f"Warning: number {k} of five." for k in range(1, 6)]
    assert page.locator("p.warning").first.is_hidden()


def test_a_hundred_thousand_requests_make_a_light_page(page, seen, tmp_path):
    count = 100_000
    workload = workload_of_columns(
        [3.0 * k for k in range(count)],
        service_ms=[5.0 + (k * 7919 % 13) for k in range(count)],
        session=[k % 501 for k in range(count)],
    )
    policies = list(POLICIES.values())
    able = [each for each in policies if {"in_flight", "engine", "work"}.isdisjoint(each.reads)]
    comparison = compare_policies(workload, able[:6], FifoFleet(5))
    _, path = saved(comparison_document(comparison, ReadOptions()), tmp_path)
    assert path.stat().st_size < 6_000_000
    page.goto(path.as_uri())
    assert seen.errors == []
    assert page.locator("*").count() < 20_000  # elements, whatever the number of requests
