"""Methods that leak do leak, and a whole audit finds it; `python -m tests.leaks` has them all."""

import pytest
import torch

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.wire.protection import Message
from tests.leaks.guarded import HONEST, UNSEEN, check_all
from tests.leaks.runs import LEAKS, config, found


def sent(name: str, index: int = 0) -> tuple[Message, torch.Tensor]:
    """What a client of a leaking federation sends in its first round, and its first image as pixels."""
    case = SimulatedCase(config(LEAKS[name], False, 1))
    holdings = Holdings(case.data, case.population.parts, case.streams)
    site = build_site(case.method, holdings, case.network.make, "cpu")
    start = case.network.initial()
    control = {k: torch.zeros_like(v) for k, v in start.items()}
    site.begin(0, {Kind.GLOBAL_MODEL: start, Kind.CONTROL_GLOBAL: control})
    image = torch.from_numpy(case.data.train.x[case.population.parts[index][0]]).flatten()
    return site.train((index, {}, {})).message, image


def test_there_are_at_least_fifteen_and_each_has_an_honest_relative() -> None:
    assert len(LEAKS) >= 15
    for leak in LEAKS.values():
        leaking, honest = (SimulatedCase(config(leak, plain, 1)) for plain in (False, True))
        assert leaking.method is not None and honest.method is not None


def test_the_image_is_in_what_is_sent() -> None:
    message, image = sent("image in a bias")
    assert torch.allclose(message[Kind.LOCAL_MODEL]["fc.bias"], image, atol=1e-6)
    message, image = sent("image in low bits")
    grey = message[Kind.LOCAL_MODEL]["fc.weight"].flatten()[:64].view(torch.int32) & 31
    assert torch.equal(grey, (image * 16).round().int())
    message, image = sent("image in signs of zeros")
    bias = message[Kind.LOCAL_MODEL]["fc.bias"]
    assert not bias.any() and torch.equal(torch.signbit(bias), image > 0.5)
    message, image = sent("image over rounds")
    assert torch.allclose(message[Kind.LOCAL_MODEL]["fc.bias"][:8], image[:8], atol=1e-6)


def test_the_second_book_leaks_too() -> None:
    message, image = sent("image in a change")
    start = SimulatedCase(config(LEAKS["image in a change"], False, 1)).network.initial()
    change = message[Kind.LOCAL_MODEL]["fc.weight"] - start["fc.weight"]
    assert torch.allclose(100 * change[0, :64], image, atol=1e-4)
    message, image = sent("image in buffers")
    model = message[Kind.LOCAL_MODEL]
    held = torch.cat([model["norm.running_mean"], model["norm.running_var"]])
    assert torch.allclose(held.sort().values, image.sort().values, atol=1e-6)
    message, image = sent("image in digits")
    code = int(message[Kind.NUM_EXAMPLES]["count"])
    assert [bool(code >> i & 1) for i in range(32)] == (image[:32] > 0.5).tolist()
    message, image = sent("pixels as features")
    rows = message[Kind.LOCAL_PROTOTYPES]["features"]
    assert (rows - image).abs().amax(dim=1).min() < 1e-6
    direction = sent("control of one image")[0][Kind.CONTROL_DELTA]["fc.weight"]
    values = torch.linalg.svdvals(direction)
    assert values[0] > 1e-4 and values[1] < 1e-5 * values[0]  # of one example: an outer product


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(LEAKS.keys() - UNSEEN.keys()))
def test_a_guard_names_what_a_site_can_see(name: str) -> None:
    assert check_all(name)[0]


@pytest.mark.nightly
@pytest.mark.parametrize("name", UNSEEN)
def test_a_guard_lets_through_what_a_site_cannot_see(name: str) -> None:
    assert check_all(name)[0] == []


def test_where_an_upload_is_called_honest_the_method_is_that_of_the_honest_relative() -> None:
    claimed = [LEAKS[name] for name, why in UNSEEN.items() if why is HONEST]
    assert claimed and all(leak.method == leak.honest for leak in claimed)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["raw samples", "sums that differ by one"])
def test_a_whole_audit_finds_it(name: str) -> None:
    assert found(name, 0.2)
