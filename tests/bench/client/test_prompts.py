"""Prompts: as long as the workload says, equal where its blocks are equal, in every process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import send_load
from pointsman.bench.client.prompts import Prompts
from pointsman.bench.client.target import Target
from pointsman.bench.client.tokenizer import Lengths
from pointsman.bench.client.words import WORDS
from pointsman.core.errors import InputError, MachineError
from pointsman.workload.formats import read_workload
from pointsman.workload.workload import workload_of_columns
from tests.bench.client.loads import requests
from tests.bench.client.stand_in import StandInEngine, run

# Blocks of 4 tokens; the second prompt shares two with the first, the third has none.
CHAINED = workload_of_columns(
    [0.0, 1.0, 2.0],
    prompt_tokens=[14, 11, 6],
    output_tokens=[2, 2, 2],
    chain_start=[0, 3, 6, 6],
    chain_blocks=[0, 1, 2, 0, 1, 3],
    prefix_tokens=[12, 10, 0],
    block_size_tokens=4,
)


def texts(workload, lengths: Lengths | None = None, seed: int = 0) -> list[list[str]]:
    prompts = Prompts(workload, lengths or Lengths(), seed)
    return [prompts.text(number).split() for number in range(len(workload))]


def answered(workload, **engine):
    """A workload sent to a stand-in that is asked how long prompts are."""

    async def main():
        async with StandInEngine(**engine) as stand_in:
            target = Target(stand_in.url, "m", "vllm")
            return await send_load(target, Load(workload)), stand_in

    return run(main())


def words_of(engine: StandInEngine) -> list[int]:
    """Of each prompt, in the order of the workload."""
    return [asked.words for asked in sorted(engine.asked, key=lambda asked: asked.number)]


def test_a_prompt_has_as_many_words_as_it_is_to_have_tokens():
    assert [len(words) for words in texts(CHAINED)] == [14, 11, 6]


def test_prompts_share_what_their_chains_share_and_no_more():
    first, second, third = texts(CHAINED)
    assert first[:8] == second[:8]
    assert first[8:12] != second[8:12]
    assert third != first[:6]


def test_what_an_engine_puts_around_a_prompt_is_taken_off_its_front():
    whole, cut = texts(CHAINED), texts(CHAINED, Lengths(overhead_tokens=5))
    assert [words[5:] for words in whole] == cut


def test_a_prompt_that_is_all_overhead_still_has_a_word():
    assert [len(words) for words in texts(CHAINED, Lengths(overhead_tokens=13))] == [1, 1, 1]


def test_a_shorter_use_of_a_prefix_key_is_the_beginning_of_a_longer_one():
    keyed = workload_of_columns(
        [0.0, 1.0],
        prompt_tokens=[100, 60],
        output_tokens=[1, 1],
        chain_start=[0, 1, 2],
        chain_blocks=[0, 0],
        prefix_tokens=[100, 60],
    )
    longer, shorter = texts(keyed)
    assert longer[:60] == shorter


def test_another_seed_is_another_text():
    assert texts(CHAINED, seed=1) != texts(CHAINED, seed=2)


def test_blocks_go_by_their_names_not_by_their_numbers(tmp_path):
    lines = [
        '{"pointsman":1,"block_size_tokens":4}\n',
        *(
            f'{{"request_id":"r{k}","arrival_ms":{k},"prompt_tokens":8,"output_tokens":1,'
            f'"block_ids":["{name}","x{k}"]}}\n'
            for k, name in enumerate("abc")
        ),
    ]
    paths = tmp_path / "all.jsonl", tmp_path / "last.jsonl"
    paths[0].write_text("".join(lines))
    paths[1].write_text(lines[0] + lines[3])
    of_all, of_last = (texts(read_workload(path)) for path in paths)
    assert of_all[2] == of_last[0]


IN_A_PROCESS = """
import hashlib
from pointsman.bench.client.prompts import Prompts
from pointsman.bench.client.tokenizer import Lengths
from tests.bench.client.test_prompts import CHAINED
prompts = Prompts(CHAINED, Lengths(), 7)
print(hashlib.sha256("|".join(map(prompts.text, range(3))).encode()).hexdigest())
"""


def test_prompts_are_the_same_bytes_in_every_process():
    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        environment["PYTHONPATH"] = os.pathsep.join([*sys.path, os.getcwd()])
        command = [sys.executable, "-c", IN_A_PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
        return done.stdout.strip()

    here = "|".join(map(Prompts(CHAINED, Lengths(), 7).text, range(3)))
    assert digest("1") == digest("2") == hashlib.sha256(here.encode()).hexdigest()


def test_a_workload_of_times_without_tokens_is_refused():
    with pytest.raises(InputError, match=r"row 0: prompt_tokens is missing; .* not times"):
        Prompts(workload_of_columns([0.0], service_ms=[5.0]), Lengths())


# Asking the server.


def test_prompts_are_as_long_as_usage_says_they_are():
    result, engine = answered(CHAINED, overhead=3)
    assert result.lengths.overhead_tokens == 3
    assert [words + 3 for words in words_of(engine)] == [14, 11, 6]
    assert result.lengths.mismatch is None
    assert "/tokenize and usage" in result.lengths.how


def test_without_a_tokenizer_lengths_are_calibrated_on_usage():
    result, engine = answered(requests(3, prompt_tokens=[400] * 3), has_tokenizer=False)
    assert "by usage" in result.lengths.how  # one token a word, as it turned out
    assert words_of(engine) == [400] * 3


def test_words_of_several_tokens_each_are_calibrated_by_their_characters():
    result, engine = answered(
        requests(3, prompt_tokens=[400] * 3), has_tokenizer=False, tokens_a_word=2
    )
    assert result.lengths.characters_a_token is not None
    # A word and its space are 5.4 characters in the mean, here two tokens.
    mean = sum(len(word) + 1 for word in WORDS) / len(WORDS)
    assert result.lengths.characters_a_token == pytest.approx(mean / 2, rel=0.1)
    assert [words * 2 for words in words_of(engine)] == pytest.approx([400] * 3, rel=0.1)


def test_a_tokenizer_that_disagrees_with_usage_is_told_with_both_counts():
    result, _ = answered(requests(2, prompt_tokens=[40] * 2), tokens_a_word=2)
    assert result.lengths.mismatch == ("/tokenize counts 8 tokens in a text of which usage says 16")


def test_a_server_that_does_not_answer_a_first_request_is_named():
    async def main():
        async with StandInEngine() as engine:
            url = engine.url
        await send_load(Target(url, "m"), Load(requests(1)))

    with pytest.raises(MachineError, match="first request was not answered: no connection"):
        run(main())
