"""The planner: the noise it names keeps the budget, a little less does not; what a run spent."""

import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.audit.accounting.accountants import pld, wor_pld
from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.planner import Question, answers, search
from fedaudit.audit.accounting.spending import figure, over_rounds, spent
from fedaudit.audit.accounting.terms import Term
from fedaudit.audit.cli.budget import plan, spending
from fedaudit.audit.cli.main import app
from fedaudit.fl.ledger import Release, to_line
from fedaudit.fl.runtime.errors import UserError
from tests.audit.accounting.test_budget import ALL, EXACT, budgets
from tests.audit.accounting.test_exact import release


def test_the_noise_for_a_budget_is_the_published_one() -> None:
    for epsilon, rounds, per_round, noise in (
        (1.0, 1, 1, 3.730631634816),
        (1.0, 40, 1, 23.59),
        (1.0, 40, 2, 33.37),
        (8.0, 40, 1, 3.796),
    ):
        question = Question(epsilon=epsilon, rounds=rounds, per_round=per_round)
        (found,) = answers(question)
        assert found.observer == "everyone" and found.noise == pytest.approx(noise, rel=1e-3)
        count = rounds * per_round
        assert gaussian(math.sqrt(count) / found.noise, 1e-5) <= epsilon
        assert gaussian(math.sqrt(count) / (found.noise * 0.998), 1e-5) > epsilon
        assert list(found.curve) == sorted(found.curve) and list(found.curve)[-1] == rounds
        assert list(found.curve.values()) == sorted(found.curve.values())


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["poisson", "fixed"])
def test_several_releases_of_a_round_share_its_draw(how: str) -> None:
    one, two = (search(Question(epsilon=4.0, rounds=8, rate=0.3, how=how, per_round=n))[0] for n in (1, 2))  # type: ignore[arg-type]
    assert two == pytest.approx(math.sqrt(2) * one, rel=1e-3)


def test_a_replaced_client_needs_twice_the_noise() -> None:
    removed, replaced = (answers(Question(epsilon=2.0, replace=r))[0] for r in (False, True))
    assert replaced.noise == 2 * removed.noise and replaced.curve == removed.curve


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["poisson", "fixed"])
def test_hidden_participation_needs_less_noise_and_keeps_the_budget(how: str) -> None:
    question = Question(epsilon=4.0, delta=1e-5, rounds=50, rate=0.2, how=how)  # type: ignore[arg-type]
    worst, usual, hidden = answers(question)
    assert hidden.noise < worst.noise and usual.noise < worst.noise
    assert "10 rounds, the average" in usual.counted
    z = hidden.noise / (2 if how == "fixed" else 1)
    for change, keeps in ((1.0, True), (0.995, False)):
        if how == "poisson":
            cost = pld.bound({Term("gaussian", z * change, "poisson", 0.2): 50}, 1e-5).epsilon
        else:
            term = Term("gaussian", z * change, "fixed_without_replacement", 0.2)
            cost = wor_pld.bound({term: 50}, 1e-5).epsilon
        assert (cost <= 4.0) is keeps
    assert hidden.curve[50] <= 4.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 0.0}, "--epsilon must be > 0"),
        ({"delta": 1.0}, "--delta must be between"),
        ({"rounds": 0}, "--rounds must be >= 1"),
        ({"rate": 0.0}, "--rate must be above 0"),
        ({"per_round": 0}, "--per-round must be >= 1"),
        ({"epsilon": math.nan}, "--epsilon must be"),
    ],
)
def test_a_question_without_sense_is_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Question(**({"epsilon": 1.0} | wrong))  # type: ignore[arg-type]


def test_poisson_sampling_is_not_planned_for_replacement() -> None:
    with pytest.raises(UserError, match="add-or-remove neighbours only"):
        answers(Question(epsilon=1.0, rounds=2, rate=0.5, replace=True))


def ledger() -> list[Release]:
    return [release(4.0, round=t, sender=f"client/{k}", observers=ALL) for t in range(20) for k in range(3)]


def test_what_a_run_spent_ends_where_its_budget_ends() -> None:
    found = spent(ledger(), 1e-5)
    assert {(s.observer, s.unit) for s in found} == {
        ("server", "client"),
        ("another client", "client"),
        ("public", "client"),
    }
    whole = budgets(ledger(), EXACT, 1e-5)[0].epsilon_upper
    for s in found:
        assert s.rounds[-1] == 20 and s.epsilon[-1] == whole == s.last.epsilon_upper
        assert s.epsilon == sorted(s.epsilon) and len(s.epsilon) == len(s.rounds) == 8
        # two releases of z = 4 cost what one of 4 / sqrt 2 does
        assert s.epsilon[s.rounds.index(5)] == pytest.approx(gaussian(math.sqrt(5) / 4, 1e-5), rel=5e-3)
    (drawn,) = over_rounds(ledger(), [found[0].last], 1e-5)
    assert drawn.id.startswith("budget")
    assert [s.name for s in drawn.series] == ["server, another client, public; per client"]


def test_without_a_bound_there_is_no_curve() -> None:
    clear = [release(mechanism="none", observers=ALL, sensitivity=None)]
    found = spent(clear, 1e-5)
    assert all(s.epsilon == [math.inf] for s in found)
    assert over_rounds(clear, [s.last for s in found], 1e-5) == []
    assert figure([("x", {1: math.inf})], "t", "budget-x") is None and spent([], 1e-5) == []


def folder(tmp_path: Path, releases: list[Release]) -> Path:
    (tmp_path / "config.yaml").write_text("federation: {dataset: digits}\nmethod: fedavg\ndelta: 1.0e-6\n")
    (tmp_path / "ledger.jsonl").write_text("".join(to_line(r) + "\n" for r in releases))
    return tmp_path


def test_the_command_prints_a_run_and_a_plan_and_draws(tmp_path: Path) -> None:
    run, svg = folder(tmp_path, ledger()), tmp_path / "curve.svg"
    done = CliRunner().invoke(app, ["budget", str(run), "--figure", str(svg)])
    assert done.exit_code == 0, done.output
    assert "at delta 1e-6" in done.output and svg.read_bytes().startswith(b"<?xml")
    planned = CliRunner().invoke(app, ["budget", "--epsilon", "1", "--rounds", "40"])
    assert planned.exit_code == 0 and "23.6" in planned.output
    neither = CliRunner().invoke(app, ["budget"])
    assert neither.exit_code == 2 and "--epsilon, one of them" in neither.output


def test_beside_what_is_in_clear_the_noised_releases_are_shown_alone(tmp_path: Path) -> None:
    clear = release(mechanism="none", sender="client/*", kind="num_examples", observers=ALL, sensitivity=None)
    text = spending(folder(tmp_path, [*ledger(), clear]), None)
    spoiled, alone = text.rows[0], text.rows[3]
    assert spoiled[-1].startswith("no bound: num_examples") and alone[0] == "server, noised releases alone"
    assert alone[4:] == spending(folder(tmp_path, ledger()), None).rows[0][4:] and text.drawn is not None


def test_a_run_without_releases_says_so_and_has_no_figure(tmp_path: Path) -> None:
    text = spending(folder(tmp_path, []), None)
    assert "ledger is empty" in text.lines[0]
    with pytest.raises(UserError, match="no curve"):
        text.draw(tmp_path / "x.svg")
    assert plan(1.0, 1e-5, 3, 1.0, "poisson", 1, False).drawn is not None
