"""The scope of an audit in words and numbers: what was trained, on what, by whom."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedaudit.audit.case.case import KnownFederation, Split, counts
from fedaudit.audit.case.holders import Held, holders, list_unknown
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.population import content
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.threats.threat import ThreatModel
from fedaudit.fl.wire.protection import describe_protection
from fedaudit.reports.exposed import PartyExposure
from fedaudit.reports.format import plural
from fedaudit.reports.result import AuditScope, Finding, Outcome

RECORDED = "This federation was not simulated: it ran elsewhere, and its messages were recorded there."
BUDGETS = ("epsilon", "delta")  # methods use the letters for other things
_MOST_ROWS = 50  # larger federations print no table of counts


def describe_scope(
    federation: KnownFederation,
    training: LocalConfig | None,
    parameters: int,
    findings: Sequence[Finding],
    seen: Sequence[PartyExposure] = (),
) -> AuditScope:
    """From the federation, its data and the threat models of the attacks that ran.

    Where the training is not known, rounds are those in which clients sent something, by who saw what.
    """
    data, examples = federation.data, federation.examples
    held = counts(federation.clients, examples, data)
    threats: list[ThreatModel] = []
    for finding in findings:
        if finding.outcome is not Outcome.RAN or finding.threat is None:
            continue
        if finding.threat not in threats:
            threats.append(finding.threat)
    rounds = [e.rounds for e in seen if e.single_client]
    cells = held[held > 0]
    cell = "client" if not data.groups else f"{'class' if data.task.has_classes else 'group'} of any client"
    text = [
        *(sentence.rstrip(".") for sentence in federation.about.clients),
        f"The smallest {cell} has {plural(int(cells.min()) if len(cells) else 0, 'example')}",
    ]
    records = holders(examples, data)
    text += _describe_overlaps(federation.simulated, federation.clients, examples, records)
    return AuditScope(
        method=federation.card.title,
        method_source=federation.card.source,
        method_text=f"{federation.card.text} {'' if federation.simulated else RECORDED}".strip(),
        dataset=federation.about.dataset,
        dataset_text=(
            f"{data.about.rstrip('.')}{'. ' if data.about else ''}"
            f"{len(records):,} different examples with the clients, "
            f"{len(examples.auxiliary):,} with the attacker, {len(examples.reference):,} held out for "
            f"controls, {len(data.test):,} for the test of accuracy; "
            f"{_describe_groups(data, examples, records)}."
        ),
        clients=federation.clients,
        clients_text=" ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in text),
        rounds=training.rounds if training else max(rounds, default=0),
        model=federation.about.model,
        parameters=parameters,
        training=_settings(training) if training else {},
        protections=[describe_protection(p) for p in federation.protections],
        threats=threats,
        class_names=list(data.groups),
        has_classes=data.task.has_classes,
        is_invented=federation.about.is_invented,
        counts=held.tolist() if len(held) <= _MOST_ROWS else [],
    )


def _describe_overlaps(
    simulated: bool, clients: int, examples: Split, records: Mapping[bytes, Held]
) -> list[str]:
    """Who holds the same examples, and of whom nobody can say."""
    several = [by for by in records.values() if len(by) > 1]
    copied = sum(any(len(rows) > 1 for rows in by.values()) for by in records.values())
    unknown = list_unknown(simulated, clients, examples)
    text = []
    if several:
        most = max(map(len, several))
        text.append(f"{len(several):,} examples are held by more than one client, up to {most:,} of them")
    if copied:
        text.append(f"{copied:,} examples are held more than once by one client")
    if unknown:
        whom = "the clients" if len(unknown) == clients else f"{len(unknown):,} clients"
        text.append(f"Which examples {whom} hold is not known; it is assumed that no two of them hold the same")
    return text


def _describe_groups(data: Data, examples: Split, records: Mapping[bytes, Held]) -> str:
    """Whether an example is in two of these: with clients, with the attacker, held out, in the test set."""
    x = data.train.x
    groups = [{content(x[i]) for i in rows} for rows in (examples.auxiliary, examples.reference)]
    groups.append({content(one) for one in data.test.x})
    times = Counter(digest for group in (records, *groups) for digest in group)
    twice = sum(n > 1 for n in times.values())
    return f"{twice:,} of them in two of these groups" if twice else "none of them in two of these groups"


def _settings(config: Any) -> dict[str, str]:
    """Settings of the method; `rounds` has a line of its own.

    A setting that has the name of a privacy budget and is none says so.
    """
    names = [f.name for f in dataclasses.fields(config) if f.name != "rounds"]
    return {
        f"{n} (a constant of the method, no privacy budget)" if n in BUDGETS else n: _format_setting(
            getattr(config, n)
        )
        for n in names
    }


def _format_setting(value: Any) -> str:
    """A setting as the config file has it; groups of settings as a list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return ", ".join(f"{name}: {_format_setting(inner)}" for name, inner in pairs)
    return str(value)
