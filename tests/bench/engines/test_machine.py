"""What a machine has of GPUs and models, by what its tools and folders say."""

from __future__ import annotations

import sys

import pytest

from pointsman.bench.engines.machine import Machine, hub_folder, missing_model, missing_modules
from pointsman.bench.missing import Missing
from tests.bench.engines.http_stand_in import program


@pytest.fixture
def two_gpus(tmp_path):
    """An environment whose nvidia-smi is a stand-in that lists two."""
    program(tmp_path / "bin" / "nvidia-smi", "printf '0\\n1\\n' #")
    return {"PATH": str(tmp_path / "bin"), "HF_HOME": "/models"}


def test_the_gpus_are_those_of_nvidia_smi(two_gpus):
    assert Machine.of(two_gpus).gpus == ("0", "1")


def test_without_nvidia_smi_there_is_no_gpu(tmp_path):
    assert Machine.of({"PATH": str(tmp_path)}).gpus == ()


@pytest.mark.parametrize(
    ("allowed", "gpus"), [("1", ("1",)), ("", ()), ("GPU-5a, 1", ("GPU-5a", "1"))]
)
def test_of_gpus_only_those_count_that_are_visible(two_gpus, allowed, gpus):
    assert Machine.of({**two_gpus, "CUDA_VISIBLE_DEVICES": allowed}).gpus == gpus


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HF_HUB_CACHE": "/hub", "HF_HOME": "/home"}, "/hub"),
        ({"HF_HOME": "/home", "XDG_CACHE_HOME": "/cache"}, "/home/hub"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/huggingface/hub"),
    ],
)
def test_models_lie_where_the_hubs_variables_say(environment, folder):
    assert str(hub_folder(environment)) == folder


@pytest.fixture
def hub(tmp_path):
    """Of one model, at commit c0ffee, which is its main."""
    model = tmp_path / "models--org--small"
    (model / "snapshots" / "c0ffee").mkdir(parents=True)
    (model / "snapshots" / "c0ffee" / "config.json").touch()
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("c0ffee")
    return tmp_path


@pytest.mark.parametrize("revision", [None, "main", "c0ffee"])
def test_a_model_of_the_hub_is_there_by_branch_and_by_commit(hub, revision):
    assert missing_model("org/small", revision, hub) == []


def test_a_revision_that_was_not_fetched_is_missing(hub):
    [missing] = missing_model("org/small", "v2", hub)
    assert missing.fix == "hf download org/small --revision v2"


def test_a_folder_without_a_model_is_missing(tmp_path):
    assert missing_model(str(tmp_path), None, tmp_path) == [
        Missing(f"{tmp_path}/config.json", "give the folder of a model")
    ]
    [missing] = missing_model("./nowhere", None, tmp_path)
    assert missing.what == "the model ./nowhere"


def test_modules_are_looked_for_in_the_python_that_would_run_them():
    assert missing_modules(sys.executable, ("json", "no_such_module"), "install it") == [
        Missing(f"the module no_such_module of {sys.executable}", "install it")
    ]
