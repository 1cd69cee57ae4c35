"""Away: runs in which clients do not answer, as changes of a config, and what their metrics come to.

Runs of one seed share data, first model and batches. An empty round is skipped, and counts as a round.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.attacks import stats
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.robustness.plan import laid_over
from fedaudit.audit.settings.absence import Leaving
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.audit.verdict.metrics import summary
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.absence import Absence, Beside, Curve, Difference, Return
from fedaudit.reports.robustness import NotRun

REFERENCE = "fedavg"
LAST = 5  # rounds that a result is the mean of
P_OF_PERSISTENCE = 0.5
LEFT, AGAIN = 0.1, 0.9  # of a class's recall: lost below the first, regained from the second on

History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Place:
    """One run; holders leave where there are some."""

    method: str
    seed: int
    p: float = 1.0
    s: int = 1
    lost: float = 0.0
    holders: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        case = "leaving" if self.holders else f"p{self.p:g}-s{self.s}-lost{self.lost:g}"
        return f"{self.method}/{case}/seed-{self.seed}"


def methods(config: Config) -> dict[str, AttackSpec]:
    """Those of the config by label, and fedavg with its own settings where it is not among them."""
    assert config.absence is not None
    own = (AttackSpec(name=config.method.name, settings=config.method.settings),)
    listed = config.absence.methods or own
    found = {spec.id or spec.fit_id: spec for spec in listed}
    return {REFERENCE: found.pop(REFERENCE, AttackSpec(name=REFERENCE)), **found}


def cases(config: Config) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Axis -> (x, what of a Place it sets); everybody answers at the end of each axis that has such a place."""
    absence = config.absence
    assert absence is not None
    return {
        "answering": [(p, {"p": p}) for p in sorted({*absence.answering, 1.0})],
        "persistence": [(float(s), {"p": P_OF_PERSISTENCE, "s": s}) for s in sorted(set(absence.persistence))],
        "lost": [(q, {"lost": q}) for q in sorted({0.0, *absence.lost})] if absence.lost else [],
    }


def overrides(config: Config) -> dict[Place, dict[str, Any]]:
    """Every run, everybody's answers first; raises UserError where a class's holders cannot leave."""
    absence = config.absence
    assert absence is not None
    each = [changes for along in cases(config).values() for _, changes in along]
    found: dict[Place, dict[str, Any]] = {}
    for seed, (label, spec) in itertools.product(absence.seeds, methods(config).items()):
        method = {"method": laid_over(config.method, spec)}
        for changes in each:
            place = Place(label, seed, **changes)
            availability = {"name": "persistent", "p": place.p, "period": place.s}
            found[place] = _changes(place, availability) | method
        if absence.leaving:
            place = Place(label, seed, holders=_holders(config, absence.leaving, seed))
            away = {"clients": list(place.holders), "leave": absence.leaving.leave, "back": absence.leaving.back}
            found[place] = _changes(place, {"name": "leaving", "p": 1.0, **away}) | method
    return found


def _changes(place: Place, availability: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": place.seed,
        "federation.availability": availability,
        "federation.empty_round": "skip",
        "federation.reply_loss": place.lost,
        "attacks": [],
        "variants": [],
        "claims": [],
        "matrix": None,
        "absence": None,
        "record": {"rounds": "last", "clients": 0, "kinds": ["global_model"]},
        "evaluate_every": 1,
    }


def _holders(config: Config, leaving: Leaving, seed: int) -> tuple[int, ...]:
    """Clients with an example of the class, of this seed."""
    case = SimulatedCase(overridden(config, {"seed": seed, "absence": None}, where=f"absence, seed {seed}"))
    if leaving.label >= len(case.data.classes):
        raise UserError(
            f"absence.leaving.label must be below {len(case.data.classes)}, the number of classes, "
            f"got {leaving.label}",
            hint="classes are numbered from 0",
            key="absence.leaving.label",
        )
    counts = case.population.counts
    holders = tuple(int(k) for k in (counts[:, leaving.label] > 0).nonzero()[0])
    if not 0 < len(holders) <= case.clients / 2:
        raise UserError(
            f"{len(holders)} of {case.clients} clients hold class {leaving.label} with seed {seed}; a class's "
            "only holders leave where they are at most half of the clients",
            hint="choose a partition by classes, such as {name: n_class_exhaustive, classes_per_client: 2}",
            key="absence.leaving",
        )
    return holders


