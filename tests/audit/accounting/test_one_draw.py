"""What one draw decides is amplified once: several releases of a round, and rounds that share a draw.

Lower ends are those of the attack that adds up what one draw decided: a sum of s releases of multiplier z is
one of z / sqrt(s), drawn with probability q, and no analysis can go below the composition of those.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from fedaudit.audit.accounting.accountants import pld
from fedaudit.audit.accounting.budget import towards
from fedaudit.audit.accounting.terms import Term, terms
from fedaudit.fl.availability.bernoulli import Persistent
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.ledger import EACH, Release, read
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.wire import Wire
from tests.audit.accounting.test_accountants import hidden


def towards_the_public(releases: list[Release]) -> float:
    return pld.bound(terms(towards("public", releases, "client")[1]["client/*"]), 1e-5).epsilon


def lines(period: int, rounds: int = 20, tmp: Path = Path()) -> list[Release]:
    """The ledger of central noise (z = 1) over rounds that share their draw (p = .3) in periods."""
    log = Log(tmp / f"{period}.jsonl")
    wire = Wire(FedAvg.card, Streams(1), [CentralDP(CentralDP.Config(expected=3.0))], None, log)
    model, law = {"w": torch.zeros(2)}, Persistent(Persistent.Config(p=0.3, period=period))
    for t in range(rounds):
        wire.accounts.note_draw(t, (), lambda k: law.sampling(k, 10))
        wire.average(t, model, model, 0, 10)
    log.offset()
    return read(log.path)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("period", "least", "most"), [(5, 18.55, 18.6), (20, 25.85, 25.95), (1, 9.5, 9.53)])
def test_rounds_that_share_a_draw_are_one_release(period: int, least: float, most: float, tmp_path: Path) -> None:
    found = towards_the_public(lines(period, tmp=tmp_path))
    lower = pld.bound({Term("gaussian", 1 / math.sqrt(period), "poisson", 0.3): 20 // period}, 1e-5).epsilon
    assert least <= found <= most and lower * (1 - 1e-3) <= found <= lower * 1.01


def test_releases_of_one_round_share_the_coin() -> None:
    two = [hidden(1.423, round=t) for t in range(200) for _ in range(2)]
    [(term, count)] = terms(two).items()
    assert term[:1] + term[2:4] == ("gaussian", "poisson", 0.1) and count == 200
    assert term.z == pytest.approx(1.423 / math.sqrt(2))
    assert pld.bound(terms(two), 1e-5).epsilon >= 9.76
    one_line = [hidden(1.423, round=t, count=2) for t in range(200)]
    assert terms(one_line) == terms(two)


def test_unequal_noise_of_one_round_adds_up_in_squares_and_pure_noise_in_epsilons() -> None:
    [(term, count)] = terms([hidden(3.0), hidden(4.0)]).items()
    assert (term.z, term.rate, count) == (pytest.approx(2.4), 0.1, 1)
    pure = [hidden(2.0, mechanism="laplace"), hidden(4.0, mechanism="discrete_laplace")]
    [(term, count)] = terms(pure).items()
    assert (term.mechanism, term.rate, count) == ("randomized_response", 0.1, 1)
    assert 1 / term.z == pytest.approx(0.75)


@pytest.mark.parametrize(
    "other",
    [
        hidden(1.0, sample_rate=0.2),  # a second rate for the same draw
        hidden(1.0, mechanism="laplace"),  # noise that does not add up with the first's
        hidden(1.0, sampling="unknown"),  # somebody who can tell
        hidden(1.0, sender="client/3", sampling="none", sample_rate=1.0),  # a line that is there with the client
    ],
)
def test_what_contradicts_or_tells_the_draw_leaves_no_credit_for_its_round(other: Release) -> None:
    alone, both = terms([hidden(2.0, round=1)]), terms([hidden(2.0), other, hidden(2.0, round=1)])
    assert sum(n for t, n in both.items() if t.sampled) == 1 and set(alone) < set(both)


def test_steps_of_dp_sgd_draw_for_themselves() -> None:
    steps = hidden(1.0, unit="record", sender="client/3", participation_seen_by=(), coin=EACH, count=20)
    assert terms([steps, steps]) == {Term("gaussian", 1.0, "poisson", 0.1): 40}
    # a client is there or not for the whole round, whatever its line says
    assert terms([hidden(coin=EACH, count=4)]) == terms([hidden(0.5)])


def test_the_wire_writes_the_draw_that_was_made_whatever_a_line_says(tmp_path: Path) -> None:
    log = Log(tmp_path / "ledger.jsonl")
    wire = Wire(FedAvg.card, Streams(1), [], None, log)
    wire.accounts.note_draw(7, (2,), lambda k: Drawn("poisson", 0.8, 5))
    cheap = hidden(round=7, sample_rate=0.01, participation_seen_by=())
    wire.accounts.enter(cheap)
    wire.accounts.enter(hidden(round=7, sample_rate=0.9))
    for sender in ("client/2", "client/3"):
        wire.accounts.enter(hidden(round=7, sender=sender, participation_seen_by=()))
    log.offset()
    star, dearer, drawn, other = read(log.path)
    assert (star.sample_rate, star.coin, star.participation_seen_by) == (0.8, "rounds 5 to 9", ("server",))
    assert dearer.sample_rate == 0.9
    assert drawn.sample_rate == 0.8 and set(drawn.participation_seen_by) == {"server", "client", "public"}
    assert other.sampling == "unknown"  # it was not drawn
    assert json.loads(log.path.read_text().splitlines()[0])["coin"] == "rounds 5 to 9"


def test_a_draw_says_nothing_of_what_is_sent_in_a_round_without_one(tmp_path: Path) -> None:
    """Else a run that goes on after a kill, which knows no draw yet, would state another rate."""
    log = Log(tmp_path / "ledger.jsonl")
    wire = Wire(FedAvg.card, Streams(1), [], None, log)
    wire.accounts.note_draw(4, (2,), lambda k: Drawn("poisson", 0.1))
    for sender in ("client/*", "client/2"):
        wire.accounts.enter(hidden(round=5, sender=sender, sampling="none", sample_rate=1.0))
    log.offset()
    assert [(line.sampling, line.sample_rate) for line in read(log.path)] == [("none", 1.0)] * 2
