"""Differential privacy from Python: the noise that keeps a budget, and what a ledger of releases costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

from fedaudit.audit.accounting.budget import SpentBudget, budgets
from fedaudit.audit.accounting.planner import How, NoiseQuestion, PlannedNoise, answers, bound_plan
from fedaudit.audit.accounting.spending import figure
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.ledger import Release
from fedaudit.fl.ledger import read as read_ledger
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.result import Figure
from fedaudit.tables import Row, Table


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The noise towards one kind of observer."""

    observer: str
    noise_multiplier: float  # standard deviation of each coordinate / norm that a release is clipped to
    bound: str  # in words; planned, since nothing ran
    counted: str  # what is added up
    curve: dict[int, float]  # rounds -> epsilon at that noise


def calibrate(
    epsilon: float,
    *,
    delta: float = 1e-5,
    rounds: int = 100,
    clients: int | None = None,
    sampled: int | None = None,
    rate: float = 1.0,
    sampling: How = "poisson",
    per_round: int = 1,
    replace: bool = False,
    contributors: int = 1,
    colluders: int = 1,
) -> Table[Plan]:
    """Find the least Gaussian noise that keeps (epsilon, delta) over all rounds, per client.

    Args:
        epsilon: The budget of one client over all rounds, above 0.
        delta: Between 0 and 1.
        rounds: How many rounds the clients train.
        clients: Of the federation.
        sampled: Of them in a round.
        rate: Probability that a client takes part in a round, where `clients` and `sampled` are not given.
        sampling: "poisson", each client by a coin of its own, or "fixed", a fixed number without replacement.
        per_round: Noised releases of one client in a round.
        replace: Count neighbours that differ in a replaced client, not in a removed one.
        contributors: Clients that make the noise together, under secure aggregation.
        colluders: Of them, who put together what they know.

    Returns:
        One row a kind of observer: who sees which clients take part, and who does not.

    Raises:
        UserError: Where no such noise exists or a value is out of range.

    Examples:
        >>> import fedaudit as fa
        >>> plan = fa.calibrate(epsilon=8, rounds=50)
        >>> round(plan[0].noise_multiplier, 2)
        4.25
    """
    question = NoiseQuestion(
        epsilon=epsilon,
        delta=delta,
        rounds=rounds,
        rate=rate,
        how=sampling,
        per_round=per_round,
        replace=replace,
        clients=clients,
        sampled=sampled,
        contributors=contributors,
        colluders=colluders,
    )
    plans = [_make_plan(question, answer) for answer in answers(question)]
    return Table(plans, _describe_plan, name=lambda p: p.observer, draw=_draw_plans)


def account(ledger: str | Path | Iterable[Release], *, delta: float = 1e-5) -> Table[SpentBudget]:
    """Add up what a ledger of releases costs each observer, by every accountant, if the ledger is true.

    Nothing is verified here: `fedaudit.run` asks the run itself.

    Args:
        ledger: A file ledger.jsonl, or releases.
        delta: Between 0 and 1.

    Raises:
        UserError: For a damaged ledger, with the line, and for what is no ledger or no delta.

    Examples:
        >>> import fedaudit as fa
        >>> spent = fa.account("runs/quickstart/ledger.jsonl")
        >>> "server" in {budget.observer for budget in spent}
        True
    """
    releases = read_ledger(Path(ledger)) if isinstance(ledger, str | Path) else list(ledger)
    if other := [type(r).__name__ for r in releases if not isinstance(r, Release)]:
        raise UserError(f"a ledger holds releases, got {other[0]}", hint="name a file ledger.jsonl of a run")
    if isinstance(delta, bool) or not isinstance(delta, Real):
        raise UserError(f"delta must be a number, got {delta!r}", hint="use 1e-5")
    return Table(budgets(releases, [PluginSpec(name="auto")], delta), lambda b: b.model_dump(mode="json"))


def _make_plan(question: NoiseQuestion, answer: PlannedNoise) -> Plan:
    bound = bound_plan(question, answer)[question.rounds]
    return Plan(
        observer=answer.observer,
        noise_multiplier=answer.noise,
        bound=label_bound(bound),
        counted=answer.counted,
        curve=answer.curve,
    )


def _describe_plan(plan: Plan) -> Row:
    return {
        "observer": plan.observer,
        "noise_multiplier": plan.noise_multiplier,
        "bound": plan.bound,
        "counted": plan.counted,
    }


def _draw_plans(plans: Iterable[Plan]) -> list[Figure]:
    drawn = figure([(p.observer, p.curve) for p in plans], "Privacy spent over rounds", "budget-plan")
    return [drawn] if drawn else []
