"""Ray Serve's request router, by a policy of Pointsman's.

    serve.deployment(request_router_config=RequestRouterConfig(
        request_router_class="ray_serve_router:PointsmanRouter",
        request_router_kwargs={"policy": "fewest_misses"},
    ))

Run this file for an example on a local Ray: two replicas, prompts of four sessions.
See docs/ray-serve.md.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pointsman import policy_named
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.prefix_index import PrefixIndex
from pointsman.dispatch.record import ERROR, OK
from pointsman.router.prompt import BYTES_A_TOKEN, chain_of

ROOM = 64  # replicas that there may ever be


class PointsmanRouter(RequestRouter):
    """Ranks the policy's choice first; all others follow, for a replica may refuse."""

    def initialize_state(self, policy: str = "fewest_misses") -> None:
        """Ray calls this once, with ``request_router_kwargs``."""
        started_s = time.monotonic()
        self._dispatcher = Dispatcher(
            Rules(policy_named(policy)),
            [],
            lambda: (time.monotonic() - started_s) * 1000.0,
            room=ROOM,
        )
        self._dispatcher.prefixes = PrefixIndex(ROOM)
        self._numbers: dict[ReplicaID, int] = {}

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Nothing is accounted for here: Ray may ask again for the same request."""
        if not candidate_replicas:
            return []
        by_number = {self._number_of(each.replica_id): each for each in candidate_replicas}
        chosen = self._dispatcher.ask(question_of(pending_request), list(by_number))
        first = by_number.pop(chosen.replica)
        return [[first], list(by_number.values())] if by_number else [[first]]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """It went there, by whatever choice; from now on it counts there until it ends."""
        number = self._number_of(replica_id)
        ticket = self._dispatcher.choose(question_of(pending_request), [number])

        def ended(outcome: Any) -> None:
            failed = isinstance(outcome, BaseException)
            ticket.end(Ending(ERROR if failed else OK))

        result.add_done_callback(ended)

    def _number_of(self, replica_id: ReplicaID) -> int:
        number = self._numbers.get(replica_id)
        if number is None:
            number = self._dispatcher.join(str(replica_id), ReplicaFacts())
            self._numbers[replica_id] = number
        return number


def question_of(pending: PendingRequest | None) -> Question:
    """What a deployment is asked whose first argument is the prompt."""
    if pending is None:
        return Question("unknown")
    prompt = pending.args[0] if pending.args and isinstance(pending.args[0], str) else ""
    text = prompt.encode()
    return Question(
        pending.metadata.request_id,
        prompt_tokens=-(-len(text) // BYTES_A_TOKEN),
        output_tokens=64,
        chain=chain_of(text, "model"),
    )


@serve.deployment(
    num_replicas=2,
    ray_actor_options={"num_cpus": 0.1},
    request_router_config=RequestRouterConfig(
        request_router_class=PointsmanRouter, request_router_kwargs={"policy": "fewest_misses"}
    ),
)
class Engine:
    """Stands for an engine: it says which replica it is."""

    def __call__(self, prompt: str) -> str:
        """The replica's id."""
        return str(serve.get_replica_context().replica_id.unique_id)


def main() -> None:
    """Sixteen requests of four sessions, one after the other; who served which."""
    handle = serve.run(Engine.bind())
    served = Counter(
        (session, handle.remote(f"{session} " * 400 + f"turn {turn}").result())
        for turn in range(4)
        for session in ("ann", "bob", "cy", "dee")
    )
    for (session, replica), count in sorted(served.items()):
        print(f"{session:4} {replica} {count}")
    serve.shutdown()


if __name__ == "__main__":
    main()
