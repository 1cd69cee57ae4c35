"""Table: finished runs of a matrix to its cells, each with what was measured and beside what."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.robustness import measures, poisoned_data
from fedaudit.audit.robustness.certificate import certify
from fedaudit.audit.robustness.finished_runs import FinishedRun, show_moved_prototypes, show_triggers
from fedaudit.audit.robustness.plan import CONTROLS, IDLE, LED, PLANTED, MatrixPlace, ServerRule, describe
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.verdict.taxonomy import sort_of, taxa
from fedaudit.fl.kinds import TRAINED, Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.adversary import Adversary as Attacker
from fedaudit.reports import format as fmt
from fedaudit.reports.robustness import (
    Breakdown,
    Certificate,
    DefenceCost,
    MatrixCell,
    Needs,
    NotRun,
    Robustness,
    TriedAdversary,
)

COUNTS = "count_inflation"

MODELS = (*TRAINED, Kind.MODEL_DELTA, Kind.ADAPTER_DELTA, Kind.NORMALIZED_DELTA, Kind.GRADIENT)
PROTOTYPES = (Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS)

KEPT = 0.9  # of the clean accuracy; below that a rule counts as broken


def tabulate(outcomes: Mapping[MatrixPlace, FinishedRun], not_run: Sequence[NotRun]) -> Robustness:
    """Every measure of every cell; raises UserError where no run came to its end."""
    if not outcomes:
        raise UserError("no run of the matrix came to its end: " + "; ".join(n.reason for n in not_run))
    first = next(iter(outcomes.values()))
    matrix = Robustness(
        clients=first.case.clients,
        chance=float(np.bincount(first.labels).max() / len(first.labels)),
        seeds=sorted({p.seed for p in outcomes}),
        not_run=list(not_run),
    )
    by_rule: dict[tuple[str, str], dict[tuple[str, int], dict[int, MatrixPlace]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for place in outcomes:
        by_rule[place.setting, place.rule.name][place.adversary, place.malicious][place.seed] = place

    def list_runs(column: Mapping[int, MatrixPlace], seeds: Iterable[int]) -> list[FinishedRun]:
        """Those of a column with these seeds; none where one is missing."""
        return [outcomes[column[s]] for s in seeds] if column.keys() >= {*seeds} else []

    for (setting, rule), columns in by_rule.items():
        clean = columns.get(("", 0), {})
        if not clean:
            continue
        place, honest = next(iter(clean.values())), list_runs(clean, clean)
        mean = {} if rule == "mean" else by_rule.get((setting, "mean"), {}).get(("", 0), {})
        matrix.costs.append(_measure_cost(place, honest, list_runs(mean, clean), len(by_rule)))
        _add_data_certificates(matrix, honest, columns.values())
        looks = sum(adversary not in ("", *CONTROLS) for adversary, _ in columns) or 1
        for (adversary, malicious), column in columns.items():
            before = list_runs(clean, column)
            if not before or not adversary:
                continue
            idlers = IDLE + LED * adversary.endswith(LED)
            others = {} if adversary == idlers else columns.get((idlers, malicious), {})
            after, idle = list_runs(column, column), list_runs(others, column)
            cell = _measure_cell([*column.values()], before, after, idle, looks)
            (matrix.planted if adversary == PLANTED else matrix.cells).append(cell)
            spec = next(iter(column.values())).changes["adversary"]
            if adversary not in CONTROLS:
                matrix.certificates += _certify(spec, before, after, cell)
            matrix.adversaries.setdefault(adversary, describe_adversary(spec))
    matrix.bypassed = _list_bypasses(outcomes)
    matrix.needs = list_needs([p.rule for p in outcomes])
    matrix.triggered, matrix.prototypes = show_triggers(outcomes), show_moved_prototypes(outcomes)
    matrix.breakdown, matrix.advice = find_breakdowns(matrix.cells), give_advice(matrix)
    matrix.uncertified = "" if matrix.certificates else first.uncertified
    return matrix


def _measure_cost(
    place: MatrixPlace, runs: Sequence[FinishedRun], mean: Sequence[FinishedRun], looks: int
) -> DefenceCost:
    return DefenceCost(
        setting=place.setting,
        rule=place.rule.name,
        assumed=place.rule.assumed,
        accuracy=float(np.mean([r.accuracy for r in runs])),
        worst_class=float(np.mean([r.worst_class() for r in runs])),
        evidence=measures.measure_costs(mean, runs, looks),
    )


def _measure_cell(
    places: Sequence[MatrixPlace],
    before: Sequence[FinishedRun],
    after: Sequence[FinishedRun],
    idle: Sequence[FinishedRun],
    looks: int,
) -> MatrixCell:
    """What an attack does: runs with it, without it, and with its clients idle, seed by seed."""
    place, rounds = places[0], [run.history for run in after]
    evidence = [
        *measures.measure_drops(before, after, looks, idle),
        *measures.worst_client_drop(before, after, looks),
        *measures.measure_detection(rounds, looks),
        *measures.stealth(rounds),
        *measures.rounds_too_few(rounds),
    ]
    spec = place.changes["adversary"]
    attacker = _make_attacker(spec)
    if isinstance(attacker, Backdoors):
        evidence.append(measures.asr(attacker, before, after, looks))
        evidence += measures.durability(rounds, attacker.config.leaves)
    if spec["name"] == COUNTS:
        evidence.append(measures.changed_by_counts(before, after, looks))
    return MatrixCell(
        setting=place.setting,
        rule=place.rule.name,
        family=place.rule.family,
        assumed=place.rule.assumed,
        adversary=place.adversary,
        title=("planted fault: " if place.adversary == PLANTED else "") + describe(spec),
        malicious=place.malicious,
        accuracy=float(np.mean([r.accuracy for r in after])),
        clean=float(np.mean([r.accuracy for r in before])),
        by_seed=[(a.accuracy, b.accuracy) for a, b in zip(after, before, strict=True)],
        evidence=evidence,
        folders=[f"matrix/{p.folder}" for p in places],
    )


def _certify(
    spec: Mapping[str, Any], before: Sequence[FinishedRun], after: Sequence[FinishedRun], cell: MatrixCell
) -> list[Certificate]:
    """Errors, and a backdoor's success, beside what the ledger lets any attack reach; none without its noise."""
    if any(run.uncertified for run in after):
        return []
    labels = after[0].labels
    scores = {"errors": ([1 - r.accuracy for r in before], [1 - r.accuracy for r in after], len(labels))}
    attacker = _make_attacker(spec)
    if isinstance(attacker, Backdoors):
        others = int((labels != int(attacker.config.target)).sum())
        clean, attacked = ([measures.success(attacker, r) for r in runs] for runs in (before, after))
        scores["attack success"] = (clean, attacked, others)
    words: dict[str, Any] = {
        "setting": cell.setting,
        "rule": cell.rule,
        "title": cell.title,
        "folders": cell.folders,
    }
    return [
        certify(*values, after[0].releases, cell.malicious, score=score, **words)
        for score, values in scores.items()
    ]


