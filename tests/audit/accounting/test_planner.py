"""The planner: the noise it names keeps the budget, a little less does not; what a run spent."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.special import log_ndtr
from typer.testing import CliRunner

from fedaudit.audit.accounting.accountants import pld, wor_pld
from fedaudit.audit.accounting.accountants.exact import closed_form, gaussian
from fedaudit.audit.accounting.planner import NoiseQuestion, answers, bound_plan, search
from fedaudit.audit.accounting.spending import PLAIN, figure, over_rounds, spent
from fedaudit.audit.accounting.terms import Term
from fedaudit.audit.cli.budget import plan, spending
from fedaudit.audit.cli.main import app
from fedaudit.fl.availability.bernoulli import Bernoulli
from fedaudit.fl.availability.uniform import Uniform
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.ledger import Release, read, to_line
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.wire import Wire
from fedaudit.privacy import account
from fedaudit.reports.bound import PrivacyBound
from tests.audit.accounting.test_budget import ALL, EXACT, budgets, declared
from tests.audit.accounting.test_colluders import AUTO, ROUNDS
from tests.audit.accounting.test_colluders import ledger as shares
from tests.audit.accounting.test_exact import release
from tests.audit.noise_audit.played import Card


def test_the_noise_for_a_budget_is_the_published_one() -> None:
    for epsilon, rounds, per_round, noise in (
        (1.0, 1, 1, 3.730631634816),
        (1.0, 40, 1, 23.59),
        (1.0, 40, 2, 33.37),
        (8.0, 40, 1, 3.796),
    ):
        question = NoiseQuestion(epsilon=epsilon, rounds=rounds, per_round=per_round)
        (found,) = answers(question)
        assert found.observer == "everyone" and found.noise == pytest.approx(noise, rel=1e-3)
        count = rounds * per_round
        assert gaussian(math.sqrt(count) / found.noise, 1e-5) <= epsilon
        assert gaussian(math.sqrt(count) / (found.noise * 0.998), 1e-5) > epsilon
        assert list(found.curve) == sorted(found.curve) and list(found.curve)[-1] == rounds
        assert list(found.curve.values()) == sorted(found.curve.values())


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["poisson", "fixed"])
def test_several_releases_of_a_round_share_its_draw(how: str) -> None:
    drawn = {"clients": 10, "sampled": 3}
    one, two = (search(NoiseQuestion(epsilon=4.0, rounds=8, how=how, per_round=n, **drawn))[0] for n in (1, 2))  # type: ignore[arg-type]
    assert two == pytest.approx(math.sqrt(2) * one, rel=1e-3)


def test_a_replaced_client_needs_twice_the_noise() -> None:
    removed, replaced = (answers(NoiseQuestion(epsilon=2.0, replace=r))[0] for r in (False, True))
    assert replaced.noise == 2 * removed.noise and replaced.curve == removed.curve


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["poisson", "fixed"])
def test_hidden_participation_needs_less_noise_and_keeps_the_budget(how: str) -> None:
    question = NoiseQuestion(epsilon=4.0, delta=1e-5, rounds=50, how=how, clients=21, sampled=4)  # type: ignore[arg-type]
    worst, hidden = answers(question)
    assert hidden.noise < worst.noise
    z = hidden.noise / (2 if how == "fixed" else 1)
    for change, keeps in ((1.0, True), (0.995, False)):
        if how == "poisson":
            cost = pld.bound({Term("gaussian", z * change, "poisson", 4 / 21): 50}, 1e-5).epsilon
        else:
            term = Term("gaussian", z * change, "fixed_without_replacement", 0.2)
            cost = wor_pld.bound({term: 50}, 1e-5).epsilon
        assert (cost <= 4.0) is keeps
    assert hidden.curve[50] <= 4.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"delta": 1.0}, "delta must be between"),
        ({"rounds": 0}, "rounds must be >= 1"),
        ({"rate": 0.0}, "rate must be above 0"),
        ({"per_round": 0}, "per_round must be >= 1"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"how": "fixed", "rate": 0.1}, "how many clients there are"),
        ({"how": "fixed", "clients": 10}, "need each other"),
        ({"sampled": 3}, "need each other"),
        ({"clients": 10, "sampled": 11}, "more than clients"),
        ({"clients": 10, "sampled": 3, "rate": 0.1}, "contradicts"),
        ({"clients": 1, "sampled": 1}, "clients must be from 2"),
        ({"clients": 10, "sampled": 0}, "sampled must be"),
        ({"contributors": 0}, "contributors must be"),
        ({"colluders": 0}, "colluders must be"),
        ({"rounds": 10**400}, "rounds must be at most"),
        ({"per_round": 10**400}, "per_round must be at most"),
        ({"delta": 0.0}, "delta must be between"),
        ({"delta": -1.0}, "delta must be between"),
        ({"delta": math.nan}, "delta must be between"),
        ({"delta": "1e-5"}, "delta must be a number, got '1e-5'"),
        ({"epsilon": None}, "epsilon must be a number, got None"),
        ({"rounds": 1.5}, "rounds must be a whole number, got 1.5"),
        ({"rounds": True}, "rounds must be a whole number, got True"),
        ({"clients": 10.5, "sampled": 2}, "clients must be a whole number, got 10.5"),
        ({"how": "Poisson"}, "sampling must be 'poisson' or 'fixed', got 'Poisson'"),
        ({"how": 3}, "sampling must be 'poisson' or 'fixed', got 3"),
    ],
)
def test_a_question_without_sense_is_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        NoiseQuestion(**({"epsilon": 1.0} | wrong))  # type: ignore[arg-type]


def as_the_run_writes_it(
    tmp_path: Path, noise: float, rounds: int, law: Availability, clients: int
) -> list[Release]:
    """The ledger of central noise of that multiplier."""
    log = Log(tmp_path / "run.jsonl")
    noised = CentralDP(CentralDP.Config(clip_norm=1.0, noise_multiplier=noise))
    model = {"w": torch.zeros(3)}
    drawn = partial(law.sampling, clients=clients)
    wire = Wire(Card(), Streams(1), [noised], None, log, sampling=drawn)
    for t in range(rounds):
        wire.average(t, model, model, 1, clients)
        wire.end_round(t)
    log.close()
    return read(tmp_path / "run.jsonl")


@pytest.mark.dear("3-10-50-5.69")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("sampled", "clients", "rounds", "epsilon"),
    [(3, 10, 50, 5.69), (1, 2, 3, 2.0), (9, 10, 4, 3.0), (10, 100, 30, 1.0)],
)
def test_noise_that_is_planned_for_a_fixed_number_costs_no_more_in_the_run(
    tmp_path: Path, sampled: int, clients: int, rounds: int, epsilon: float
) -> None:
    """The ledger credits 3 of 9 others where 3 of 10 are drawn: 6.38 was spent of 5.69."""
    question = NoiseQuestion(epsilon=epsilon, rounds=rounds, how="fixed", clients=clients, sampled=sampled)
    law = Uniform(Uniform.Config(count=sampled))
    noise = answers(question)[-1].noise
    of = budgets(as_the_run_writes_it(tmp_path, noise, rounds, law, clients), AUTO, 1e-5)
    public = next(b for b in of if b.observer == "public")
    assert 0.99 * epsilon < public.epsilon_upper <= epsilon


def test_noise_that_is_planned_for_coins_costs_no_more_in_the_run(tmp_path: Path) -> None:
    noise = answers(NoiseQuestion(epsilon=4.0, rounds=20, clients=10, sampled=3))[-1].noise
    law = Bernoulli(Bernoulli.Config(p=0.3))
    of = budgets(as_the_run_writes_it(tmp_path, noise, 20, law, 10), AUTO, 1e-5)
    assert 3.9 < next(b.epsilon_upper for b in of if b.observer == "public") <= 4.0


@pytest.mark.parametrize(("contributors", "colluders"), [(2, 1), (3, 1), (10, 4)])
def test_noise_that_is_planned_for_colluders_costs_no_more_in_the_run(
    tmp_path: Path, contributors: int, colluders: int
) -> None:
    question = NoiseQuestion(epsilon=4.0, rounds=ROUNDS, contributors=contributors, colluders=colluders)
    client, others = answers(question)
    assert "colluder" in client.observer and client.noise > others.noise
    for answer, observers in ((client, {"another client"}), (others, {"server", "public"})):
        settings = {"contributors": contributors, "colluders": colluders, "noise_multiplier": answer.noise}
        made = shares(tmp_path, contributors, **settings)  # type: ignore[arg-type]
        spent_on = [b.epsilon_upper for b in budgets(made, AUTO, 1e-5) if b.observer in observers]
        assert all(3.95 < e <= 4.0 for e in spent_on) and len(spent_on) == len(observers)
        (tmp_path / f"ledger-{contributors}.jsonl").unlink()


@pytest.mark.nightly
def test_a_plan_speaks_of_the_worst_client_only() -> None:
    """Below "(3, 1e-5)-DP per client" stood the noise for one who takes part as often as the average."""
    text = plan(NoiseQuestion(epsilon=3.0, rounds=10, rate=0.5))
    assert "average" not in " ".join([*text.lines, *(cell for row in text.rows for cell in row)])


@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 1e12, 1e300])
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 1 - 1e-16])
@pytest.mark.parametrize("rounds", [1, 10**9])
def test_extreme_plans_end_in_noise_that_suffices_or_in_a_sentence(
    epsilon: float, delta: float, rounds: int
) -> None:
    try:
        (found,) = answers(NoiseQuestion(epsilon=epsilon, delta=delta, rounds=rounds))
    except UserError as refused:
        assert "no noise can be computed" in str(refused) and refused.hint
    else:
        assert 0 < found.noise < math.inf and found.curve[rounds] <= epsilon


def test_poisson_sampling_is_not_planned_for_replacement() -> None:
    with pytest.raises(UserError, match="add-or-remove neighbours only"):
        answers(NoiseQuestion(epsilon=1.0, rounds=2, rate=0.5, replace=True))


def ledger() -> list[Release]:
    return [release(4.0, round=t, sender=f"client/{k}", observers=ALL) for t in range(20) for k in range(3)]


def bound_releases(some: Sequence[Release]) -> list[PrivacyBound]:
    return declared(budgets(some, PLAIN, 1e-5))


def test_what_a_run_spent_ends_where_its_budget_ends() -> None:
    found = spent(ledger(), bound_releases)
    assert {(s.observer, s.unit) for s in found} == {
        ("server", "client"),
        ("another client", "client"),
        ("public", "client"),
    }
    whole = budgets(ledger(), EXACT, 1e-5)[0].epsilon_upper
    for s in found:
        assert s.rounds[-1] == 20 and s.epsilon[-1] == whole == s.last.epsilon
        assert s.epsilon == sorted(s.epsilon) and len(s.epsilon) == len(s.rounds) == 8
        # two releases of z = 4 cost what one of 4 / sqrt 2 does
        assert s.epsilon[s.rounds.index(5)] == pytest.approx(gaussian(math.sqrt(5) / 4, 1e-5), rel=5e-3)
    (drawn,) = over_rounds(ledger(), [found[0].last], bound_releases)
    assert drawn.id.startswith("budget")
    assert [s.name for s in drawn.series] == ["server, another client, public; per client, declared"]


def test_without_a_bound_there_is_no_curve() -> None:
    clear = [release(mechanism="none", observers=ALL, sensitivity=None)]
    found = spent(clear, bound_releases)
    assert all(s.epsilon == [math.inf] for s in found)
    assert over_rounds(clear, [s.last for s in found], bound_releases) == []
    assert figure([("x", {1: math.inf})], "t", "budget-x") is None and spent([], bound_releases) == []


def folder(tmp_path: Path, releases: list[Release]) -> Path:
    (tmp_path / "config.yaml").write_text("federation: {dataset: digits}\nmethod: fedavg\ndelta: 1.0e-6\n")
    (tmp_path / "ledger.jsonl").write_text("".join(to_line(r) + "\n" for r in releases))
    (tmp_path / "evidence").mkdir(exist_ok=True)
    for name in ("replay.json", "noise_audits.json"):
        (tmp_path / "evidence" / name).write_text("[]")
    return tmp_path


@pytest.mark.nightly
def test_the_command_prints_a_run_and_a_plan(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["dp", "budget", str(folder(tmp_path, ledger()))])
    assert done.exit_code == 0 and "at delta 1e-6" in done.output, done.output
    planned = CliRunner().invoke(app, ["dp", "calibrate", "--epsilon", "1", "--rounds", "40"])
    assert planned.exit_code == 0 and "23.6" in planned.output


def test_beside_what_is_in_clear_the_noised_releases_are_shown_alone(tmp_path: Path) -> None:
    clear = release(mechanism="none", sender="client/*", kind="num_examples", observers=ALL, sensitivity=None)
    text = spending(folder(tmp_path, [*ledger(), clear]), None)
    spoiled, alone = text.rows[0], text.rows[3]
    assert spoiled[-1] == "none" and "num examples is sent without noise" in "".join(text.lines)
    assert alone[0] == "server, noised releases alone"
    assert alone[4:] == spending(folder(tmp_path, ledger()), None).rows[0][4:]


def test_a_folder_without_a_manifest_leaves_everything_declared(tmp_path: Path) -> None:
    lines = spending(folder(tmp_path, ledger()), None).lines
    assert len(lines) == 4 and all("declared by the ledger" in line for line in lines[1:])


def test_a_run_without_releases_says_so(tmp_path: Path) -> None:
    assert "ledger is empty" in spending(folder(tmp_path, []), None).lines[0]


def log_delta(mu: float, epsilon: float) -> float:
    """ln delta(epsilon) of a mu-GDP Gaussian mechanism, by Theorem 8 of Balle and Wang."""
    above, below = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(above + math.log1p(-math.exp(below - above)))


@pytest.mark.parametrize("delta", [1e-30, 1e-18, 1e-12, 1e-5, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0])
def test_noise_in_full_is_the_least_of_the_closed_form_at_every_delta(epsilon: float, delta: float) -> None:
    z = answers(NoiseQuestion(epsilon=epsilon, delta=delta, rounds=10))[0].noise
    assert log_delta(math.sqrt(10) / z, epsilon) <= math.log(delta)
    assert log_delta(math.sqrt(10) / (0.998 * z), epsilon) > math.log(delta)


@pytest.mark.parametrize("delta", [1e-18, pytest.param(0.9, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("how", ["poisson", "fixed"])
def test_hidden_participation_never_takes_more_noise(how: str, delta: float) -> None:
    question = NoiseQuestion(epsilon=1.0, delta=delta, rounds=10, how=how, clients=20, sampled=2)  # type: ignore[arg-type]
    worst, hidden = answers(question)
    assert hidden.noise <= worst.noise and hidden.curve[10] <= 1.0
    assert (hidden.noise == worst.noise) is (delta < 1e-11)
    assert [b.epsilon for b in bound_plan(question, hidden).values()] == list(hidden.curve.values())


def test_a_distribution_of_losses_is_not_asked_at_a_delta_that_rounding_reaches() -> None:
    terms = {Term("gaussian", 20.0, "none", 1.0): 1000}
    for delta in (1e-10, 1e-12, 1e-14):
        found = pld.PLD(pld.PLD.Config()).cost(terms, delta)
        assert found.epsilon >= closed_form(terms, delta) * (1 - 1e-9)
        assert found.inconclusive is (delta < 1e-11)


@pytest.mark.parametrize("sampling", ["poisson", "fixed_without_replacement"])
def test_a_ledger_at_a_small_delta_has_a_bound_and_no_false_contradiction(sampling: str) -> None:
    release = Release(
        round=0,
        kind="global_model",
        sender="client/*",
        observers=("public",),
        mechanism="gaussian",
        noise_std=1.0,
        sensitivity=1.0,
        sampling=sampling,  # type: ignore[arg-type]
        sample_rate=0.1,
        participation_seen_by=("server",),
    )
    public = next(b for b in account([release], delta=1e-18) if b.observer == "public")
    assert 1.0 < public.epsilon_upper < 23.0 and not public.disagrees
    at_zero = next(b for b in account([release], delta=0) if b.observer == "public")
    assert math.isinf(at_zero.epsilon_upper) and at_zero.unbounded


@pytest.mark.parametrize(("ledger", "delta"), [([], "1e-5"), ([], None), ([3], 1e-5), ([{"round": 0}], 1e-5)])
def test_what_is_no_ledger_or_no_delta_is_said(ledger: list[Any], delta: Any) -> None:
    with pytest.raises(UserError):
        account(ledger, delta=delta)