def table(config: Config, histories: Mapping[Place, History], not_run: Sequence[NotRun]) -> Absence:
    """Curves, comparisons and returns of what came to an end; a place counts where every seed did."""
    assert config.absence is not None
    seeds = list(config.absence.seeds)
    made = Absence(seeds=seeds, not_run=list(not_run))

    def by_seed(method: str, changes: Mapping[str, Any]) -> list[dict[str, float]]:
        """Measures of each seed; empty where one is missing."""
        places = [Place(method, seed, **changes) for seed in seeds]
        return [_measures(histories[p]) for p in places] if all(p in histories for p in places) else []

    for method, (axis, along) in itertools.product(methods(config), cases(config).items()):
        there = [(x, found) for x, changes in along if (found := by_seed(method, changes))]
        if not there:
            continue
        made.curves += [
            Curve(
                method=method,
                axis=axis,
                measure=name,
                x=[x for x, _ in there],
                values=[[one[name] for one in found] for _, found in there],
            )
            for name in there[0][1][0]
        ]
        whole = by_seed(method, {})
        made.beside += [
            _beside(method, axis, x, found, whole, by_seed(REFERENCE, changes))
            for x, changes in along
            if changes != {"p": 1.0}
            and changes != {"lost": 0.0}
            and whole
            and (found := by_seed(method, changes))
        ]
    made.returns = [_return(config, m, histories, seeds) for m in methods(config) if _whole(m, histories, seeds)]
    return made


def _measures(history: History) -> dict[str, float]:
    """Of one run, by the names of fedaudit.reports.absence.MEASURES."""
    found = summary(history)
    last = [r for r in history if r.get("accuracy") is not None][-LAST:]
    return {
        "accuracy": statistics.fmean(r["accuracy"] for r in last),
        "worst_class": min(statistics.fmean(c) for c in zip(*(r["class_accuracy"] for r in last), strict=True)),
        "class_std": found["class_std"],
        "round_drop": -found["avg_drop"],
    }


def _beside(
    method: str,
    axis: str,
    x: float,
    found: Sequence[Mapping[str, float]],
    whole: Sequence[Mapping[str, float]],
    reference: Sequence[Mapping[str, float]],
) -> Beside:
    mine, all_there, other = ([one["accuracy"] for one in of] for of in (found, whole, reference))
    return Beside(
        method=method,
        axis=axis,
        x=x,
        accuracy=statistics.fmean(mine),
        drop=_difference(all_there, mine),
        over_fedavg=_difference(mine, other) if other and method != REFERENCE else None,
    )


def _difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    values = [a - b for a, b in zip(first, second, strict=True)]
    interval = stats.t_interval(values) if len(values) > 1 else None
    if interval:
        interval = max(-1.0, interval[0]), min(1.0, interval[1])
    return Difference(value=statistics.fmean(values), interval=interval, seeds=len(values))


def _whole(method: str, histories: Mapping[Place, History], seeds: Sequence[int]) -> bool:
    """Whether the run with leaving holders ended, with every seed."""
    return {p.seed for p in histories if p.method == method and p.holders} == set(seeds)


def _return(config: Config, method: str, histories: Mapping[Place, History], seeds: Sequence[int]) -> Return:
    assert config.absence is not None and config.absence.leaving is not None
    leaving = config.absence.leaving
    mine = {p.seed: p for p in histories if p.method == method and p.holders}
    runs = [[float(r["class_accuracy"][leaving.label]) for r in histories[mine[s]]] for s in seeds]
    before = [statistics.fmean(r[max(0, leaving.leave - LAST) : leaving.leave]) for r in runs]
    end = [statistics.fmean(r[max(leaving.leave, leaving.back - LAST) : leaving.back]) for r in runs]
    case = SimulatedCase(config)
    return Return(
        method=method,
        label=str(case.data.classes[leaving.label]),
        holders=[list(mine[s].holders) for s in seeds],
        leave=leaving.leave,
        back=leaving.back,
        recall=runs,
        before=before,
        lost=[
            _first(r[leaving.leave : leaving.back], lambda x, b=b: x <= LEFT * b)
            for r, b in zip(runs, before, strict=True)
        ],
        regained=[
            _first(r[leaving.back :], lambda x, b=b: x >= AGAIN * b) for r, b in zip(runs, before, strict=True)
        ],
        drop=_difference(before, end),
    )


def _first(values: Sequence[float], holds: Any) -> int | None:
    """Rounds until it holds, from 1; None where it never does."""
    return next((i + 1 for i, x in enumerate(values) if holds(x)), None)
