"""The mechanism run: fixed costs on real ranks, round robin against least loaded.

It is an experiment on how work is spread, not on serving (the lesson on serving replica routing,
step 5): no model, no KV cache, no network in front of the replicas.

    asked.py      what is asked for: the flags of ``torchrun ... -m pointsman.bench.mechanism``
    routing.py    which request goes to which rank, by our policies
    ranks.py      torch: the process group, the products, the stopwatch
    ending.py     a rank ends once: with its result, or with why there is none
    result.py     the file
    outcome.py    what ranks measured as that file; hardware.py the machine
    launch.py     torchrun, what is missing for it, and what it says
"""
