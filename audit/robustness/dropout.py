"""Client dropout: runs in which clients do not answer, and what their metrics come to.

Runs of one seed share data, first model and batches. An empty round is skipped, and counts as a round.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.attacks import stats
from fedaudit.audit.case.metrics import summary
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.robustness.plan import keep_settings
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.fl.availability.bernoulli import Bernoulli, Leaving, Persistent
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.reports.absence import Absence, Beside, Curve, Difference, Return
from fedaudit.reports.robustness import NotRun

REFERENCE = "fedavg"
LAST = 5  # rounds that a result is the mean of
LEFT, AGAIN = 0.1, 0.9  # of a class's recall: lost below the first, regained from the second on

History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class DropoutRun:
    """One run: clients answer with probability `p`, drawn anew every `s` rounds; `holders`, if any, leave."""

    method: str
    seed: int
    p: float = 1.0
    s: int = 1
    holders: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        case = "leaving" if self.holders else f"p{self.p:g}-s{self.s}"
        return f"{self.method}/{case}/seed-{self.seed}"


def list_methods(absence: Matrix, method: PluginSpec) -> dict[str, AttackSpec]:
    """Those of the config by label, and fedavg with its own settings where it is not among them."""
    own = (AttackSpec(name=method.name, settings=method.settings),)
    methods = {spec.id or spec.fit_id: spec for spec in absence.methods or own}
    return {REFERENCE: methods.pop(REFERENCE, AttackSpec(name=REFERENCE)), **methods}


def list_cases(absence: Matrix) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Axis -> (x, what of a run it sets); everybody answers at the end of each axis that has such a run.

    Raises UserError for clients that answer in another way than is compared.
    """
    answering, persistence = {1.0}, dict[int, float]()
    for i, made in enumerate(_read_availabilities(absence)):
        if isinstance(made, Persistent):
            persistence[made.config.period] = made.config.p
        elif type(made) is Bernoulli:
            answering.add(made.config.p)
        elif not isinstance(made, Leaving):
            raise UserError(
                f"matrix.availabilities[{i}] is {made.title}, and nobody is malicious",
                hint="without adversaries bernoulli (by p), persistent (by period) and leaving are compared",
                key=f"matrix.availabilities[{i}]",
            )
    if len(set(persistence.values())) > 1:
        raise UserError(
            "matrix.availabilities has persistent clients of several p",
            hint="they are compared by their period: give all of them one p",
            key="matrix.availabilities",
        )
    return {
        "answering": [(p, {"p": p}) for p in sorted(answering)],
        "persistence": [(float(s), {"p": p, "s": s}) for s, p in sorted(persistence.items())],
    }


def find_leaving(absence: Matrix) -> Leaving | None:
    """Who leaves and returns; None where nobody does. Raises UserError for several, or of no class."""
    found = [made for made in _read_availabilities(absence) if isinstance(made, Leaving)]
    if len(found) > 1:
        raise UserError(
            "matrix.availabilities has leaving more than once",
            hint="without adversaries one class's holders leave: run another audit for another class",
            key="matrix.availabilities",
        )
    if found and found[0].config.label is None:
        raise UserError(
            "matrix.availabilities: leaving without a label",
            hint="of the class whose holders leave, as in {name: leaving, label: 9, leave: 8, back: 15}",
            key="matrix.availabilities",
        )
    return next(iter(found), None)


def _read_availabilities(absence: Matrix) -> list[Availability]:
    return [
        configure(catalog.load("availability", s.name), s.settings, f"matrix.availabilities[{i}]")
        for i, s in enumerate(absence.availabilities)
    ]


def plan_dropout(
    absence: Matrix, method: PluginSpec, holders: Mapping[int, tuple[int, ...]]
) -> dict[DropoutRun, dict[str, Any]]:
    """Every run, everybody's answers first; `holders` are the clients that leave, by seed (`find_holders`)."""
    each = [changes for along in list_cases(absence).values() for _, changes in along]
    leaving = find_leaving(absence)
    runs: dict[DropoutRun, dict[str, Any]] = {}
    for seed, (label, spec) in itertools.product(absence.seeds, list_methods(absence, method).items()):
        own = {"method": keep_settings(method, spec)}
        for changes in each:
            place = DropoutRun(label, seed, **changes)
            availability = {"name": "persistent", "p": place.p, "period": place.s}
            runs[place] = _make_overrides(place, availability) | own
        if leaving is not None:
            place = DropoutRun(label, seed, holders=holders[seed])
            who = {"p": leaving.config.p, "clients": list(place.holders)}
            period = {"leave": leaving.config.leave, "back": leaving.config.back}
            availability = {"name": "leaving", **who, **period}
            runs[place] = _make_overrides(place, availability) | own
    return runs


def _make_overrides(place: DropoutRun, availability: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": place.seed,
        "federation.availability": availability,
        "federation.empty_round": "skip",
        "attacks": [],
        "variants": [],
        "matrix": None,
        "record": "model",
        "evaluate_every": 1,
    }


