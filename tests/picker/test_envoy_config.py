import json
from dataclasses import fields

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.picker import envoy_config as made
from pointsman.picker.envoy_config import EnvoySettings

REPLICAS = ("--replica", "http://10.0.0.1:8000", "--replica", "http://[fd00::2]:8000")


def printed(capsys, *flags):
    assert main(["envoy-config", *REPLICAS, *flags]) == 0
    return json.loads(capsys.readouterr().out)


def filter_of(config):
    chain = config["static_resources"]["listeners"][0]["filter_chains"][0]
    return chain["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]


def test_the_destination_is_believed_from_the_picker_alone(capsys):
    replicas, _ = printed(capsys)["static_resources"]["clusters"]
    policy = replicas["load_balancing_policy"]["policies"][0]["typed_extension_config"]
    (source,) = policy["typed_config"]["override_host_sources"]
    assert list(source) == ["metadata"]


def test_nothing_is_retried_that_a_replica_may_have_begun(capsys):
    listener = printed(capsys)["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    route = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
    retried = set(route["retry_policy"]["retry_on"].split(","))
    assert retried == {"connect-failure", "refused-stream", "reset-before-request"}


@pytest.mark.parametrize(("mode", "allowed"), [("FailOpen", True), ("FailClose", False)])
def test_the_failure_mode_is_what_envoy_is_told(capsys, mode, allowed):
    assert filter_of(printed(capsys, "--failure-mode", mode))["failure_mode_allow"] is allowed


def test_the_session_header_is_asked_for_in_lower_case(capsys):
    attributes = filter_of(printed(capsys, "--session-header", "X-Chat"))["request_attributes"]
    assert "request.headers['x-chat']" in attributes


def test_it_is_written_to_a_file_where_one_is_named(tmp_path, capsys):
    path = tmp_path / "envoy.json"
    assert main(["envoy-config", *REPLICAS, "--output", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert set(json.loads(path.read_text())) == {"static_resources"}


def test_endpoints_of_a_file_stand_in_it_and_not_in_the_configuration(tmp_path, capsys):
    path = tmp_path / "endpoints.json"
    config = printed(capsys, "--endpoints", str(path))
    (resource,) = json.loads(path.read_text())["resources"]
    cluster = config["static_resources"]["clusters"][0]
    assert resource["cluster_name"] == cluster["name"]
    members = [each["endpoint"]["address"]["socket_address"] for each in lb_endpoints(resource)]
    assert members == [
        {"address": "10.0.0.1", "port_value": 8000},
        {"address": "fd00::2", "port_value": 8000},
    ]
    assert "10.0.0.1" not in json.dumps(config)


def lb_endpoints(assignment):
    return assignment["endpoints"][0]["lb_endpoints"]


def test_envoy_watches_the_folder_of_that_file_wherever_it_is_started(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    cluster = printed(capsys, "--endpoints", "endpoints.json")["static_resources"]["clusters"][0]
    source = cluster["eds_cluster_config"]["eds_config"]["path_config_source"]
    assert source["path"] == str(tmp_path.resolve() / "endpoints.json")
    assert source["watched_directory"]["path"] == str(tmp_path.resolve())


def test_the_configuration_cannot_be_written_over_the_endpoints(tmp_path, capsys):
    path = str(tmp_path / "envoy.json")
    flags = ("--endpoints", path, "--output", path)
    assert main(["envoy-config", *REPLICAS, *flags]) == 2
    assert "and so is --output; expected a file of its own" in capsys.readouterr().err


def test_the_defaults_of_the_flags_are_those_of_the_settings():
    given = build_parser().parse_args(["envoy-config"])
    defaults = {each.name: each.default for each in fields(EnvoySettings)}
    assert given.failure_mode == defaults["failure_mode"]
    assert given.answers == defaults["answers"]
    assert given.duplex == defaults["is_duplex"]
    assert given.retries == defaults["retries"]
    assert given.message_timeout_ms == defaults["message_timeout_ms"]
    assert given.max_body_mb << 20 == defaults["max_body_bytes"]
    assert given.session_header == defaults["session_header"]


def test_the_choices_of_the_flags_are_those_of_the_settings():
    from pointsman.cli.envoy_config import ANSWERS, FAILURE_MODES

    assert made.ANSWERS == ANSWERS
    assert made.FAILURE_MODES == FAILURE_MODES


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "envoy-config: no replica; expected --replica URL"),
        (("--replica", "http://vllm:80"), "Envoy knows replicas by their IP addresses"),
        (("--replica", "http://10.0.0.1:80/v2"), "has a path; expected http://IP:PORT"),
        (("--replica", "http://10.0.0.1:80") * 2, "is given twice"),
        ((*REPLICAS, "--picker", "picker:9002"), "expected IP:PORT; Envoy looks no names up"),
        ((*REPLICAS, "--listen", "x"), "--listen x: expected HOST:PORT"),
        ((*REPLICAS, "--retries", "-1"), "--retries is -1; expected an integer >= 0"),
        ((*REPLICAS, "--message-timeout-ms", "0"), "expected a number > 0"),
        ((*REPLICAS, "--max-body-mb", "0"), "--max-body-mb is 0"),
        ((*REPLICAS, "--session-header", "it's"), "expected a name without quotes"),
        ((*REPLICAS, "--answers", "all"), "'all' is not one of none, heads, bodies"),
    ],
)
def test_what_no_envoy_could_run_with_is_refused(capsys, flags, message):
    try:
        code = main(["envoy-config", *flags])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
