"""Whose rules are in the catalogue: said once, and about each of them."""

from __future__ import annotations

import pytest

from pointsman.policies.catalogue import OURS, PEERS, POLICIES

# As docs/policies.md lists them, a project a line.
OF_OTHER_PROJECTS = {
    *("sglang_cache_aware", "sglang_prefix_hash", "sglang_bounded_hashing", "power_of_two_tokens"),
    *("lmetric", "vllm_kv_aware", "production_stack_loadaware"),
    *("llmd_default", "llmd_load_aware"),
    *("dynamo_kv", "dynamo_kv_old"),
    *("aibrix_prefix_cache", "ray_prefix_affinity", "preble"),
}


def test_every_rule_is_either_ours_or_a_peers():
    assert not OURS.keys() & PEERS.keys()
    assert OURS.keys() | PEERS.keys() == POLICIES.keys()
    assert set(PEERS) == OF_OTHER_PROJECTS


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_peers_rule_names_the_project_or_paper_it_is_from(name):
    project = name.partition("_")[0].replace("llmd", "llm-d").replace("production", "production-st")
    from_elsewhere = {"power": "sglang", "lmetric": "lmetric", "preble": "arxiv"}
    assert from_elsewhere.get(project, project) in PEERS[name].source.lower()


def test_our_own_rules_say_so():
    for name in ("earliest_first_token", "fewest_misses", "locality_auto", "session_affinity"):
        assert "ours" in OURS[name].source