def _add_data_certificates(
    matrix: Robustness, honest: Sequence[FinishedRun], columns: Collection[Mapping[int, MatrixPlace]]
) -> None:
    """What poisoned data of the backdoors among `columns` cannot do to one rule, or why that is not known."""
    places = [next(iter(column.values())) for column in columns]
    poisonings: dict[poisoned_data.Poisoning, None] = {}
    for place in places:
        attacker = _make_attacker(place.changes["adversary"]) if place.adversary else None
        if isinstance(attacker, Backdoors):
            poisoning = poisoned_data.Poisoning(
                malicious=place.malicious,
                share=attacker.config.poisoned,
                scale=getattr(attacker.config, "scale", 1.0),
                trigger=attacker.config.trigger,
                target=attacker.config.target,
            )
            poisonings[poisoning] = None
    if not poisonings:
        return
    setting, rule = places[0].setting, places[0].rule.name
    why = next(filter(None, map(poisoned_data.explain_missing, honest)), "")
    if why := why or "the model holds NaN or infinity" * any(run.is_diverged for run in honest):
        matrix.data_uncertified.setdefault(why, []).append(f"{setting}, {rule}")
        return
    words = {"setting": setting, "rule": rule}
    matrix.data_certificates += poisoned_data.certify_answers(honest, list(poisonings), words)


