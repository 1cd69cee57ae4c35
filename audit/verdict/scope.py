"""The scope of an audit in words and numbers: what was trained, on what, by whom."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from fedaudit.audit.case.case import Case, counts
from fedaudit.fl.data.partition import overlaps
from fedaudit.fl.model import count
from fedaudit.fl.threats.threat import ThreatModel
from fedaudit.reports.result import Finding, Scope

RECORDED = "This federation was not simulated: it ran elsewhere, and its messages were recorded there."
_MOST_ROWS = 50  # larger federations print no table of counts


def scope(case: Case, findings: Sequence[Finding]) -> Scope:
    """From the case, its data and the threat models of the attacks that ran."""
    held, parts, data = counts(case), list(case.parts.values()), case.data
    shared = overlaps(parts) if parts else 0
    train, test = sum(map(len, parts)), len(data.test)
    initial = case.initial()
    threats: list[ThreatModel] = []
    for finding in findings:
        if finding.threat is not None and finding.threat not in threats:
            threats.append(finding.threat)
    cells = held[held > 0]
    text = [
        *(sentence.rstrip(".") for sentence in case.about.clients),
        f"The smallest class of any client has {int(cells.min()) if len(cells) else 0} examples",
    ]
    if shared:
        text.append(f"{shared} examples are held by more than one client")
    return Scope(
        method=case.card.title,
        method_source=case.card.source,
        method_text=f"{case.card.text} {'' if case.simulated else RECORDED}".strip(),
        dataset=case.about.dataset,
        dataset_text=(
            f"{data.about.rstrip('.')}. {train:,} examples with the clients, "
            f"{len(case.auxiliary):,} with the attacker, {len(case.reference):,} held out for "
            f"controls, {test:,} for the test of accuracy; all disjoint, duplicates removed."
        ),
        clients=case.clients,
        clients_text=" ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in text),
        rounds=case.training.rounds if case.training else 0,
        model=case.about.model,
        parameters=count(initial) if initial else 0,
        training=_settings(case.training) if case.training else {},
        protections=[p.describe() for p in case.protections],
        threats=threats,
        class_names=list(data.classes),
        counts=held.tolist() if len(held) <= _MOST_ROWS else [],
    )


def _settings(config: Any) -> dict[str, str]:
    """Settings of the method; `rounds` has a line of its own."""
    return {f.name: _shown(getattr(config, f.name)) for f in dataclasses.fields(config) if f.name != "rounds"}


def _shown(value: Any) -> str:
    """A setting as the config file has it; groups of settings as a list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return ", ".join(f"{name}: {_shown(inner)}" for name, inner in pairs)
    return str(value)