def find_holders(config: SimulatedConfig) -> dict[int, tuple[int, ...]]:
    """Seed -> clients with an example of the class whose holders leave; empty where nobody leaves.

    Raises UserError where they cannot leave.
    """
    absence = config.absence
    if absence is None or find_leaving(absence) is None:
        return {}
    [spec] = [s for s in absence.availabilities if s.name == "leaving"]
    changes = {"matrix": None, "federation.availability": {"name": spec.name, **spec.settings}}
    holders = {}
    for seed in absence.seeds:
        changed = overridden(config, {"seed": seed, **changes}, where=f"matrix, seed {seed}")
        case = SimulatedCase(changed)
        leaving = case.participation.availability
        assert isinstance(leaving, Leaving)
        if case.training is not None and not 0 < leaving.config.leave < case.training.rounds:
            raise UserError(
                f"matrix.availabilities: clients leave in round {leaving.config.leave} of "
                f"{case.training.rounds}, and what a class loses is seen from a round with them to one without",
                hint="rounds are numbered from 0: let them leave in round 1 or later, and before the last ends",
                key="matrix.availabilities",
            )
        holders[seed] = leaving.config.clients
    return holders


def measure_dropout(
    absence: Matrix, histories: Mapping[DropoutRun, History], classes: Sequence[str], not_run: Sequence[NotRun]
) -> Absence:
    """Curves, comparisons and returns of what came to an end; a run counts where every seed did.

    `classes` are the names of all classes; they are read where the holders of one leave.
    """
    seeds = list(absence.seeds)
    result = Absence(seeds=seeds, not_run=list(not_run))

    def measure_seeds(method: str, changes: Mapping[str, Any]) -> list[dict[str, float]]:
        """Measures of each seed; empty where one is missing."""
        places = [DropoutRun(method, seed, **changes) for seed in seeds]
        return [_measure(histories[p]) for p in places] if all(p in histories for p in places) else []

    methods = dict.fromkeys(p.method for p in histories)
    for method, (axis, cases) in itertools.product(methods, list_cases(absence).items()):
        points = [(x, measured) for x, changes in cases if (measured := measure_seeds(method, changes))]
        if not points:
            continue
        result.curves += [
            Curve(
                method=method,
                axis=axis,
                measure=name,
                x=[x for x, _ in points],
                values=[[seed[name] for seed in measured] for _, measured in points],
            )
            for name in points[0][1][0]
        ]
        complete = measure_seeds(method, {})
        result.beside += [
            _compare(method, axis, x, measured, complete, measure_seeds(REFERENCE, changes))
            for x, changes in cases
            if changes != {"p": 1.0} and complete and (measured := measure_seeds(method, changes))
        ]
    leaving = find_leaving(absence)
    for method in methods:
        away = {p.seed: p for p in histories if p.method == method and p.holders}
        if leaving and away.keys() == set(seeds):
            runs = {away[seed]: histories[away[seed]] for seed in seeds}
            result.returns.append(_measure_leaving(leaving.config, method, classes, runs))
    return result


def _measure(history: History) -> dict[str, float]:
    """Of one run, by the names of fedaudit.reports.absence.MEASURES."""
    metrics = summary(history)
    last = [r for r in history if r.get("accuracy") is not None][-LAST:]
    return {
        "accuracy": statistics.fmean(r["accuracy"] for r in last),
        "worst_class": min(statistics.fmean(c) for c in zip(*(r["class_accuracy"] for r in last), strict=True)),
        "class_std": metrics["class_std"],
        "round_drop": -metrics["avg_drop"],
    }


def _compare(
    method: str,
    axis: str,
    x: float,
    measured: Sequence[Mapping[str, float]],
    complete: Sequence[Mapping[str, float]],
    reference: Sequence[Mapping[str, float]],
) -> Beside:
    """Measures of each seed beside the same method with every client there, and beside the reference."""
    own, without_dropout, others = (
        [seed["accuracy"] for seed in seeds] for seeds in (measured, complete, reference)
    )
    return Beside(
        method=method,
        axis=axis,
        x=x,
        accuracy=statistics.fmean(own),
        drop=_compare_seeds(without_dropout, own),
        over_fedavg=_compare_seeds(own, others) if others and method != REFERENCE else None,
    )


def _compare_seeds(first: Sequence[float], second: Sequence[float]) -> Difference:
    values = [a - b for a, b in zip(first, second, strict=True)]
    interval = stats.t_interval(values) if len(values) > 1 else None
    if interval:
        interval = max(-1.0, interval[0]), min(1.0, interval[1])
    return Difference(value=statistics.fmean(values), interval=interval, seeds=len(values))


def _measure_leaving(
    leaving: Leaving.Config, method: str, classes: Sequence[str], histories: Mapping[DropoutRun, History]
) -> Return:
    """What a method's runs with leaving holders come to, one of each seed."""
    label = leaving.label or 0
    runs = [[float(r["class_accuracy"][label]) for r in history] for history in histories.values()]
    before = [statistics.fmean(r[: leaving.leave][-LAST:]) for r in runs]
    end = [statistics.fmean(r[leaving.leave : leaving.back][-LAST:]) for r in runs]  # some never return
    return Return(
        method=method,
        label=classes[label],
        holders=[list(place.holders) for place in histories],
        leave=leaving.leave,
        back=leaving.back,
        recall=runs,
        before=before,
        lost=[
            _count_rounds(r[leaving.leave : leaving.back], lambda x, b=b: x <= LEFT * b)
            for r, b in zip(runs, before, strict=True)
        ],
        regained=[
            _count_rounds(r[leaving.back :], lambda x, b=b: x >= AGAIN * b)
            for r, b in zip(runs, before, strict=True)
        ],
        drop=_compare_seeds(before, end),
    )


def _count_rounds(values: Sequence[float], holds: Any) -> int | None:
    """Rounds until it holds, from 1; None where it never does."""
    return next((i + 1 for i, x in enumerate(values) if holds(x)), None)
