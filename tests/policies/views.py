"""Views and requests written by hand."""

from __future__ import annotations

import numpy as np

from pointsman import POLICIES
from pointsman.policies import policy as rows
from pointsman.policies.policy import CACHED_TOKENS, REQUEST, ROWS, view_for

ROW_OF_WORD = {
    "free_at": rows.FREE_AT_MS,
    "requests": rows.REQUESTS,
    "cached": rows.CACHED_TOKENS,
    "work": rows.WORK_MS,
    "full_work": rows.FULL_WORK_MS,
    "iteration": rows.ITERATION_MS,
    "pending": rows.PENDING_TOKENS,
    "context": rows.CONTEXT_TOKENS,
    "waiting": rows.WAITING_REQUESTS,
    "running": rows.RUNNING_REQUESTS,
    "kv": rows.KV_USE,
    "candidate": rows.CANDIDATE,
}


def choice_of(name, view, *, parameters=None, **request):
    """What the policy of that name chooses: a column, and a reason."""
    rule = POLICIES[name].bind(**(parameters or {}))
    row = np.zeros(1, dtype=REQUEST)
    row["home"] = -1
    row["longest_hit_tokens"] = np.nan_to_num(view[CACHED_TOKENS]).max()
    for field, value in request.items():
        row[field] = value
    candidate, reason = rule.choose(row[0], view, rule.parameter_values)
    return candidate, rule.reasons[reason]


def choose(name, *, parameters=None, prompt_tokens=100, key=0, random=0.0, **signals):
    """The same for rows named in words; rows that the policy reads and nobody names are 0, those
    that it does not read are NaN."""
    count = len(next(iter(signals.values())))
    view = view_for(POLICIES[name].reads, count)
    assert view.shape == (ROWS, count)
    if "key" in POLICIES[name].reads:
        view[rows.CANDIDATE] = np.arange(count)
    for word, values in signals.items():
        assert rows.SIGNAL_OF_ROW[ROW_OF_WORD[word]] in POLICIES[name].reads
        view[ROW_OF_WORD[word]] = values
    asked = {"prompt_tokens": prompt_tokens, "key": key, "random": random}
    return choice_of(name, view, parameters=parameters, **asked)


def spread(name, draws=1200, **given):
    """How often each candidate is chosen over evenly spread draws."""
    count = len(next(value for value in given.values() if isinstance(value, tuple)))
    middles = (np.arange(draws) + 0.5) / draws
    taken = [choose(name, random=middle, **given)[0] for middle in middles]
    return np.bincount(taken, minlength=count).tolist()
