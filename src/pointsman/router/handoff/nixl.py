"""vLLM's NIXL connector: the prefill's answer has parameters by which the decode replica pulls.

Source: vLLM 0.32, run live (a pair on CPU); the fields as llm-d-router sends them,
pkg/sidecar/proxy/connector_nixlv2.go.
"""

from __future__ import annotations

import msgspec

from pointsman.router.handoff.bodies import Fields, answers_in, for_prefill, value
from pointsman.router.handoff.protocol import NO_PARAMETERS, SEVERAL, Legs

PARAMETERS = "kv_transfer_params"
_ASKED = value(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)


class _Answer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw()


_ANSWER = msgspec.json.Decoder(_Answer)


class Nixl:
    """Parameters are passed on as they are, whatever they say."""

    name = "nixl"
    moves_all = False
    decodes_alone = True
    reserved = frozenset((PARAMETERS,))

    async def hand_over(self, legs: Legs) -> Fields:
        """Prefill, then the request with what that answered."""
        if answers_in(legs.fields) is not None:
            raise legs.failure(SEVERAL, "is asked for several answers, which have no one cache")
        answer = await legs.prefill({**for_prefill(legs.fields), PARAMETERS: _ASKED})
        try:
            parameters = _ANSWER.decode(answer).kv_transfer_params
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            parameters = msgspec.Raw()
        if not bytes(parameters).lstrip().startswith(b"{"):
            raise legs.failure(NO_PARAMETERS, f"answered without {PARAMETERS}")
        return {**legs.fields, PARAMETERS: parameters}
