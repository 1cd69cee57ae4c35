"""Worlds of small federations are told apart as well as theory says, and better where their ledger is wrong."""

from typing import Any

import pytest
import torch

from benchmarks.privacy.systems import System, compute_covariance, distinguish, gaussian_loss, play
from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.verify import Verified
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.aggregators.mean import Mean
from fedaudit.fl.protections.central_dp import CentralDP

EXACT, DELTA, Z = [PluginSpec(name="exact")], 1e-5, 2.0
GAUSSIAN: dict[str, object] = {"clip_norm": 1.0, "noise_multiplier": Z}
LOCAL, CENTRAL = ("dp_gaussian", GAUSSIAN), ("central_dp", GAUSSIAN)
HIDDEN: tuple[str, dict[str, object]] = ("secure_aggregation", {})


def together(**settings: object) -> tuple[str, dict[str, object]]:
    return ("dp_gaussian", GAUSSIAN | {"contributors": 4} | settings)


def both(observer: str, **settings: Any) -> tuple[float, float]:
    """What a test of the worlds reaches, and what is stated."""
    system = System(**settings)
    least, _, ledger = distinguish(system, DELTA)
    held = frozenset({frozenset((k, 1) for k in range(system.holders))}) if system.holders > 1 else frozenset()
    unit = "record" if system.holders > 1 else "client"
    bounds = budgets(ledger, EXACT, DELTA, Verified(overlaps=held))
    return least, next(b.epsilon_upper for b in bounds if (b.observer, b.unit) == (observer, unit))


RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "uploads": ("server", {"protections": [LOCAL], "reads": "uploads"}),
    "mean noised at the server": ("public", {"protections": [CENTRAL]}),
    "momentum on a noised mean": ("public", {"protections": [CENTRAL], "momentum": 0.9}),
    "a client that made a part of the noise": (
        "another client",
        {"protections": [together(), HIDDEN], "reads": "sums", "colluders": 1},
    ),
    "two clients that collude": (
        "another client",
        {"protections": [together(colluders=2), HIDDEN], "reads": "sums", "colluders": 2},
    ),
    "a record in uploads": (
        "server",
        {"protections": [LOCAL], "reads": "uploads", "holders": 3, "opposite": True},
    ),
    "a record in sums": (
        "public",
        {"protections": [together(), HIDDEN], "reads": "sums", "holders": 2, "opposite": True},
    ),
    "a record in noised means": ("public", {"protections": [CENTRAL], "holders": 2, "opposite": True}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_stated_is_reached_and_never_exceeded(name: str) -> None:
    observer, settings = RIGHT[name]
    least, stated = both(observer, **settings)
    assert 0.99 * stated <= least <= stated


@pytest.mark.parametrize(("rule", "is_certified"), [("mean", True), ("median", False)])
def test_only_what_is_linear_in_the_noise_is_certified(rule: str, is_certified: bool) -> None:
    system = System(protections=[LOCAL], rule=(rule, {}), momentum=0.9)
    assert distinguish(system, DELTA).is_certified == is_certified


def test_noise_of_another_deviation_than_its_line_certifies_nothing() -> None:
    played = play(System(protections=[CENTRAL]), 1.0)
    with pytest.raises(ValueError, match="another deviation"):
        compute_covariance(played._replace(noise=0.9 * played.noise))


@pytest.mark.sample(2)
@pytest.mark.parametrize("rule", [("mean", {}), ("median", {}), ("trimmed_mean", {"f": 1})])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_a_rule_and_a_momentum_make_of_noised_uploads_tells_no_more(rule: Any, momentum: float) -> None:
    least, stated = both("public", protections=[LOCAL], rule=rule, momentum=momentum)
    plain = both("public", protections=[LOCAL], rule=rule)[0]
    assert 0 < least <= stated and least == pytest.approx(plain, rel=1e-3)  # momentum can be undone


def test_the_loss_of_a_gaussian_is_that_of_the_table() -> None:
    assert gaussian_loss(1.0, 1e-5) == pytest.approx(4.377178, abs=1e-6)
    assert gaussian_loss(0.0, 1e-5) == 0.0


# Wrong systems ------------------------------------------------------------------------------------


class Triple(Mean):
    """Three times the mean change."""

    def begin(self, context: Any) -> Any:
        made = super().begin(context)
        value, starts = made.value, []
        add = made.add

        def keep(client: int, upload: Any, weight: float, start: Any) -> None:
            starts.append(start)
            add(client, upload, weight, start)

        made.add = keep  # type: ignore[method-assign]
        made.value = lambda: {k: starts[0][k] + 3 * (v - starts[0][k]) for k, v in value().items()}  # type: ignore[method-assign]
        return made


class Larger(CentralDP):
    """A clip of twice the norm that it lists, at the server."""

    def average(self, averaging: Any) -> None:
        before = averaging.before
        averaging.model = {k: before[k] + 2 * (v - before[k]) for k, v in averaging.model.items()}
        super().average(averaging)


@pytest.mark.parametrize(
    ("observer", "settings"),
    [
        ("public", {"protections": [CENTRAL], "rule": (f"{__name__}:Triple", {})}),
        ("public", {"protections": [(f"{__name__}:Larger", GAUSSIAN)]}),
        ("another client", {"protections": [together(), HIDDEN], "reads": "sums", "colluders": 3}),
    ],
)
def test_of_a_wrong_system_more_is_reached_than_stated(observer: str, settings: dict[str, Any]) -> None:
    least, stated = both(observer, **settings)
    assert least > 1.2 * stated


def test_the_same_seed_gives_the_same_value() -> None:
    torch.manual_seed(3)
    first = distinguish(System(protections=[LOCAL], clients=3, rounds=2), DELTA)
    torch.manual_seed(4)
    assert distinguish(System(protections=[LOCAL], clients=3, rounds=2), DELTA) == first
