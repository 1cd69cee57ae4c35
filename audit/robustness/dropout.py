"""Client dropout: runs in which clients do not answer, what their metrics come to, and the findings about it.

Runs of one seed share data, first model and batches. An empty round is skipped, and counts as a round. Graded is
the lower end of Student's interval over seeds; one seed has none, and nothing of it is graded.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.attacks import stats
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.robustness.plan import keep_settings
from fedaudit.audit.settings.absence import DropoutSettings, LeavingSettings
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.audit.verdict.metrics import summary
from fedaudit.fl.data.population import Population
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt
from fedaudit.reports.absence import AXES, Absence, Beside, Curve, Difference, Return
from fedaudit.reports.result import Outcome
from fedaudit.reports.robustness import NotRun

REFERENCE = "fedavg"
LAST = 5  # rounds that a result is the mean of
P_OF_PERSISTENCE = 0.5
LEFT, AGAIN = 0.1, 0.9  # of a class's recall: lost below the first, regained from the second on

History = Sequence[Mapping[str, Any]]

LITTLE = 0.05  # a loss surely below this is called none; the policy grades what is surely above
LIMIT = "What other rounds, data or patterns of absence would cost: clients here are absent whatever they hold."


@dataclass(frozen=True)
class DropoutRun:
    """One run: clients answer with probability `p`, drawn anew every `s` rounds; `holders`, if any, leave."""

    method: str
    seed: int
    p: float = 1.0
    s: int = 1
    reply_loss: float = 0.0
    holders: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        case = "leaving" if self.holders else f"p{self.p:g}-s{self.s}-lost{self.reply_loss:g}"
        return f"{self.method}/{case}/seed-{self.seed}"


def list_methods(absence: DropoutSettings, method: PluginSpec) -> dict[str, AttackSpec]:
    """Those of the config by label, and fedavg with its own settings where it is not among them."""
    own = (AttackSpec(name=method.name, settings=method.settings),)
    listed = absence.methods or own
    found = {spec.id or spec.fit_id: spec for spec in listed}
    return {REFERENCE: found.pop(REFERENCE, AttackSpec(name=REFERENCE)), **found}


def list_cases(absence: DropoutSettings) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Axis -> (x, what of a run it sets); everybody answers at the end of each axis that has such a run."""
    return {
        "answering": [(p, {"p": p}) for p in sorted({*absence.answering, 1.0})],
        "persistence": [(float(s), {"p": P_OF_PERSISTENCE, "s": s}) for s in sorted(set(absence.persistence))],
        "lost": [(q, {"reply_loss": q}) for q in sorted({0.0, *absence.lost})] if absence.lost else [],
    }


def plan_dropout(
    absence: DropoutSettings, method: PluginSpec, holders: Mapping[int, tuple[int, ...]]
) -> dict[DropoutRun, dict[str, Any]]:
    """Every run, everybody's answers first; `holders` are the clients that leave, by seed (`find_holders`)."""
    each = [changes for along in list_cases(absence).values() for _, changes in along]
    found: dict[DropoutRun, dict[str, Any]] = {}
    for seed, (label, spec) in itertools.product(absence.seeds, list_methods(absence, method).items()):
        own = {"method": keep_settings(method, spec)}
        for changes in each:
            place = DropoutRun(label, seed, **changes)
            availability = {"name": "persistent", "p": place.p, "period": place.s}
            found[place] = _make_overrides(place, availability) | own
        if absence.leaving:
            place = DropoutRun(label, seed, holders=holders[seed])
            holders_leave = {
                "clients": list(place.holders),
                "leave": absence.leaving.leave,
                "back": absence.leaving.back,
            }
            found[place] = _make_overrides(place, {"name": "leaving", "p": 1.0, **holders_leave}) | own
    return found


def _make_overrides(place: DropoutRun, availability: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": place.seed,
        "federation.availability": availability,
        "federation.empty_round": "skip",
        "federation.reply_loss": place.reply_loss,
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
    made = Absence(seeds=seeds, not_run=list(not_run))

    def by_seed(method: str, changes: Mapping[str, Any]) -> list[dict[str, float]]:
        """Measures of each seed; empty where one is missing."""
        places = [DropoutRun(method, seed, **changes) for seed in seeds]
        return [_measure(histories[p]) for p in places] if all(p in histories for p in places) else []

    methods = dict.fromkeys(p.method for p in histories)
    for method, (axis, along) in itertools.product(methods, list_cases(absence).items()):
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
            _compare(method, axis, x, found, whole, by_seed(REFERENCE, changes))
            for x, changes in along
            if changes not in ({"p": 1.0}, {"reply_loss": 0.0}) and whole and (found := by_seed(method, changes))
        ]
    leaving = absence.leaving
    for method in methods:
        away = {p.seed: p for p in histories if p.method == method and p.holders}
        if leaving and away.keys() == set(seeds):
            runs = {away[seed]: histories[away[seed]] for seed in seeds}
            made.returns.append(_measure_leaving(leaving, method, classes[leaving.label], runs))
    return made


def _measure(history: History) -> dict[str, float]:
    """Of one run, by the names of fedaudit.reports.absence.MEASURES."""
    found = summary(history)
    last = [r for r in history if r.get("accuracy") is not None][-LAST:]
    return {
        "accuracy": statistics.fmean(r["accuracy"] for r in last),
        "worst_class": min(statistics.fmean(c) for c in zip(*(r["class_accuracy"] for r in last), strict=True)),
        "class_std": found["class_std"],
        "round_drop": -found["avg_drop"],
    }


