"""Devices: what is known of them, and how they are read."""

from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.costs.devices import device_named, known_devices, read_devices
from tests.costs.shapes import DEVICE_FIELDS, toml_of


def test_flops_are_dense():
    # NVIDIA H100 datasheet, with sparsity: 1,979 and 3,958 TFLOPS of the SXM card.
    h100 = device_named("h100-sxm")
    assert (h100.bf16_tflops, h100.fp8_tflops) == pytest.approx((1979 / 2, 3958 / 2), rel=1e-3)


def test_where_there_is_fp8_it_is_twice_as_fast():
    for device in known_devices().values():
        if device.fp8_tflops is not None:
            assert device.fp8_tflops == pytest.approx(2 * device.bf16_tflops, rel=0.02), device.name


def test_cards_without_fp8_state_none():
    without = {name for name, device in known_devices().items() if device.fp8_tflops is None}
    assert without == {"a100-40gb", "a100-80gb", "a10g"}


def test_links_count_one_direction():
    # NVLink totals of the datasheets, both directions: 600, 900 and 1,800 GB/s.
    names = ("a100-80gb", "h100-sxm", "b200")
    assert [2 * device_named(name).link_gb_per_s for name in names] == [600, 900, 1800]


def test_memory_is_what_the_driver_gives():
    # `device_total_memory_bytes` of a recorded run.
    assert device_named("rtx-4090").memory_bytes == pytest.approx(25_250_627_584, rel=1e-4)


def test_a_file_adds_devices(tmp_path):
    file = tmp_path / "devices.toml"
    file.write_text(toml_of("mine", DEVICE_FIELDS))
    devices = read_devices(file)
    assert device_named("mine", devices).gpus_per_node == 2
    assert device_named("mine", devices).fp8_tflops is None
    assert "h200" in devices


def test_an_unknown_device_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"'h100-sx' is unknown; .* did you mean h100-sxm\?"):
        device_named("h100-sx")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bandwidth_gb_per_s": 0}, "bandwidth_gb_per_s is 0; expected a finite number > 0"),
        ({"memory_gib": -1.0}, "memory_gib is -1.0; expected a finite number > 0"),
        ({"bf16_tflops": "1"}, "bf16_tflops is '1'; expected a finite number > 0"),
        ({"fp8_tflops": 0}, "fp8_tflops is 0; expected a finite number > 0"),
        ({"memory_gib": 1e300}, "expected a finite number > 0, at most 1e+18"),
        ({"link_gb_per_s": 1e-300}, "expected a finite number > 0, at least 1e-18"),
        ({"gpus_per_node": 2**31}, "expected an integer >= 1, at most 2147483647"),
        ({"gpus_per_node": 2.0}, "gpus_per_node is 2.0; expected an integer >= 1"),
        ({"link": 4}, "link is 4; expected a text that is not empty"),
        ({"source": None}, "source is missing; expected a text"),
        ({"bandwith_gb_per_s": 1.0}, "did you mean bandwidth_gb_per_s?"),
    ],
)
def test_a_wrong_field_is_named_with_its_table(tmp_path, changed, message):
    file = tmp_path / "devices.toml"
    file.write_text(toml_of("mine", {**DEVICE_FIELDS, **changed}))
    with pytest.raises(InputError) as caught:
        read_devices(file)
    assert str(caught.value).startswith(f"{file}: [mine]: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
def test_a_number_that_is_not_finite_is_refused(tmp_path, value):
    file = tmp_path / "devices.toml"
    text = toml_of("mine", DEVICE_FIELDS)
    file.write_text(text.replace("memory_gib = 1.0", f"memory_gib = {value}"))
    with pytest.raises(InputError, match=r"memory_gib is (nan|inf); expected a finite"):
        read_devices(file)


def test_a_short_name_may_be_the_nearest():
    with pytest.raises(InputError, match=r"did you mean h100\?"):
        device_named("h1000")
