"""Where the key belongs: the session's, else the first block's; with a bound on load or without.

The key is ``request.key`` and its ranking of the candidates a rendezvous hash (``hashing.py``).
"""

from __future__ import annotations

from pointsman.core.compiled import inlined
from pointsman.policies.fewest import fewest_requests, total_requests
from pointsman.policies.hashing import owner_of, weight_of
from pointsman.policies.policy import REQUESTS, Parameters, Request, View, policy

LOAD_FACTOR = 0

OWNER = 0
SPILLED = 1
OWNER_OVER_BOUND = 2


@policy(
    rule="The candidate that the key (the session, else the prompt's first block) ranks highest.",
    source=(
        "ours: D. Thaler, C. Ravishankar, Using Name-Based Mappings to Increase Hit Rates, 1998;"
        " rings do the same in production-stack `session` and sglang `consistent_hashing`"
    ),
    reasons=("owner",),
    reads=("key",),
)
def session_affinity(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Needs no memory and no agreement between routers; when a replica comes or goes only the keys
    that it wins or held move."""
    return owner_of(request, view), OWNER


@policy(
    rule=(
        "The key's owner while it has at most load_factor x (requests in flight + 1) / candidates;"
        " else the fewest requests, if they are within that bound; else the owner."
    ),
    source=(
        "sgl-project/sglang, sgl-model-gateway/src/policies/prefix_hash.rs @065f331: 256 tokens"
        " make the key, 1.25"
    ),
    reasons=("owner", "least_load", "owner_over_bound"),
    parameters={"load_factor": 1.25},
    reads=("requests", "key"),
)
def sglang_prefix_hash(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs hashes the first 256 tokens onto a ring; ours ranks by the session, else by the first
    block."""
    owner = owner_of(request, view)
    total = total_requests(view)
    bound = parameters[LOAD_FACTOR] * (total + 1.0) / view.shape[1]
    if total == 0.0 or view[REQUESTS, owner] <= bound:
        return owner, OWNER
    idlest = fewest_requests(view)
    if view[REQUESTS, idlest] <= bound:
        return idlest, SPILLED
    return owner, OWNER_OVER_BOUND


@inlined
def _owner_within(request: Request, view: View, bound: float) -> int:
    """Of those with at most ``bound`` requests the one that the key ranks highest; -1 for none."""
    best, most = -1, -1.0
    for i in range(view.shape[1]):
        weight = weight_of(request, view, i)
        if view[REQUESTS, i] <= bound and weight > most:
            best, most = i, weight
    return best


@policy(
    rule=(
        "The candidate that the key ranks highest of those with at most load_factor x (requests in"
        " flight) / candidates; with none of them, the key's owner."
    ),
    source=(
        "sgl-project/sglang, sgl-model-gateway/src/policies/bounded_consistent_hashing.rs @1cfac30:"
        " max_load_skew 1.5; after V. Mirrokni, M. Thorup, M. Zadimoghaddam, Consistent Hashing"
        " with Bounded Loads, 2018"
    ),
    reasons=("owner", "next_in_rank", "owner_over_bound"),
    parameters={"load_factor": 1.5},
    reads=("requests", "key"),
)
def sglang_bounded_hashing(request: Request, view: View, parameters: Parameters) -> tuple[int, int]:
    """Theirs spills only requests with an explicit routing key, to the next on the ring; ours all,
    to the next in the key's ranking. With nothing in flight everybody is within the bound."""
    owner = owner_of(request, view)
    within = _owner_within(
        request, view, parameters[LOAD_FACTOR] * total_requests(view) / view.shape[1]
    )
    if within == owner:
        return owner, OWNER
    if within >= 0:
        return within, SPILLED
    return owner, OWNER_OVER_BOUND