def _list_bypasses(outcomes: Mapping[MatrixPlace, FinishedRun]) -> dict[str, list[str]]:
    """Setting -> titles of the protections that clients apply themselves, and so malicious ones do not."""
    bypassed = {
        place.setting: [p.title for p in run.case.protections if p.enforced_by == "client"]
        for place, run in outcomes.items()
        if place.adversary
    }
    return {setting: titles for setting, titles in bypassed.items() if titles}


def _make_attacker(spec: Mapping[str, Any]) -> Attacker:
    attacker: Attacker = build_plugin("adversaries", PluginSpec.model_validate(dict(spec)), "matrix.adversaries")
    return attacker


def describe_adversary(spec: Mapping[str, Any]) -> TriedAdversary:
    """Return what the report says of an adversary that a config names: its card, and its ids in catalogues."""
    card = catalog.load("adversaries", str(spec["name"])).card
    return TriedAdversary(
        name=str(spec["name"]),
        title=describe(spec),
        source=card.source,
        does=card.does,
        remedy=card.remedy,
        threat=card.threat,
        taxonomy=taxa(sort_of(str(spec["name"]), card.aim)),
        aim=card.aim,
    )


def list_needs(rules: Sequence[ServerRule]) -> list[Needs]:
    """What each rule must read of every single client, by its name; nothing where sums are enough.

    Whatever that tells the server is the rule's price.
    """
    once = {rule.name: rule.build() for rule in rules}
    return [
        Needs(
            rule=name,
            kinds=[
                *(MODELS if rule.reads_single_uploads else ()),
                *(PROTOTYPES if rule.of_prototypes.reads_single_uploads else ()),
            ],
        )
        for name, rule in once.items()
    ]


def give_advice(matrix: Robustness) -> list[str]:
    """One sentence a setting and number of malicious clients, where a rule did better than the mean."""
    worst: dict[tuple[str, int], dict[str, MatrixCell]] = defaultdict(dict)
    for cell in matrix.cells:
        rules = worst[cell.setting, cell.malicious]
        if cell.rule not in rules or cell.accuracy < rules[cell.rule].accuracy:
            rules[cell.rule] = cell
    advice = []
    for (setting, malicious), rules in worst.items():
        if "mean" not in rules:
            continue
        mean, best = rules["mean"], max(rules.values(), key=lambda c: c.accuracy)
        if best.accuracy <= mean.accuracy:
            continue
        who = f"{malicious} of {matrix.clients} clients malicious"
        cost = next((c.evidence for c in matrix.costs if (c.setting, c.rule) == (setting, best.rule)), [])
        price = ""
        if cost:
            less = fmt.points_less(cost[0].value, cost[0].interval)
            price = f"; with nobody malicious it has {less} than the mean"
        advice.append(
            f"{setting}, {who}: `{best.rule}` kept {100 * best.accuracy:.1f} % under its strongest attack here "
            f"({best.title}), the mean {100 * mean.accuracy:.1f} % ({mean.title}){price}."
        )
    return advice


def find_breakdowns(cells: Sequence[MatrixCell]) -> list[Breakdown]:
    """One for each rule: the fewest malicious clients, of those tried, at their strongest attack."""
    families: dict[tuple[str, str], list[MatrixCell]] = defaultdict(list)
    for cell in cells:
        families[cell.setting, cell.family].append(cell)
    return [
        Breakdown(
            setting=setting,
            family=family,
            tried=sorted({c.malicious for c in own}),
            least=[_find_least(own, seed) for seed in range(min(len(c.by_seed) for c in own))],
        )
        for (setting, family), own in families.items()
    ]


def _find_least(cells: Sequence[MatrixCell], seed: int) -> int | None:
    broken = [c.malicious for c in cells if c.by_seed[seed][0] < KEPT * c.by_seed[seed][1]]
    return min(broken, default=None)
