"""How much is done for those that wait, and when."""

import asyncio

from pointsman.dispatch.dispatcher import Ending, Question
from pointsman.router.asked import Asked
from tests.router.held_fleet import HeldFleet, holding_nobody

MODELS = 50


def asks_when_one_ends(**limits: int) -> list[str]:
    """Models asked about when a request of another one ends, while one of each waits."""
    fleet = HeldFleet("fewest_misses", 2, holding_nobody(), **limits)
    asked_about: list[str] = []

    def barred_for(model: str | None) -> set[int]:
        """Replica 1 serves them, replica 0 serves all others."""
        if model is None:
            return {1}
        asked_about.append(model)
        return {0}

    async def main() -> None:
        fleet.admission.barred_for = barred_for
        fleet.membership[1].health.cannot_be_reached("gone")
        questions = [Question(str(k), model=f"m{k}") for k in range(MODELS)]
        tasks = [asyncio.ensure_future(fleet.admission.place(Asked(q, 1))) for q in questions]
        while fleet.admission.held < MODELS:
            await asyncio.sleep(0)
        place = await fleet.admission.place(Asked(Question("-"), 1))
        asked_about.clear()
        place.end(Ending())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    return asked_about


def test_the_end_of_a_request_is_no_reason_to_ask_where_no_replica_can_be_full():
    assert asks_when_one_ends() == []


def test_where_the_replica_was_full_each_line_is_asked_about_once_who_came_first_first():
    assert asks_when_one_ends(max_in_flight=1) == [f"m{k}" for k in range(MODELS)]
