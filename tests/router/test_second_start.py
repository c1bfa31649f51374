"""A router that starts again compiles nothing: each process finds what an earlier one compiled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# What a router compiles before it takes requests, and how much of that was not found.
START = """
import gc, sys
from pointsman.core.compiled import Kernel
from pointsman.dispatch.dispatcher import Rules
from pointsman.policies.catalogue import policy_named
from pointsman.router.rehearsal import compile_for, rehearse_pairs
rules = Rules(policy_named(sys.argv[1]))
compile_for(rules, 2)
rehearse_pairs(rules)
kernels = [each for each in gc.get_objects() if isinstance(each, Kernel)]
used = [each for each in kernels if "dispatcher" in vars(each)]
missed = [each.function.__qualname__ for each in used if each.dispatcher.stats.cache_misses]
print(len(used), *sorted(missed))
"""


def started(policy: str, cache: str) -> list[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", START, policy]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("policy", ["queue_aware", "fewest_misses"])  # one of each kernel
def test_the_second_start_compiles_nothing(policy, tmp_path):
    first = started(policy, str(tmp_path))
    second = started(policy, str(tmp_path))
    assert len(first) > 5  # the probe does see what is compiled
    assert second == first[:1]
