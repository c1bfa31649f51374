"""Which GPUs each replica of a group gets: without a word all would take the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from pointsman.bench.engines.protocol import Instance
from pointsman.core.errors import InputError


def on_gpus(instances: Sequence[Instance], gpus: Sequence[str]) -> list[Instance]:
    """Each with one GPU a rank that no other has, in order; those that name theirs keep them, and
    those that run already need none. Raises InputError where there are too few."""
    named = {gpu for each in instances for gpu in each.gpus}
    free = [gpu for gpu in gpus if gpu not in named]
    wanted = sum(each.ranks for each in instances if _is_to_be_placed(each))
    if wanted > len(free):
        raise InputError(
            f"group: wants {wanted} GPUs; expected at most {len(free)}, which are free"
        )
    left = iter(free)
    return [
        replace(each, gpus=tuple(islice(left, each.ranks))) if _is_to_be_placed(each) else each
        for each in instances
    ]


def _is_to_be_placed(instance: Instance) -> bool:
    return not instance.gpus and instance.url is None
