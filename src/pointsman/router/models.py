"""Which replica serves which models, as each of them says, and the list of all of them.

A replica is asked in the background, and again when a request names a model that nobody is known
to serve. What it once said is kept while it does not answer, and marked as stale; a replica that
has said nothing yet is taken to serve everything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from pointsman.core.checks import check_number
from pointsman.router.answers import Answer, error_body, report
from pointsman.router.engine.fetch import Limits, Page, PageError, fetch
from pointsman.router.upstream import ReplicaAddress

MODELS = "/v1/models"
LIMITS = Limits(timeout_s=2.0, max_body_bytes=1 << 20)
DEFAULT_INTERVAL_S = 30.0
# How old the answers of replicas may be that a list or a 404 is made of.
FRESH_S = 1.0

NOBODY: frozenset[int] = frozenset()
MOST_NAMES = 1024  # that are remembered: clients may ask for any

Get = Callable[[ReplicaAddress, str, Limits], Awaitable[Page]]


class _Listed(msgspec.Struct):
    data: list[dict[str, Any]]


_LISTED = msgspec.json.Decoder(_Listed)


@dataclass(slots=True)
class _Replica:
    """``models``: by id, as the replica describes them; None before it said anything.

    ``is_fixed``: they were configured, and what the replica says is only how they are described.
    """

    address: ReplicaAddress
    models: dict[str, dict[str, Any]] | None = None
    is_fixed: bool = False
    serves_all: bool = False
    is_stale: bool = False
    asked_s: float = -1e9
    asking: asyncio.Task[None] | None = field(default=None, compare=False)


class ModelTable:
    """The models of every replica, by the replica's number.

    ``interval_s``: how often all of them are asked. With 0 they are asked only when somebody wants
    a list, and requests go by configured models alone. Raises InputError for a negative one.
    """

    def __init__(self, interval_s: float = DEFAULT_INTERVAL_S, get: Get = fetch) -> None:
        check_number("models", "interval_s", interval_s)
        self._interval_s = interval_s
        self._get = get
        self._replicas: dict[int, _Replica] = {}
        self._barred: dict[str, frozenset[int]] = {}  # as it follows from the replicas
        self._task: asyncio.Task[None] | None = None

    # Who there is.

    def add(self, replica: int, address: ReplicaAddress, models: Sequence[str] = ()) -> None:
        """A replica; with ``models`` it serves these, whatever it says."""
        fixed = {name: _described(name) for name in models} or None
        self._replicas[replica] = _Replica(address, fixed, is_fixed=fixed is not None)
        self._barred.clear()

    def keep(self, replicas: Collection[int]) -> None:
        """All others are gone."""
        for number in [each for each in self._replicas if each not in replicas]:
            del self._replicas[number]
            self._barred.clear()

    def forget(self, replica: int) -> None:
        """The replica was started anew, perhaps with other models."""
        known = self._replicas[replica]
        known.asked_s = -1e9
        if not known.is_fixed:
            known.models, known.serves_all = None, False
            self._barred.clear()

    # Questions.

    def candidates_for(self, model: str | None, among: Sequence[int]) -> list[int]:
        """Those that serve the model, or may: their models are not known yet."""
        if model is None:
            return list(among)
        return [replica for replica in among if self._may_serve(replica, model)]

    def barred_for(self, model: str | None) -> frozenset[int]:
        """Those that are known not to serve it."""
        if model is None:
            return NOBODY
        barred = self._barred.get(model)
        if barred is None:
            if len(self._barred) == MOST_NAMES:
                self._barred.clear()
            numbers = (number for number in self._replicas if not self._may_serve(number, model))
            barred = self._barred[model] = frozenset(numbers)
        return barred

    def may_be_unknown(self, model: str | None, living: Sequence[int]) -> bool:
        """Whether none of the living is known to serve it, or may: ``check`` says more."""
        barred = self.barred_for(model)
        return bool(barred and living) and barred.issuperset(living)

    async def check(self, model: str | None, living: Sequence[int]) -> Answer | None:
        """The 404 for a model that no replica serves, even asked anew.

        None where one may serve it, now or when it lives again.
        """
        if not living or self.candidates_for(model, living):
            return None
        if self._interval_s:
            await self.refresh(living, FRESH_S)
        if model is None or self.candidates_for(model, living):
            return None
        others = [number for number in self._replicas if number not in living]
        if any(model in (self._replicas[number].models or ()) for number in others):
            return None
        return no_such_model(model)

    async def answer(self, path: str, among: Sequence[int]) -> Answer | None:
        """What GET of ``/v1/models`` or of one below it gets; None where nothing is known.

        ``among``: the living replicas. The models of others are not listed.
        """
        await self.refresh(among, FRESH_S)
        listed = self._union(among)
        if not listed:
            return None
        if path == MODELS:
            return report({"object": "list", "data": list(listed.values())})
        name = unquote(path.removeprefix(f"{MODELS}/"))
        return report(listed[name]) if name in listed else no_such_model(name)

    # Asking.

    def start(self) -> None:
        """Begin to ask in the background."""
        if self._interval_s:
            self._task = asyncio.get_running_loop().create_task(self._go_on_asking())

    def close(self) -> None:
        """Ask no more."""
        for task in (self._task, *(replica.asking for replica in self._replicas.values())):
            if task is not None:
                task.cancel()

    async def refresh(self, among: Iterable[int], older_than_s: float = 0.0) -> None:
        """Ask those whose answer is older than that; each has 2 s. Never raises."""
        now_s = asyncio.get_running_loop().time()
        due = []
        for number in among:
            replica = self._replicas.get(number)
            if replica is None:
                continue
            if replica.asking is None and now_s - replica.asked_s >= older_than_s:
                replica.asked_s = now_s
                replica.asking = asyncio.get_running_loop().create_task(self._ask(replica))
            if replica.asking is not None:
                due.append(replica.asking)
        if due:
            await asyncio.wait(due)

    async def _go_on_asking(self) -> None:
        while True:
            await self.refresh(list(self._replicas))
            await asyncio.sleep(self._interval_s)

    async def _ask(self, replica: _Replica) -> None:
        try:
            page = await self._get(replica.address, MODELS, LIMITS)
            found = _read(page)
        except PageError:
            found = None
        finally:
            replica.asking = None
        replica.is_stale = found is None
        if found is None:
            return
        if replica.is_fixed and replica.models is not None:
            replica.models = {name: found.get(name, old) for name, old in replica.models.items()}
        else:
            replica.models = found
            replica.serves_all = any(map(_is_deaf_to_names, found.values()))
        self._barred.clear()

    def _may_serve(self, number: int, model: str) -> bool:
        replica = self._replicas.get(number)
        if replica is None or replica.models is None or replica.serves_all:
            return True
        is_asked = replica.is_fixed or self._interval_s > 0
        return not is_asked or model in replica.models

    def _union(self, among: Sequence[int]) -> dict[str, dict[str, Any]]:
        """Each model once, as the first replica describes it, and who serves it."""
        listed: dict[str, dict[str, Any]] = {}
        for number in among:
            replica = self._replicas.get(number)
            if replica is None or replica.models is None:
                continue
            for name, described in replica.models.items():
                ours = {"replicas": [], "stale": True}
                entry = listed.setdefault(name, {**described, "pointsman": ours})
                entry["pointsman"]["replicas"].append(replica.address.url)
                entry["pointsman"]["stale"] &= replica.is_stale
        return listed


def is_list(method: bytes, path: str) -> bool:
    """Whether a request asks for the list of models, or for one of it."""
    return method in (b"GET", b"HEAD") and (path == MODELS or path.startswith(f"{MODELS}/"))


def no_such_model(name: str) -> Answer:
    """The 404 of OpenAI's API."""
    message = f"The model `{name}` does not exist: no replica serves it"
    body = error_body(message, "invalid_request_error", "model_not_found", param="model")
    return Answer(404, body)


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "pointsman"}


def _is_deaf_to_names(described: dict[str, Any]) -> bool:
    """llama.cpp serves its one model under any name, unless it is a router itself.

    Source: ggml-org/llama.cpp ``tools/server/README.md``: the models of a router have a status.
    """
    return described.get("owned_by") == "llamacpp" and "status" not in described


def _read(page: Page) -> dict[str, dict[str, Any]] | None:
    """The models by id; None where the page is no list of them."""
    if page.status != 200:
        return None
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        data = _LISTED.decode(page.body).data
        return {each["id"]: each for each in data if isinstance(each.get("id"), str)}
    return None