def _compare(
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
        drop=_compare_seeds(all_there, mine),
        over_fedavg=_compare_seeds(mine, other) if other and method != REFERENCE else None,
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


@dataclass(frozen=True)
class Resilience(Subject):
    """One method along one axis, at the place where it loses most."""

    method: str
    axis: str
    places: Sequence[Beside]

    @property
    def worst(self) -> Beside:
        return max(self.places, key=lambda b: b.drop.value)

    @property
    def found(self) -> Sequence[Fact]:
        return _take_lower_end("absence_drop", self.worst.drop)

    @property
    def not_gradable(self) -> Verdict | None:
        return _explain_open(self.worst.drop)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        worst = self.worst
        lost = any(_is_loss(b.drop) for b in self.places)
        loses = "loses accuracy" if lost else "not shown to lose accuracy"
        beside = " ".join(describe_comparison(b) for b in self.places if b.over_fedavg)
        return {
            "id": f"absence-{self.method}-{self.axis}",
            "title": f"{self.method}: {loses} where clients are absent{_name_outcome(verdict, lost)}",
            "source": "robustness",
            "method": f"Absence, {AXES[self.axis]}",
            "summary": f"With {_describe_axis(worst)} accuracy is {fmt.percent(worst.accuracy)}, "
            f"{_format(worst.drop)} points less than with everybody there "
            f"({fmt.plural(worst.drop.seeds, 'seed')}). {beside}".strip(),
            "does_not_show": LIMIT,
            "remedy": "Ask more clients a round, train longer, or choose the method that keeps most here.",
        }


@dataclass(frozen=True)
class Forgetting(Subject):
    """The only holders of a class leave and return."""

    found_return: Return

    @property
    def found(self) -> Sequence[Fact]:
        return _take_lower_end("class_lost", self.found_return.drop)

    @property
    def not_gradable(self) -> Verdict | None:
        return _explain_open(self.found_return.drop)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        r = self.found_return
        forgotten = _is_loss(r.drop)
        forgets = "forgets" if forgotten else "not shown to forget"
        return {
            "id": f"absence-{r.method}-leaving",
            "title": f"{r.method}: {forgets} class {r.label} when its only holders leave"
            + _name_outcome(verdict, forgotten),
            "source": "robustness",
            "method": "Absence, holders of a class leave and return",
            "summary": f"The holders of {r.label} ({', '.join(str(len(h)) for h in r.holders)} clients) "
            f"are away from round {r.leave} to {r.back - 1}. Of its images {_format(r.drop)} points fewer are "
            f"recognised then. Rounds until a tenth is left: {list_rounds(r.lost)}; after the return until "
            f"nine tenths are there again: {list_rounds(r.regained)} ({fmt.plural(len(r.lost), 'seed')}).",
            "does_not_show": LIMIT,
            "remedy": "Keep what such clients sent (prototypes, an older model) while they are away, or "
            "release no model while a class has no holder.",
        }


def make_dropout_subjects(absence: Absence) -> list[Subject]:
    """One a method and axis, then one a method whose holders left."""
    pairs = dict.fromkeys((b.method, b.axis) for b in absence.beside)
    return [
        *(
            Resilience(method, axis, [b for b in absence.beside if (b.method, b.axis) == (method, axis)])
            for method, axis in pairs
        ),
        *map(Forgetting, absence.returns),
    ]


def describe_comparison(b: Beside) -> str:
    """How a method compares with fedavg at one place, as a sentence."""
    assert b.over_fedavg is not None
    low, high = b.over_fedavg.interval or (-1.0, 1.0)
    verdict = "more than" if low > 0 else "less than" if high < 0 else "no different from"
    return f"With {_describe_axis(b)} it keeps {_format(b.over_fedavg)} points beside fedavg: {verdict} it."


def list_rounds(rounds: Sequence[int | None]) -> str:
    return ", ".join("never" if n is None else str(n) for n in rounds)


def _describe_axis(b: Beside) -> str:
    return {
        "answering": f"p = {b.x:g}",
        "persistence": f"s = {b.x:g}",
        "lost": f"{100 * b.x:g} % of replies lost",
    }[b.axis]


def _is_loss(d: Difference) -> bool:
    return d.interval is not None and d.interval[0] > 0


def _name_outcome(verdict: Verdict, lost: bool) -> str:
    """For a title: something is lost for sure, and the policy's verdict is not about that."""
    if not lost or verdict.outcome is Outcome.DEMONSTRATED:
        return ""
    return ", how much is open" if verdict.outcome is Outcome.INCONCLUSIVE else ", less than the policy grades"


def _take_lower_end(measure: str, d: Difference) -> list[Fact]:
    return [Fact(measure=measure, value=d.interval[0])] if d.interval else []


def _explain_open(d: Difference) -> Verdict | None:
    """Inconclusive where the seeds leave open whether anything, or much, is lost."""
    if d.interval is None:
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason="One seed has no interval over seeds: run three.")
    low, high = d.interval
    if low >= LITTLE or high < LITTLE:
        return None
    reason = f"The seeds disagree: the loss may be anything from {100 * low:.1f} to {100 * high:.1f} points."
    return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)


def _format(d: Difference) -> str:
    return fmt.points(d.value, d.interval)
