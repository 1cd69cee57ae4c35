"""Table: finished runs of a matrix to its cells, each with what was measured and beside what."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.poisoning._backdoors import Backdoors
from fedaudit.audit.case.simulated import plugin
from fedaudit.audit.robustness import measures
from fedaudit.audit.robustness.advice import advice, breakdown
from fedaudit.audit.robustness.certificate import certificate
from fedaudit.audit.robustness.gallery import triggered
from fedaudit.audit.robustness.needs import needs
from fedaudit.audit.robustness.outcome import Outcome
from fedaudit.audit.robustness.plan import CONTROLS, IDLE, PLANTED, Place, title
from fedaudit.audit.robustness.prototypes import moved
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.verdict.taxonomy import sort_of, taxa
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.adversary import Adversary as Attacker
from fedaudit.reports.robustness import Adversary, Certificate, DefenceCost, MatrixCell, NotRun, Robustness

COUNTS = "count_inflation"


def table(outcomes: Mapping[Place, Outcome], not_run: Sequence[NotRun]) -> Robustness:
    """Every measure of every cell; raises UserError where no run came to its end."""
    if not outcomes:
        raise UserError("no run of the matrix came to its end: " + "; ".join(n.reason for n in not_run))
    first = next(iter(outcomes.values()))
    made = Robustness(
        clients=first.case.clients,
        chance=float(np.bincount(first.labels).max() / len(first.labels)),
        seeds=sorted({p.seed for p in outcomes}),
        not_run=list(not_run),
    )
    by_rule: dict[tuple[str, str], dict[tuple[str, int], dict[int, Place]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for place in outcomes:
        by_rule[place.setting, place.rule.name][place.adversary, place.malicious][place.seed] = place
    for (setting, rule), columns in by_rule.items():
        mean = by_rule.get((setting, "mean"), {}).get(("", 0), {})
        clean = columns.get(("", 0), {})
        if not clean:
            continue
        costs = _cost(outcomes, clean, mean if rule != "mean" else {}, len(by_rule))
        if not next(iter(clean.values())).bisected:
            made.costs.append(costs)
        looks = sum(adversary not in ("", *CONTROLS) for adversary, _ in columns) or 1
        for (adversary, malicious), runs in columns.items():
            if set(runs) - set(clean) or adversary in ("", IDLE):
                continue
            idle = columns.get((IDLE, malicious), {})
            cell = _cell(outcomes, runs, clean, idle, made.clients, looks)
            (made.planted if adversary == PLANTED else made.cells).append(cell)
            if not (adversary == PLANTED or cell.bisected):
                made.certificates += _certificates(outcomes, runs, clean, cell)
            spec = next(iter(runs.values())).changes["adversary"]
            made.adversaries.setdefault(adversary, _card(spec))
    made.bypassed = _bypassed(outcomes)
    made.needs = needs([p.rule for p in outcomes])
    made.triggered, made.prototypes = triggered(outcomes), moved(outcomes)
    made.breakdown, made.advice = breakdown(made.cells), advice(made)
    made.uncertified = "" if made.certificates else first.uncertified
    return made


def _cost(
    outcomes: Mapping[Place, Outcome], clean: Mapping[int, Place], mean: Mapping[int, Place], looks: int
) -> DefenceCost:
    place, runs = next(iter(clean.values())), [outcomes[p] for p in clean.values()]
    evidence: list[Evidence] = []
    if mean and set(mean) >= set(clean):
        before = [outcomes[mean[s]] for s in clean]
        evidence = [measures.difference("cost_of_defence", before, runs, looks)]
    return DefenceCost(
        setting=place.setting,
        rule=place.rule.name,
        assumed=place.rule.assumed,
        accuracy=float(np.mean([r.accuracy for r in runs])),
        worst_class=float(np.mean([r.worst_class() for r in runs])),
        evidence=evidence,
    )


def _cell(
    outcomes: Mapping[Place, Outcome],
    runs: Mapping[int, Place],
    clean: Mapping[int, Place],
    idle: Mapping[int, Place],
    clients: int,
    looks: int,
) -> MatrixCell:
    place = next(iter(runs.values()))
    after, before = [outcomes[p] for p in runs.values()], [outcomes[clean[s]] for s in runs]
    blind = None
    if set(idle) >= set(runs):
        lost = measures.difference("accuracy_drop", before, [outcomes[idle[s]] for s in runs], looks)
        blind = Baseline(name="the same clients doing nothing", value=lost.value, interval=lost.interval)
    found = [
        measures.difference("accuracy_drop", before, after, looks, blind),
        measures.worst_class_drop(before, after, looks),
        measures.worst_client_drop(before, after, looks),
        *measures.detected(after, looks),
        *measures.stealth(after),
        measures.exactly("honest_share", 1 - place.malicious / clients),
    ]
    spec = place.changes["adversary"]
    attacker = _attacker(spec)
    if isinstance(attacker, Backdoors):
        found.append(measures.asr(attacker, before, after, looks))
        found += measures.durability(after, attacker.config.leaves)
    if spec["name"] == COUNTS:
        found.append(measures.changed_by_counts(before, after, looks))
    if place.malicious == 1:
        found.append(measures.exactly("sole_attacker", 1.0))
    return MatrixCell(
        setting=place.setting,
        rule=place.rule.name,
        family=place.rule.family,
        assumed=place.rule.assumed,
        adversary=place.adversary,
        title=("planted fault: " if place.adversary == PLANTED else "") + title(spec),
        malicious=place.malicious,
        accuracy=float(np.mean([r.accuracy for r in after])),
        clean=float(np.mean([r.accuracy for r in before])),
        by_seed=[(a.accuracy, b.accuracy) for a, b in zip(after, before, strict=True)],
        evidence=found,
        bisected=place.bisected,
        folders=[f"matrix/{p.folder}" for p in runs.values()],
    )


def _certificates(
    outcomes: Mapping[Place, Outcome], runs: Mapping[int, Place], clean: Mapping[int, Place], cell: MatrixCell
) -> list[Certificate]:
    """Errors, and a backdoor's success, beside what the ledger lets any attack reach; none without its noise."""
    after, before = [outcomes[p] for p in runs.values()], [outcomes[clean[s]] for s in runs]
    if any(run.uncertified for run in after):
        return []
    labels = after[0].labels
    scores = {"errors": ([1 - r.accuracy for r in before], [1 - r.accuracy for r in after], len(labels))}
    attacker = _attacker(next(iter(runs.values())).changes["adversary"])
    if isinstance(attacker, Backdoors):
        clean_success, success = ([measures.success(attacker, r) for r in some] for some in (before, after))
        others = int((labels != int(attacker.config.target)).sum())
        scores["attack success"] = (clean_success, success, others)
    words: dict[str, Any] = {
        "setting": cell.setting,
        "rule": cell.rule,
        "title": cell.title,
        "folders": cell.folders,
    }
    return [
        certificate(*values, after[0].releases, cell.malicious, score=score, **words)
        for score, values in scores.items()
    ]


def _bypassed(outcomes: Mapping[Place, Outcome]) -> dict[str, list[str]]:
    """Setting -> titles of the protections that clients apply themselves, and so malicious ones do not."""
    found = {
        place.setting: [p.title for p in run.case.protections if p.enforced_by == "client"]
        for place, run in outcomes.items()
        if place.adversary
    }
    return {setting: titles for setting, titles in found.items() if titles}


def _attacker(spec: Mapping[str, Any]) -> Attacker:
    made: Attacker = plugin("adversaries", PluginSpec.model_validate(dict(spec)), "matrix.adversaries")
    return made


def _card(spec: Mapping[str, Any]) -> Adversary:
    made = catalog.load("adversaries", str(spec["name"]))
    card, backdoor = made.card, issubclass(made, Backdoors)
    return Adversary(
        name=str(spec["name"]),
        title=title(spec),
        source=card.source,
        does=card.does,
        remedy=card.remedy,
        threat=card.threat,
        taxonomy=taxa("backdoor" if backdoor else sort_of(str(spec["name"]), "poisoning")),
    )
