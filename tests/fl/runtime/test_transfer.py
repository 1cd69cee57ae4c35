"""What is sent to a device and fetched again is what it was."""

import pytest
import torch

from fedaudit.fl.runtime.transfer import fetch, send
from tests.accelerator import DEVICE, accelerator, apart

STATE = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).T,
    "empty": torch.zeros(0, 2),
    "count": torch.tensor(2**40),
}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_on_a_processor_nothing_is_copied() -> None:
    assert all(send(v, "cpu") is v for v in STATE.values())
    assert all(v is STATE[k] for k, v in fetch(STATE).items())


@pytest.mark.gpu
@apart
def test_what_comes_back_from_a_device_is_what_went_there() -> None:
    with accelerator():
        there = {k: send(v, DEVICE) for k, v in STATE.items()}
        back = fetch(there)
        assert {v.device.type for v in there.values()} == {DEVICE}
        assert {v.device.type for v in back.values()} == {"cpu"} and same(back, STATE)
        assert same(fetch({**there, "weight": STATE["weight"]}), STATE)  # of some that lie here
