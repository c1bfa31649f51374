"""Shapes of models: what follows from them, and how they are read."""

from __future__ import annotations

import msgspec
import pytest

from pointsman.core.errors import InputError
from pointsman.costs.models import known_models, model_named, read_models
from tests.costs.shapes import MODEL_FIELDS, TINY, toml_of

# Parameters of the published weights (safetensors totals on huggingface.co).
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "mistral-7b": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
}


def test_every_model_has_a_published_count_to_be_held_to():
    assert known_models().keys() == PUBLISHED.keys()


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_the_parameters_follow_from_the_shape(name, published):
    assert model_named(name).parameters == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "bytes_of_a_token"),
    [("llama-3.1-8b", 131_072), ("llama-3.1-70b", 327_680), ("qwen2.5-72b", 327_680)],
)
def test_the_kv_cache_of_a_token_has_the_published_size(name, bytes_of_a_token):
    assert model_named(name).kv_bytes_per_token() == bytes_of_a_token


def test_a_dense_layer_is_counted_matrix_by_matrix():
    # Query and output 4 x 4, key and value 4 x 2, MLP 3 x 4 x 3, norms 2 x 4.
    assert TINY.layer_parameters == 16 + 16 + 8 + 8 + 36 + 8
    assert TINY.parameters == 2 * 92 + 2 * 20 + 4
    assert TINY.computed_layer_parameters == 2 * 92


def test_tied_embeddings_are_counted_once():
    assert msgspec.structs.replace(TINY, tied_embeddings=True).parameters == 2 * 92 + 20 + 4


def test_a_token_computes_its_own_experts_and_memory_holds_all():
    experts = msgspec.structs.replace(TINY, experts=4, active_experts=2)
    assert experts.layer_parameters == 56 + 4 * 4 + 4 * 36
    assert experts.computed_layer_parameters == 2 * (56 + 16 + 2 * 36)


def test_a_batch_touches_the_expected_number_of_experts():
    experts = msgspec.structs.replace(TINY, experts=4, active_experts=2)
    # A token leaves half of them out, two independent ones a quarter.
    assert [experts.experts_touched(tokens) for tokens in (1, 2)] == [2, 3]
    assert TINY.experts_touched(7) == 1


def test_a_file_adds_models_and_its_own_go_before_ours(tmp_path):
    file = tmp_path / "models.toml"
    file.write_text(toml_of("tiny", MODEL_FIELDS) + toml_of("qwen3-8b", MODEL_FIELDS))
    models = read_models(file)
    assert model_named("tiny", models) == TINY
    assert models["qwen3-8b"].layers == 2
    assert models["qwen3-14b"].layers == 40


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"'llama-3\.1-8' is unknown; .* mean llama-3\.1-8b\?"):
        model_named("llama-3.1-8")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layers": -2}, "layers is -2; expected an integer >= 1"),
        ({"hidden": 4.5}, "hidden is 4.5; expected an integer >= 1"),
        ({"vocab": True}, "vocab is True; expected an integer >= 1"),
        ({"heads": 0}, "heads is 0; expected an integer >= 1"),
        ({"source": ""}, "source is ''; expected a text that is not empty"),
        ({"tied_embeddings": 1}, "tied_embeddings is 1; expected true or false"),
        ({"head_dim": None}, "head_dim is missing; expected an integer >= 1"),
        ({"heads": 3, "kv_heads": 2}, "kv_heads is 2; expected a divisor of heads, 3"),
        ({"active_experts": 2}, "active_experts is 2; expected at most experts, 1"),
        ({"kv_head": 1}, "field 'kv_head' is unknown; expected one of"),
        ({"kv_head": 1}, "did you mean kv_heads?"),
    ],
)
def test_a_wrong_field_is_named_with_its_table(tmp_path, changed, message):
    file = tmp_path / "models.toml"
    file.write_text(toml_of("my-model", {**MODEL_FIELDS, **changed}))
    with pytest.raises(InputError) as caught:
        read_models(file)
    assert str(caught.value).startswith(f"{file}: [my-model]: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers = 3\n", "[layers]: expected a group with the fields layers, hidden,"),
        ("[my-model\n", "not TOML: "),
        ("\x00", "not TOML: "),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, message):
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_models(file)
    assert f"{file}: {message}" in str(caught.value)
