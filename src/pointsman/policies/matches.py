"""How much of a prompt a candidate holds, as rules count it."""

from __future__ import annotations

from pointsman.core.compiled import inlined
from pointsman.policies.policy import CACHED_TOKENS, Request, View


@inlined
def fraction_of_prompt(request: Request, tokens: float) -> float:
    """``tokens`` as a fraction of the prompt, at most 1; 0 where the prompt's length is unknown."""
    if request.prompt_tokens <= 0:
        return 0.0
    return min(1.0, tokens / request.prompt_tokens)


@inlined
def uncached_tokens(request: Request, view: View, candidate: int) -> float:
    """What of the prompt is not there; 0 where the prompt's length is unknown."""
    return float(max(0.0, request.prompt_tokens - view[CACHED_TOKENS, candidate]))
