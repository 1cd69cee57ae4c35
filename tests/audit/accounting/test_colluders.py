"""Noise that clients make together, towards one who made a part of it: its own share hides nothing from it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution

from fedaudit.audit.accounting.budget import SpentBudget, budgets
from fedaudit.audit.noise_audit.other_lines import list_savings
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.wire import Wire
from tests.audit.noise_audit.played import Card

ROUNDS, Z = 4, 2.0
AUTO = [PluginSpec(name="auto", settings={"cross_check": False})]


def ledger(tmp_path: Path, came: int, hidden: bool = True, **settings: float) -> list[Release]:
    """As a run writes it, of four rounds in which so many answered."""
    log = Log(tmp_path / f"ledger-{came}.jsonl")
    gaussian = DPGaussian(DPGaussian.Config(**{"clip_norm": 1.0, "noise_multiplier": Z, **settings}))  # type: ignore[arg-type]
    summed = [SecureAggregation(SecureAggregation.Config())] if hidden else []
    wire, model = Wire(Card(), Streams(1), [gaussian, *summed], None, log), {"w": torch.zeros(3)}
    for t in range(ROUNDS):
        for k in range(came):
            wire.uplink(t, {Kind.LOCAL_MODEL: model}, k, {Kind.GLOBAL_MODEL: model})
        wire.end_round(t)
    log.close()
    return read(tmp_path / f"ledger-{came}.jsonl")


def bounds(releases: list[Release]) -> dict[str, SpentBudget]:
    return {b.observer: b for b in budgets(releases, AUTO, 1e-5)}


def truth(shares: float, of: int) -> float:
    """dp-accounting's PLD of four releases whose noise is that of `shares` of `of` parts."""
    one = privacy_loss_distribution.from_gaussian_mechanism(Z * (shares / of) ** 0.5)
    return float(one.self_compose(ROUNDS).get_epsilon_for_delta(1e-5))


@pytest.mark.dear("3-3-1-2-5.55", "10-10-1-9-4.66", "10-10-4-6-None", "4-7-5-2-None", "2-2-9-1-6.58")
@pytest.mark.parametrize(
    ("contributors", "came", "colluders", "left", "stated"),
    [
        (2, 2, 1, 1, 6.58),
        (3, 3, 1, 2, 5.55),
        (10, 10, 1, 9, 4.66),
        (10, 10, 4, 6, None),
        (4, 7, 1, 4, 4.38),  # six others came, and four of them make all of it
        (4, 7, 5, 2, None),
        (4, 2, 3, 1, None),  # the sender's own share is always there
        (2, 2, 9, 1, 6.58),
    ],
)
def test_a_client_subtracts_its_own_share_and_those_of_its_colluders(
    tmp_path: Path, contributors: int, came: int, colluders: int, left: int, stated: float | None
) -> None:
    of = bounds(ledger(tmp_path, came, contributors=contributors, colluders=colluders))
    client = of["another client"].epsilon_upper
    assert client == pytest.approx(truth(left, contributors), rel=6e-3)
    assert client >= truth(left, contributors) - 1e-6 and (stated is None or client == stated)
    plural = "" if colluders == 1 else "s"
    assert f"with {colluders} colluder{plural}" in of["another client"].assumes
    for observer in ("server", "public"):  # who made no share, and collude with nobody
        all_of_it = truth(min(came, contributors), contributors)
        assert of[observer].epsilon_upper == pytest.approx(all_of_it, rel=6e-3)
        assert "with no colluders" in of[observer].assumes


def test_a_line_states_the_noise_of_those_who_came(tmp_path: Path) -> None:
    for came, there in ((2, 2), (4, 4), (7, 4)):
        line = ledger(tmp_path, came, contributors=4)[0]
        assert (line.aggregated, line.shares) == (there, came)
        assert line.noise_std == pytest.approx(Z * (there / 4) ** 0.5)


def test_who_reads_single_messages_reads_the_noise_of_one_share(tmp_path: Path) -> None:
    of = bounds(ledger(tmp_path, 4, hidden=False, contributors=4))
    assert of["server"].epsilon_upper == pytest.approx(truth(1, 4), rel=6e-3)
    assert of["another client"].epsilon_upper == pytest.approx(truth(3, 4), rel=6e-3)


def test_noise_of_one_s_own_knows_no_colluders(tmp_path: Path) -> None:
    releases = ledger(tmp_path, 3, colluders=2)
    of = bounds(releases)
    assert len({b.epsilon_upper for b in of.values()}) == 1 and "colluder" not in of["another client"].assumes
    assert '"shares"' not in (tmp_path / "ledger-3.jsonl").read_text()


@pytest.mark.parametrize(
    "changes", [{"colluders": 0}, {"shares": 100}, {"aggregated": 1}, {"aggregated": 1000, "shares": 0}]
)
def test_a_line_that_counts_more_shares_towards_a_client_is_named(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    made = ledger(tmp_path, 3, contributors=3)[0]
    assert not list(list_savings(made, made)) and not list(list_savings(replace(made, colluders=2), made))
    (issue,) = list_savings(replace(made, **changes), made)  # type: ignore[arg-type]
    assert "towards another client; it is" in issue


def test_nobody_colludes_with_fewer_than_itself() -> None:
    with pytest.raises(UserError, match="colluders"):
        configure(DPGaussian, {"contributors": 3, "colluders": 0}, "protections[0]")
