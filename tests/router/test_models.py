"""Which models the router knows of, and where requests that name them go."""

import asyncio
import json

import pytest

from pointsman.router.engine.fetch import Page, PageError
from pointsman.router.models import ModelTable
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica, answer_json, sized
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, completion, routing, run, until

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
OFTEN_S = 0.05


def listing(*names: str, **fields: object) -> bytes:
    data = [
        {"id": name, "object": "model", "created": 7, "owned_by": "x", **fields} for name in names
    ]
    return json.dumps({"object": "list", "data": data}).encode()


def serving(*names: str, **fields: object):
    """A fake that lists these models, and answers everything else."""

    async def script(request, wire):
        if request.path == MODELS:
            await wire.send(sized(listing(*names, **fields)))
        else:
            await answer_json(request, wire)

    return script


async def silent_about_models(request, wire):
    if request.path == MODELS:
        await wire.reader.read(1)
    await answer_json(request, wire)


def served(fake: FakeReplica) -> list[str]:
    return [request.path for request in fake.requests if request.path != MODELS]


async def known(at) -> None:
    replicas = at.router.models._replicas.values()
    await until(lambda: all(replica.models is not None for replica in replicas))


# The list.


def test_the_list_of_models_is_the_union_over_the_replicas_and_says_who_serves_them():
    async def main():
        async with bench(serving("a", "b"), serving("b", "c")) as at:
            response = await at.client.request("GET", MODELS)
            return response, [fake.url for fake in at.fakes]

    response, (one, two) = run(main())
    assert response.status == 200
    assert response.json["object"] == "list"
    entries = {entry.pop("id"): entry for entry in response.json["data"]}
    assert {name: entry["pointsman"]["replicas"] for name, entry in entries.items()} == {
        "a": [one],
        "b": [one, two],
        "c": [two],
    }
    plain = {"object": "model", "created": 7, "owned_by": "x"}
    assert entries["c"] == {**plain, "pointsman": {"replicas": [two], "stale": False}}


def test_with_one_dead_replica_of_three_the_list_is_the_union_of_the_other_two():
    async def main():
        async with bench(serving("a"), serving("b")) as at, FakeReplica(serving("c")) as third:
            urls = [*(fake.url for fake in at.fakes), third.url]
            async with routing(urls) as (router, port), RawClient(port) as client:
                before = await client.request("GET", MODELS)
                await third.__aexit__()
                await until(lambda: len(router.membership.ready) == 2)
                return before, await client.request("GET", MODELS)

    before, after = run(main())
    assert (before.status, after.status) == (200, 200)
    assert [entry["id"] for entry in before.json["data"]] == ["a", "b", "c"]
    assert [entry["id"] for entry in after.json["data"]] == ["a", "b"]


def test_what_a_living_replica_said_once_is_listed_as_stale_while_it_does_not_say_it_again():
    is_well = [True]

    async def script(request, wire):
        if request.path == MODELS and not is_well[0]:
            await wire.send(sized(b"{}", status=b"500 Oops"))
        else:
            await serving("b")(request, wire)

    async def main():
        async with bench(serving("a"), script) as at:
            await at.client.request("GET", MODELS)
            is_well[0] = False
            await asyncio.sleep(1.1)  # what was just asked is not asked again for a second
            return await at.client.request("GET", MODELS)

    response = run(main())
    assert response.status == 200
    stale = {entry["id"]: entry["pointsman"]["stale"] for entry in response.json["data"]}
    assert stale == {"a": False, "b": True}


def test_one_model_is_described_by_its_name_with_slashes_or_a_404():
    async def main():
        async with bench(serving("org/name", "plain")) as at:
            paths = [f"{MODELS}/org/name", f"{MODELS}/org%2Fname", f"{MODELS}/other"]
            return [await at.client.request("GET", path) for path in paths]

    found, encoded, missing = run(main())
    assert found.json["id"] == encoded.json["id"] == "org/name"
    assert (missing.status, missing.json["error"]["code"]) == (404, "model_not_found")


def test_where_no_replica_tells_its_models_the_request_is_passed_on():
    async def main():
        async with bench() as at:
            return (await at.client.request("GET", MODELS)).json, at.fake.url

    body, _ = run(main())
    assert "choices" in body


# Requests.


def test_a_request_goes_to_a_replica_that_serves_its_model():
    async def main():
        async with bench(serving("a"), serving("b"), models_interval_s=OFTEN_S) as at:
            await known(at)
            for _ in range(3):
                assert (await at.client.post(CHAT, chat(model="b"))).status == 200
                body = json.dumps({"model": "a"}).encode()
                kind = {"content_type": "application/json"}
                assert (await at.client.post("/v1/embeddings", body, **kind)).status == 200
            return [served(fake) for fake in at.fakes]

    one, two = run(main())
    assert one == ["/v1/embeddings"] * 3
    assert two == [CHAT] * 3


