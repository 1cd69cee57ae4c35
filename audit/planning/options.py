"""Options: protections to try against what an audit demonstrated, where a config says `variants: auto`.

Each protection says which aims it answers and with which settings it acts on given uploads
(fl/wire/protection.py). Those that answer most, by the severity of the attacks' findings, are tried, within the
budget. The choice rests on the run's evidence and its own policy alone, so a reviewer with another policy looks
for the same variants.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.case import KnownFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.verdict.questions import Shown
from fedaudit.audit.verdict.scene import name_finding
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import MODELS, Kind, Summed
from fedaudit.fl.method import Card
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.protection import Protection, Uploads

MOST = 3  # variants of a simulation
MOST_COPIES = 7  # of a recorded federation, whose messages pass through them in moments


class Proposal(NamedTuple):
    """A protection that answers what was demonstrated."""

    name: str
    meant: int  # the ranks of the severities of leaks that it is made against, added up
    weight: int  # of all leaks that it acts on
    specs: tuple[PluginSpec, ...]  # the protection, after what has to be withheld for it


class Leak(NamedTuple):
    """What one attack was seen to do."""

    aim: Aim
    kinds: tuple[Kind, ...]  # that clients upload, of those it read
    weight: int  # the rank of its severity


def list_proposals(
    federation: KnownFederation, artifacts: Path | None, leaks: Sequence[Leak], used: Collection[str]
) -> list[Proposal]:
    """Protections against what attacks demonstrated, those first that answer most; none that is `used` already.

    Recorded messages pass through any in moments, so every one is tried that can act on them.
    """
    norms = _measure_norms(artifacts, {k for leak in leaks for k in leak.kinds})
    ranked = list[Proposal]()
    for name in catalog.names("protections"):
        cls: type[Protection] = catalog.load("protections", name)
        answered = [
            leak
            for leak in leaks
            if (leak.aim in cls.answers or not federation.simulated)
            and _propose(cls, federation.data, leak.kinds, norms) is not None
        ]
        kinds = tuple(dict.fromkeys(k for leak in answered for k in leak.kinds))
        settings = _propose(cls, federation.data, kinds, norms) if kinds else None
        if settings is None or name in used:
            continue
        if specs := _make_act(PluginSpec(name=name, settings=settings), federation.simulated, federation.card):
            meant = sum(leak.weight for leak in answered if leak.aim in cls.answers)
            ranked.append(Proposal(name, meant, sum(leak.weight for leak in answered), specs))
    return sorted(ranked, key=lambda p: (-p.meant, -p.weight, p.name))


def _propose(
    cls: type[Protection], data: Data, kinds: tuple[Kind, ...], norms: Mapping[Kind, float]
) -> dict[str, Any] | None:
    return cls.propose(Uploads(kinds=kinds, classes=len(data.classes), norms=norms))


def list_leaks(
    files: Sequence[Mapping[str, Any]], shown: Mapping[str, Shown], uplink: Sequence[Kind]
) -> list[Leak]:
    """What attacks seem to do to people: a protection is tried where they hit more than luck has it."""
    leaks = []
    for file in files:
        found = shown.get(name_finding(file))
        if found is None or found.bound.net < 1:  # who was hit more often than luck has it, sure or not
            continue
        card = file["card"]
        read = [Kind(k) for k in file["read"] if k not in card["aids"]]
        # what others read, such as a broadcast, was made of everything that clients sent
        kinds = tuple(k for k in read if k in uplink) or tuple(k for k in uplink if not k.control_plane)
        leaks.append(Leak(Aim(card["aim"]), kinds, max(1, found.severity.rank)))
    return leaks


def _make_act(spec: PluginSpec, simulated: bool, card: Card) -> tuple[PluginSpec, ...]:
    """The protection, with what has to be withheld for it; empty where the federation cannot go with it.

    Recorded messages can pass only through what acts on messages. Of them, what is merely said about clients,
    such as a loss, can be withheld where there is no sum of it; what a method of ours reads cannot.
    """
    protection: Protection = build_plugin("protections", spec, "variants")
    if not protection.refuses(card.uplink):
        retrains = protection.training() is not None or protection.central
        return () if retrains and not simulated else (spec,)
    single = [k for k in card.uplink if k.about and k.summed is Summed.NO]
    if simulated or protection.refuses([k for k in card.uplink if k not in single]):
        return ()
    return PluginSpec(name="withhold", settings={"kinds": [k.value for k in single]}), spec


def _measure_norms(artifacts: Path | None, kinds: Collection[Kind]) -> dict[Kind, float]:
    """Median L2 norm, to two digits, of a client's change of the model, or of rows of classes or examples."""
    if artifacts is None or not kinds:
        return {}
    recorded = messages(artifacts, {*kinds, Kind.GLOBAL_MODEL}, "latest")
    start = {a.round: a.payload for a in recorded if a.kind is Kind.GLOBAL_MODEL}
    norms: dict[Kind, list[float]] = defaultdict(list)
    for a in recorded:
        if a.channel is Channel.UPLINK and a.kind in kinds:
            norms[a.kind] += _norms_of(a, start.get(a.round, {}) if a.kind in MODELS else {})
    return {k: float(f"{float(np.median(v)):.2g}") for k, v in norms.items() if v}


def _norms_of(artifact: Artifact, start: Mapping[str, NDArray[np.generic]]) -> list[float]:
    arrays = {k: v.astype(np.float64) for k, v in artifact.payload.items() if v.dtype.kind == "f"}
    by_example = any(shape.startswith("[b,") for shape in artifact.kind.arrays.values())
    if artifact.kind.summed is Summed.BY_CLASS_WEIGHTED or by_example:
        return [float(np.linalg.norm(row)) for v in arrays.values() for row in v.reshape(len(v), -1)]
    before = {
        k: start[k].astype(np.float64) for k, v in arrays.items() if k in start and start[k].shape == v.shape
    }
    moved = [v - before[k] if k in before else v for k, v in arrays.items()]
    return [math.sqrt(sum(float((v**2).sum()) for v in moved))] if moved else []
