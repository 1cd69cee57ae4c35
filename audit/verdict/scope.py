"""The scope of an audit in words and numbers: what was trained, on what, by whom."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from audit.subject.simulated import World
from fl.model import count
from fl.partition import overlaps
from reports.result import Finding, Scope, Threat

_MOST_ROWS = 50  # larger federations print no table of counts


def scope(world: World, findings: Sequence[Finding]) -> Scope:
    """From the config, the built population and the threat models of the attacks that ran."""
    population, method, federation = world.population, world.method, world.config.federation
    counts = population.counts
    shared = overlaps(population.parts)
    train, test = sum(len(p) for p in population.parts), len(world.data.test)
    threats: list[Threat] = []
    for finding in findings:
        if finding.threat is not None and finding.threat not in threats:
            threats.append(finding.threat)
    cells = counts[counts > 0]
    text = [
        world.partition.describe().rstrip("."),
        world.availability.describe().rstrip("."),
        f"The smallest class of any client has {int(cells.min()) if len(cells) else 0} examples",
    ]
    if shared:
        text.append(f"{shared} examples are held by more than one client")
    return Scope(
        method=method.card.title,
        method_source=method.card.source,
        method_text=method.card.text,
        dataset=world.dataset.title,
        dataset_text=(
            f"{world.data.about.rstrip('.')}. {train:,} examples with the clients, "
            f"{len(population.auxiliary):,} with the attacker, {len(population.reference):,} held out for "
            f"controls, {test:,} for the test of accuracy; all disjoint, duplicates removed."
        ),
        clients=federation.clients,
        clients_text=" ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in text),
        rounds=method.config.rounds,
        model=federation.model.name,
        parameters=count(world.initial()),
        training=_settings(method.config),
        protections=[p.describe() for p in world.protections],
        threats=threats,
        class_names=list(world.data.classes),
        counts=counts.tolist() if len(counts) <= _MOST_ROWS else [],
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