def test_a_model_that_every_living_replica_is_known_not_to_serve_is_a_404():
    async def main():
        async with bench(serving("a"), serving("b"), models_interval_s=OFTEN_S) as at:
            await known(at)
            response = await at.client.post("/v1/completions", completion(model="c"))
            return response, [served(fake) for fake in at.fakes]

    response, reached = run(main())
    assert (response.status, reached) == (404, [[], []])
    assert response.json["error"] == {
        "message": "The model `c` does not exist: no replica serves it",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


@pytest.mark.parametrize("quiet", [silent_about_models, answer_json])
def test_a_replica_whose_models_are_not_known_gets_what_the_others_do_not_serve(quiet):
    async def main():
        async with bench(serving("a"), quiet, models_interval_s=30.0) as at:
            await until(lambda: at.router.models.barred_for("of nobody") == {0})
            answers = [await at.client.post(CHAT, chat(model="c")) for _ in range(2)]
            return [answer.status for answer in answers], [served(fake) for fake in at.fakes]

    statuses, reached = run(main())
    assert statuses == [200, 200]
    assert reached == [[], [CHAT] * 2]


def test_a_model_that_was_loaded_since_is_found_before_anybody_is_told_that_it_does_not_exist():
    names = ["a"]

    async def script(request, wire):
        await serving(*names)(request, wire)

    async def main():
        async with bench(script, models_interval_s=1000.0) as at:
            await known(at)
            names.append("adapter")
            await asyncio.sleep(1.1)
            return (await at.client.post(CHAT, chat(model="adapter"))).status

    assert run(main()) == 200


def test_a_request_without_a_model_goes_anywhere():
    async def main():
        async with bench(serving("a"), models_interval_s=OFTEN_S) as at:
            await known(at)
            return (await at.client.post(CHAT, {"messages": []})).status

    assert run(main()) == 200


def test_llama_cpp_serves_its_model_under_any_name_unless_it_is_a_router():
    async def statuses(**fields):
        script = serving("a.gguf", **fields)
        async with bench(script, models_interval_s=OFTEN_S) as at:
            await known(at)
            return (await at.client.post(CHAT, chat(model="gpt-4"))).status

    assert run(statuses(owned_by="llamacpp")) == 200
    assert run(statuses(owned_by="llamacpp", status={"value": "loaded"})) == 404


def test_a_retry_goes_to_another_replica_that_serves_the_model():
    async def dies(request, wire):
        if request.path == MODELS:
            await wire.send(sized(listing("a")))
        else:
            wire.die()

    async def main():
        scripts = (dies, serving("b"), serving("a"))
        async with bench(*scripts, models_interval_s=OFTEN_S) as at:
            await known(at)
            answers = [await at.client.post(CHAT, chat(model="a")) for _ in range(2)]
            return [answer.status for answer in answers], served(at.fakes[1])

    assert run(main()) == ([200, 200], [])


# The table alone.


def table_of(pages: dict[str, list[Page | None]], **configured: list[str]) -> ModelTable:
    """Replicas by host name, in this order; each get takes the next of its pages, None fails."""

    async def get(address, path, limits):
        page = pages[address.host].pop(0)
        if page is None:
            raise PageError("down")
        return page

    table = ModelTable(30.0, get)
    for number, name in enumerate(pages):
        table.add(number, replica_address(f"http://{name}"), configured.get(name, ()))
    return table


def test_configured_models_stand_whatever_the_replica_says():
    async def main():
        table = table_of({"x": [Page(200, listing("other"))], "y": [None]}, x=["a"])
        await table.refresh([0, 1])
        before = table.candidates_for("a", [0, 1]), table.candidates_for("other", [0, 1])
        return before, await table.check("other", [0])

    (of_a, of_other), refused = run(main())
    assert (of_a, of_other) == ([0, 1], [1])
    assert refused.status == 404


def test_a_model_whose_replicas_are_all_down_is_no_404():
    async def main():
        pages = {"x": [Page(200, listing("a"))], "y": [Page(200, listing("b"))] * 2}
        table = table_of(pages)
        await table.refresh([0, 1])
        return await table.check("a", [1]), await table.check("b", [1])

    assert run(main()) == (None, None)


def test_a_replica_that_was_started_anew_may_serve_anything_until_it_says():
    async def main():
        table = table_of({"x": [Page(200, listing("a")), Page(200, listing("b"))]})
        await table.refresh([0])
        before = table.candidates_for("b", [0])
        table.forget(0)
        between = table.candidates_for("b", [0])
        await table.refresh([0])
        return before, between, table.barred_for("a"), table.barred_for("b")

    assert run(main()) == ([], [0], {0}, set())


@pytest.mark.parametrize(
    "page",
    [
        Page(500, listing("b")),
        Page(200, b"{"),
        Page(200, b"[]"),
        Page(200, b'{"data":[7]}'),
        Page(200, b"\xff"),
        Page(200, b'{"data":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
        None,
    ],
)
def test_a_page_that_is_no_list_leaves_what_was_known_and_marks_it(page):
    async def main():
        table = table_of({"x": [Page(200, listing("a")), page]})
        await table.refresh([0])
        await table.refresh([0])
        return table.barred_for("b"), json.loads((await table.answer(MODELS, [0])).body)

    barred, answer = run(main())
    assert barred == {0}
    assert answer["data"][0]["pointsman"]["stale"] is True


def test_replicas_are_asked_once_however_many_want_to_know():
    async def main():
        asked = []

        async def get(address, path, limits):
            asked.append(address.host)
            await asyncio.sleep(0)
            return Page(200, listing("a"))

        table = ModelTable(30.0, get)
        table.add(0, replica_address("http://x"))
        await asyncio.gather(*(table.answer(MODELS, [0]) for _ in range(50)))
        return asked

    assert run(main()) == ["x"]
