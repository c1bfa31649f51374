"""The router's live page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman.router.api_keys import ApiKeys
from tests.browser.live_router import LiveRouter, live_router
from tests.router.fake_replicas import answer_stream

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"document.body.dataset.broken='yes'\">"

# Texts whose contrast with what is behind them is less than 4.5 (WCAG 2.2, 1.4.3).
FAINT = """() => {
    const parts = colour => colour.match(/[0-9.]+/g).map(Number);
    const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) =>
        0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ground = each => {
        const own = parts(getComputedStyle(each).backgroundColor);
        return own[3] === 0 ? ground(each.parentElement) : own;
    };
    const contrast = each => {
        const text = light(parts(getComputedStyle(each).color)), behind = light(ground(each));
        return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
    };
    return [...document.querySelectorAll('h1, h2, p, dt, dd, th, td, .chip, button, summary')]
        .filter(each => each.checkVisibility() && contrast(each) < 4.5)
        .map(each => each.outerHTML.slice(0, 80));
}"""


@pytest.fixture
def router(browser) -> Iterator[LiveRouter]:
    with live_router(policy="locality_aware:slack_ms=50") as started:
        yield started


def figures(page, decisions: int) -> dict:
    """What the page has been told, and shows, once it knows how so many requests ended."""

    def is_it(answer) -> bool:
        if not answer.url.endswith("/ui/state"):
            return False
        told = answer.json()["decisions"]
        return len(told) >= decisions and all(each["result"] for each in told)

    with page.expect_response(is_it) as answered:
        pass
    state = answered.value.json()
    page.wait_for_function("now => Number(document.body.dataset.shown) >= now", arg=state["now_ms"])
    return state


def opened(page, router: LiveRouter, requests: int = 3) -> dict:
    page.goto(f"{router.url}/ui")
    figures(page, 0)
    for _ in range(requests):
        router.ask(session="a")
    return figures(page, requests)


def open_the_newest(page) -> None:
    page.locator("summary").first.click()
    page.locator("details[open] .inside").wait_for()


def because(page) -> str:
    return page.locator("details[open] .inside > p").first.inner_text()


def ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


def test_it_opens_without_an_error_and_asks_nobody_but_its_router(page, router, seen):
    opened(page, router)
    open_the_newest(page)
    assert page.locator("details[open] tbody tr").count() == 2
    assert seen.errors == []
    assert set(seen.asked) == {f"{router.url}/ui", f"{router.url}/ui/state"}


def test_the_figures_are_those_of_the_state(page, router):
    state = opened(page, router)
    assert page.locator("#verdict").inner_text() == "2 of 2 replicas ready"
    assert page.locator("#p50").inner_text() == ms(state["ttft"]["p50_ms"])
    assert page.locator("#p99").inner_text() == ms(state["ttft"]["p99_ms"])
    hits = state["expected_cached_fraction"], state["reported_cached_fraction"]
    shown = [page.locator(where).inner_text() for where in ("#expected", "#reported")]
    assert shown == [f"{100 * value:.0f} %" for value in hits]
    for row, replica in zip(page.locator("#replicas tr").all(), state["replicas"], strict=True):
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == f"{replica['id']} · {replica['url'].removeprefix('http://')}"
        assert cells[1] == replica["state"]
        assert cells[2] == str(replica["in_flight"])
        assert cells[11] == str(replica["requests"])
    for line, decision in zip(page.locator("summary").all(), state["decisions"], strict=True):
        texts = line.locator("span").all_inner_texts()
        assert texts[1] == f"#{decision['sequence']}"
        assert texts[2].startswith(f"{decision['place'][0]} · 127.0.0.1:")
        assert texts[3:5] == [decision["reason"], f"wait {ms(decision['wait_ms'])}"]
        assert texts[5:] == [f"TTFT {ms(decision['ttft_ms'])}", "ok"]


def test_what_is_opened_by_keyboard_shows_each_candidates_terms_and_holds_the_list(page, router):
    state = opened(page, router)
    page.locator("#decisions-title").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("details[open] .inside").wait_for()
    newest = state["decisions"][0]
    found, rows = newest["candidates"], page.locator("details[open] tbody tr").all()
    assert len(rows) == found["in_all"] == 2
    for number, row in enumerate(rows):
        cells = row.locator("td").all_inner_texts()
        assert cells[0].startswith("✓ ") == (number == found["chosen"])
        names = ("wait_ms", "longer_wait_ms", "prefill_ms", "saved_prefill_ms", "first_token_ms")
        assert cells[1:6] == [ms(found[name][number]) for name in names]
        assert cells[6] == f"{found['cached_tokens'][number]:,.0f}"
    cached = f"{found['cached_tokens'][found['chosen']]:,.0f}"
    assert because(page) == (
        f"{cached} tokens of its prompt are cached there, nobody has a shorter wait."
    )
    router.ask()
    figures(page, 4)
    assert page.locator("details").count() == 3
    page.keyboard.press("Enter")
    figures(page, 4)
    assert page.locator("details").count() == 3  # the focus is in it
    page.keyboard.press("Shift+Tab")
    page.wait_for_function("() => document.querySelectorAll('details').length === 4")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            "round_robin",
            "round_robin looks at no figure of the candidates; its reason: round_robin.",
        ),
        ("least_requests", "Requests there: 0."),
        ("queue_aware", "Nobody has a shorter wait."),
        ("preble", "Its prefix saves {saved} of prefill, nobody has a shorter wait."),
    ],
)
def test_the_sentence_says_only_what_the_policy_looked_at(page, policy, said):
    with live_router(answer_stream, policy=policy) as router:
        newest = opened(page, router, 2)["decisions"][0]
        open_the_newest(page)
        assert because(page) == said.format(saved=ms(newest["candidates"]["saved_prefill_ms"][0]))


@pytest.mark.parametrize("width", [360, 768, 1210, 1440])
def test_nothing_is_wider_than_the_window(page, router, width):
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, router)
    open_the_newest(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(page, router, scheme):
    page.emulate_media(color_scheme=scheme)
    opened(page, router)
    open_the_newest(page)
    assert page.evaluate(FAINT) == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
    assert dark == (scheme == "dark")


def test_a_screen_reader_finds_its_parts_by_role_and_name(page, router):
    opened(page, router)
    for name in ("Last decisions", "Replicas", "Time to first token", "2 of 2 replicas ready"):
        assert page.get_by_role("heading", name=name, exact=True).count() == 1
    table = page.get_by_role("table", name="Replicas", exact=True)
    assert table.get_by_role("columnheader").count() == table.get_by_role("cell").count() / 2
    assert page.get_by_role("status").inner_text() == "2 of 2 replicas ready"
    assert "median" in page.get_by_role("img").get_attribute("aria-label")


def test_text_is_never_markup(page, router, seen):
    def hostile(value):
        if isinstance(value, dict):
            return {key: hostile(each) for key, each in value.items()}
        if isinstance(value, list):
            return [hostile(each) for each in value]
        return HOSTILE if isinstance(value, str) else value

    def answer(route):
        state = route.fetch().json()
        told = hostile(state) | {"standing": "good"}
        for decision, really in zip(told["decisions"], state["decisions"], strict=True):
            decision["kind"] = really["kind"]
        route.fulfill(json=told)

    page.route("**/ui/state", answer)
    page.goto(f"{router.url}/ui")
    figures(page, 0)
    router.ask()
    open_the_newest(page)
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#policy").inner_text()
    assert HOSTILE in page.locator("details[open] summary").inner_text()
    assert page.evaluate("document.body.dataset.broken") is None
    assert seen.errors == []


@pytest.mark.parametrize(
    ("followed_by", "status"),
    [(None, "held"), (7, "held, then #7"), ("unplaced", "held, then unplaced")],
)
def test_one_that_was_held_says_what_took_its_place(page, router, followed_by, status):
    def answer(route):
        state = route.fetch().json()
        for decision in state["decisions"]:
            decision.update(kind="held", result=None, followed_by=followed_by)
        route.fulfill(json=state)

    page.goto(f"{router.url}/ui")
    figures(page, 0)
    router.ask()
    figures(page, 1)
    page.route("**/ui/state", answer)
    page.locator("summary .chip").get_by_text(status, exact=True).wait_for()


def test_while_it_is_paused_the_router_is_not_asked(page, router, seen):
    page.clock.install()
    page.goto(f"{router.url}/ui")
    page.clock.run_for(5_000)
    figures(page, 0)
    page.get_by_role("button", name="Pause").click()
    page.wait_for_load_state("networkidle")
    asked = len(seen.asked)
    page.clock.run_for(60_000)
    assert len(seen.asked) == asked
    page.get_by_role("button", name="Pause").click()
    figures(page, 0)


def test_a_router_that_does_not_answer_is_said_not_to(page, router):
    opened(page, router)
    router.end()
    page.get_by_role("alert").filter(has_text="The router was not heard").wait_for()
    assert page.locator("#verdict").get_attribute("data-standing") == "lost"


def test_where_there_are_keys_the_page_asks_for_one_and_keeps_it_to_itself(page, tmp_path, seen):
    file = tmp_path / "keys"
    file.write_text("secret-key\n")
    with live_router(api_keys=ApiKeys(file)) as router:
        page.goto(f"{router.url}/ui")
        page.get_by_label("This router wants a key").fill("wrong")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("alert").filter(has_text="does not know this key").wait_for()
        page.get_by_label("This router wants a key").fill("secret-key")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="2 of 2 replicas ready").wait_for()
        assert not any("key" in url for url in seen.asked)
        assert "secret-key" not in page.content()
        kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    assert kept == [0, 0, ""]
