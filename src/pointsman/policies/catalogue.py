"""The policies that come with Pointsman, and how a name or a file becomes one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from pointsman.core.errors import InputError, unknown_name, wrong_value
from pointsman.policies.aibrix import aibrix_prefix_cache
from pointsman.policies.consistent_hashing import (
    session_affinity,
    sglang_bounded_hashing,
    sglang_prefix_hash,
)
from pointsman.policies.dynamo import dynamo_kv, dynamo_kv_old
from pointsman.policies.earliest_first_token import earliest_first_token
from pointsman.policies.fewest_misses import fewest_misses
from pointsman.policies.least_requests import least_requests
from pointsman.policies.llmd import llmd_default, llmd_load_aware
from pointsman.policies.lmetric import lmetric
from pointsman.policies.locality_aware import locality_auto, locality_aware
from pointsman.policies.policy import Policy
from pointsman.policies.preble import preble
from pointsman.policies.queue_aware import queue_aware
from pointsman.policies.ray_serve import ray_prefix_affinity
from pointsman.policies.round_robin import round_robin
from pointsman.policies.sampled import power_of_two, power_of_two_tokens, random
from pointsman.policies.sglang import sglang_cache_aware
from pointsman.policies.vllm import production_stack_loadaware, vllm_kv_aware

# Which rules are reproduced from other projects, and which are not, is said here alone.
OURS: dict[str, Policy] = {
    "round_robin": round_robin,
    "queue_aware": queue_aware,
    "locality_aware": locality_aware,
    "locality_auto": locality_auto,
    "random": random,
    "power_of_two": power_of_two,
    "least_requests": least_requests,
    "earliest_first_token": earliest_first_token,
    "fewest_misses": fewest_misses,
    "session_affinity": session_affinity,
}
PEERS: dict[str, Policy] = {
    "sglang_cache_aware": sglang_cache_aware,
    "sglang_prefix_hash": sglang_prefix_hash,
    "sglang_bounded_hashing": sglang_bounded_hashing,
    "power_of_two_tokens": power_of_two_tokens,
    "lmetric": lmetric,
    "llmd_default": llmd_default,
    "llmd_load_aware": llmd_load_aware,
    "dynamo_kv": dynamo_kv,
    "dynamo_kv_old": dynamo_kv_old,
    "aibrix_prefix_cache": aibrix_prefix_cache,
    "vllm_kv_aware": vllm_kv_aware,
    "production_stack_loadaware": production_stack_loadaware,
    "ray_prefix_affinity": ray_prefix_affinity,
    "preble": preble,
}
POLICIES: dict[str, Policy] = {**OURS, **PEERS}

AUTO_SLACK = "slack_ms=auto"  # of locality_aware: locality_auto

# Those that every driver can run; the others need replicas that batch.
EVERYWHERE = {name: rule for name, rule in POLICIES.items() if not rule.needs_batching}


def policy_named(text: str) -> Policy:
    """The policy that ``text`` names, with its parameters set.

    ``NAME[:parameter=value...]`` for one of ours, ``FILE.py:NAME[:parameter=value...]`` for one
    of yours: ``locality_aware:slack_ms=20``, ``./mine.py:cheapest``. Loading a file runs it.
    Raises InputError when the name, the file or a parameter is unknown.
    """
    head, *rest = text.split(":")
    if head.endswith(".py"):
        if not rest:
            raise InputError(f"policy {text}: no name; expected FILE.py:NAME")
        found, *rest = _from_file(Path(head), rest[0]), *rest[1:]
    elif head in POLICIES:
        found = POLICIES[head]
    else:
        raise unknown_name("--policy", "policy", head, POLICIES)
    if found is locality_aware and AUTO_SLACK in rest:
        found = locality_auto
        rest.remove(AUTO_SLACK)
    return found.bind(**dict(_parameter(text, item) for item in rest))


def _parameter(text: str, item: str) -> tuple[str, float]:
    name, equals, value = item.partition("=")
    if not equals:
        raise InputError(f"policy {text}: {item!r} is no parameter; expected NAME=NUMBER")
    try:
        return name, float(value)
    except ValueError:
        raise wrong_value(f"policy {text}", name, value, "a finite number >= 0") from None


def _from_file(path: Path, name: str) -> Policy:
    if not path.is_file():
        raise InputError(f"policy file {path} does not exist; expected FILE.py:NAME")
    module_name = f"pointsman_user_policy_{path.stem}"
    specification = importlib.util.spec_from_file_location(module_name, path.resolve())
    if specification is None or specification.loader is None:
        raise InputError(f"policy file {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.resolve().parent))  # its own neighbours, as for a script
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file does when it runs
        raise InputError(
            f"policy file {path}: cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    defined = {key: value for key, value in vars(module).items() if isinstance(value, Policy)}
    if not defined:
        raise InputError(f"policy file {path}: no @policy in it; expected {name}")
    if name not in defined:
        raise unknown_name(str(path), "policy", name, defined)
    return defined[name]
