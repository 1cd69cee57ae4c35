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
from fedaudit.audit.settings.absence import DropoutSettings, LeavingSettings
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.fl.data.population import Population
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.absence import Absence, Beside, Curve, Difference, Return
from fedaudit.reports.robustness import NotRun

REFERENCE = "fedavg"
LAST = 5  # rounds that a result is the mean of
P_OF_PERSISTENCE = 0.5
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


def list_methods(absence: DropoutSettings, method: PluginSpec) -> dict[str, AttackSpec]:
    """Those of the config by label, and fedavg with its own settings where it is not among them."""
    own = (AttackSpec(name=method.name, settings=method.settings),)
    methods = {spec.id or spec.fit_id: spec for spec in absence.methods or own}
    return {REFERENCE: methods.pop(REFERENCE, AttackSpec(name=REFERENCE)), **methods}


def list_cases(absence: DropoutSettings) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Axis -> (x, what of a run it sets); everybody answers at the end of each axis that has such a run."""
    return {
        "answering": [(p, {"p": p}) for p in sorted({*absence.answering, 1.0})],
        "persistence": [(float(s), {"p": P_OF_PERSISTENCE, "s": s}) for s in sorted(set(absence.persistence))],
    }


def plan_dropout(
    absence: DropoutSettings, method: PluginSpec, holders: Mapping[int, tuple[int, ...]]
) -> dict[DropoutRun, dict[str, Any]]:
    """Every run, everybody's answers first; `holders` are the clients that leave, by seed (`find_holders`)."""
    each = [changes for along in list_cases(absence).values() for _, changes in along]
    runs: dict[DropoutRun, dict[str, Any]] = {}
    for seed, (label, spec) in itertools.product(absence.seeds, list_methods(absence, method).items()):
        own = {"method": keep_settings(method, spec)}
        for changes in each:
            place = DropoutRun(label, seed, **changes)
            availability = {"name": "persistent", "p": place.p, "period": place.s}
            runs[place] = _make_overrides(place, availability) | own
        if absence.leaving:
            place = DropoutRun(label, seed, holders=holders[seed])
            period = {"leave": absence.leaving.leave, "back": absence.leaving.back}
            availability = {"name": "leaving", "p": 1.0, "clients": list(place.holders), **period}
            runs[place] = _make_overrides(place, availability) | own
    return runs


def _make_overrides(place: DropoutRun, availability: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": place.seed,
        "federation.availability": availability,
        "federation.empty_round": "skip",
        "attacks": [],
        "variants": [],
        "claims": [],
        "matrix": None,
        "absence": None,
        "record": {"rounds": "last", "clients": 0, "kinds": ["global_model"]},
        "evaluate_every": 1,
    }


def find_holders(config: SimulatedConfig) -> dict[int, tuple[int, ...]]:
    """Seed -> clients with an example of the class whose holders leave; empty where nobody leaves.

    Raises UserError where they cannot leave.
    """
    if config.absence is None or (leaving := config.absence.leaving) is None:
        return {}
    holders = {}
    for seed in config.absence.seeds:
        changed = overridden(config, {"seed": seed, "absence": None}, where=f"absence, seed {seed}")
        holders[seed] = _select_holders(SimulatedCase(changed).population, leaving, seed)
    return holders


def _select_holders(population: Population, leaving: LeavingSettings, seed: int) -> tuple[int, ...]:
    counts = population.counts
    clients, classes = counts.shape
    if leaving.label >= classes:
        raise UserError(
            f"absence.leaving.label must be below {classes}, the number of classes, got {leaving.label}",
            hint="classes are numbered from 0",
            key="absence.leaving.label",
        )
    holders = tuple(int(k) for k in (counts[:, leaving.label] > 0).nonzero()[0])
    if not 0 < len(holders) <= clients / 2:
        raise UserError(
            f"{len(holders)} of {clients} clients hold class {leaving.label} with seed {seed}; a class's "
            "only holders leave where they are at most half of the clients",
            hint="choose a partition by classes, such as {name: n_class_exhaustive, classes_per_client: 2}",
            key="absence.leaving",
        )
    return holders


def measure_dropout(
    absence: DropoutSettings,
    histories: Mapping[DropoutRun, History],
    classes: Sequence[str],
    not_run: Sequence[NotRun],
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
    leaving = absence.leaving
    for method in methods:
        away = {p.seed: p for p in histories if p.method == method and p.holders}
        if leaving and away.keys() == set(seeds):
            runs = {away[seed]: histories[away[seed]] for seed in seeds}
            result.returns.append(_measure_leaving(leaving, method, classes[leaving.label], runs))
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
    leaving: LeavingSettings, method: str, label: str, histories: Mapping[DropoutRun, History]
) -> Return:
    """What a method's runs with leaving holders come to, one of each seed."""
    runs = [[float(r["class_accuracy"][leaving.label]) for r in history] for history in histories.values()]
    before = [statistics.fmean(r[max(0, leaving.leave - LAST) : leaving.leave]) for r in runs]
    end = [statistics.fmean(r[max(leaving.leave, leaving.back - LAST) : leaving.back]) for r in runs]
    return Return(
        method=method,
        label=label,
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
