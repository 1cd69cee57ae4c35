"""Family: what an adaptive attacker found most harmful becomes cells of its own, each alone in every round.

The attacker chooses round by round, by an estimate; one attack kept up to the end may do more harm. The worst of
them all is what the report quotes.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedaudit.audit.robustness.finished_runs import FinishedRun
from fedaudit.audit.robustness.plan import LED, MatrixPlace

MOST = 3  # of each attacker
LEAST = 0.25  # of its rounds


def plan_family(ended: Mapping[MatrixPlace, FinishedRun], ran: Mapping[str, object]) -> list[MatrixPlace]:
    """The cells still to run; nothing where no attacker has a family."""
    sent: dict[tuple[str, str, str, int], list[tuple[MatrixPlace, list[list[dict[str, Any]]]]]] = defaultdict(
        list
    )
    for place, run in ended.items():
        if place.adversary and (chosen := run.history.attacks):
            sent[place.setting, place.rule.name, place.adversary, place.malicious].append((place, chosen))
    found: dict[str, MatrixPlace] = {}
    for runs in sent.values():
        for member in list_preferred([m for _, chosen in runs for m in chosen]):
            for place, _ in runs:
                attack = {**member, "clients": place.changes["adversary"]["clients"]}
                name = label(member) + LED * place.adversary.endswith(LED)
                new = replace(place, adversary=name, changes={**place.changes, "adversary": attack})
                if new.folder not in ran:
                    found[new.folder] = new
    return list(found.values())


def list_preferred(sent: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Those that were sent, or nearly, in a quarter of the rounds, at most three, the most frequent first."""
    named = {label(m): m for members in sent for m in members}
    counts = Counter(label(m) for members in sent for m in members)
    return [named[name] for name, count in counts.most_common(MOST) if count >= LEAST * len(sent)]


def label(member: Mapping[str, Any]) -> str:
    """What its cells are called: "ipm-0.1"."""
    return "-".join(str(v) for v in (member["name"], *(v for k, v in member.items() if k != "name")))
