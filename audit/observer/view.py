"""What one party of a federation could read, and what the threat model lets it know beforehand.

An adversary is a party: client 3, not "the clients". It reads what the wire showed to it: what was sent to it
alone, what was sent to everybody in its role, and what it sent itself. Several parties read together only where
the card says that they collude.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedaudit.attacks.attack import Card, Examples, Knowledge, Player, PublicExamples
from fedaudit.attacks.evaluation.sums import open_sum, solve_shares
from fedaudit.audit.case.case import Case, KnownFederation, Split
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.condenser import condenser
from fedaudit.audit.observer.generators import known_generators
from fedaudit.audit.observer.hijacker import find_hijacker
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.observer.shadows import trainer
from fedaudit.audit.observer.timing import timing
from fedaudit.audit.observer.truth import images
from fedaudit.audit.plays.client import player
from fedaudit.fl.artifact import PUBLIC, SERVER, Artifact, Channel, Party, Role
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.families.public_data import list_public_rows
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.method import Method
from fedaudit.fl.threats.threat import Conduct, Position
from fedaudit.fl.wire.protection import published_noise


@dataclass(frozen=True)
class Observer:
    """Who carries out an attack. Several parties either collude or are tried each for itself."""

    parties: tuple[Party, ...]
    colluding: bool = False

    def __str__(self) -> str:
        names = [str(p) for p in self.parties]
        if len(names) < 2:
            return "".join(names) or "nobody"
        return f"{', '.join(names)}, {'together' if self.colluding else 'each for itself'}"


def observer(case: KnownFederation, artifacts: Sequence[Artifact], card: Card) -> Observer:
    """The parties in the card's position.

    Of clients and of mediators it is the one that could read most of what the card reads (in bytes; the first of
    equals). Each client that was handed something in a relay is tried for itself. All clients may collude: the
    attack says who does.
    """
    position = card.threat.position
    clients = [Party.client(k) for k in range(case.clients)]
    if position == Position.SERVER:
        return Observer((SERVER,))
    if position == Position.PUBLIC:
        return Observer((PUBLIC,))
    if position == Position.COLLUDING_CLIENTS:
        return Observer(tuple(clients), colluding=True)
    if position == Position.NEXT_CLIENT:
        readers = _readers(artifacts, card)
        return Observer(tuple(p for p in clients if readers.keys() & {str(p), p.role.value}))
    if position == Position.MEDIATOR:
        named = {s for a in artifacts for s in (*a.seen_by, str(a.sender)) if s.startswith(f"{Role.MEDIATOR}/")}
        clients = sorted(map(Party.parse, named))
    sizes = _sizes(_readers(artifacts, card), clients)
    return Observer((clients[sizes.index(max(sizes))],) if sizes else ())


def view(artifacts: Sequence[Artifact], party: Party, card: Card) -> list[Artifact]:
    """The artifacts that the card reads and this party could read; replayed ones only for a card with a control.

    The next client of a relay is given nothing of its own: it attacks what it was handed.
    """
    return select_visible(artifacts, Observer((party,)), card)


def select_visible(
    artifacts: Sequence[Artifact],
    who: Observer,
    card: Card,
    participants: Mapping[int, Collection[int]] = MappingProxyType({}),
) -> list[Artifact]:
    """What an observer's parties could read, each artifact once, in the order given.

    Sums are opened for cards that read them beside uploads; `participants` are the clients of each round.
    """
    names = {name for p in who.parties for name in (str(p), p.role.value)}
    own = () if card.threat.position == Position.NEXT_CLIENT else set(who.parties)
    readable = _readable(artifacts, card)
    found = [a for a in readable if not names.isdisjoint(a.seen_by) or a.sender in own]
    if Kind.AGGREGATE not in card.also_reads:
        return found
    sums = [a for a in found if a.kind == Kind.AGGREGATE and a.origin == "recorded"]
    broadcasts = [a for a in found if a.kind == Kind.GLOBAL_MODEL and a.channel == Channel.DOWNLINK]
    starts = {a.round: a.payload for a in broadcasts if Role.CLIENT.value in a.seen_by}
    opened = [open_sum(a, participants.get(a.round, ())) if a.kind == Kind.AGGREGATE else [a] for a in found]
    shares = solve_shares(sums, starts, participants)
    return [a for some in (*opened, shares) for a in some if card.pick_read([a.kind])]


def _readable(artifacts: Sequence[Artifact], card: Card) -> list[Artifact]:
    """The artifacts that the card reads, whoever could; replayed ones only for a card with a control."""
    kinds = {*card.pick_read({a.kind for a in artifacts})}
    return [a for a in artifacts if a.kind in kinds and (card.control or a.origin == "recorded")]


def _readers(artifacts: Sequence[Artifact], card: Card) -> dict[str, list[Artifact]]:
    """Role or party -> what it could read, or sent itself, of what the card reads."""
    handed = card.threat.position == Position.NEXT_CLIENT
    found: dict[str, list[Artifact]] = {}
    for a in _readable(artifacts, card):
        sender = () if handed or a.sender.index is None else (str(a.sender),)
        for name in {*a.seen_by, *sender}:
            found.setdefault(name, []).append(a)
    return found


def _sizes(readers: Mapping[str, Sequence[Artifact]], parties: Sequence[Party]) -> list[int]:
    """Bytes in the view of each party; what all of its role could read is added up once."""
    roles = {p.role.value for p in parties}
    shared = {role: sum(a.size_bytes for a in readers.get(role, ())) for role in roles}
    return [
        shared[p.role.value] + sum(a.size_bytes for a in readers.get(str(p), ()) if p.role.value not in a.seen_by)
        for p in parties
    ]


def absent(
    method: MethodCard, knowledge: Knowledge, artifacts: Sequence[Artifact], found: Sequence[Artifact], card: Card
) -> str:
    """Why what the card builds on is not there; empty where it is.

    The network was never stated, or a kind was never sent to that position, or not kept on disk.
    """
    if "architecture" in card.threat.knows and knowledge.architecture is None:
        return "the adversary knows the network, and nobody stated it, or gave its base's weights, to the auditor"
    visible = {a.kind for a in found if a.origin == "recorded"}  # what is planted was sent by nobody
    missing = [k for k in card.requires if k not in visible]
    if not card.requires and not found:  # it reads what there is of several kinds, and there is none
        missing = list(card.reads)
    if not missing:
        return ""
    kept = {a.kind for a in artifacts}
    declared: set[Kind] = {*method.uplink, *method.downlink, *method.relay, *method.release}
    if lost := [k for k in missing if k in declared and k not in kept]:
        return (
            f"no {' or '.join(lost)} was recorded: {method.title} may send it in rounds that the "
            "setting record leaves out"
        )
    return f"{method.title} sends no {' or '.join(missing)} that the {card.threat.position} could read"


def read_public(examples: Split, data: Data, method: Method | None) -> PublicExamples | None:
    """The public examples, with the candidates that the method's settings put among them; None without any."""
    own, count = examples, getattr(getattr(method, "config", None), "candidates", 0)
    rows = list_public_rows(own.spare, [own.parts[k] for k in sorted(own.parts)], count)
    found: Examples = images(data, rows)
    is_candidate = np.arange(len(rows)) >= len(own.spare)
    return PublicExamples(x=found.x, y=found.y, candidates=is_candidate) if len(rows) else None


def grant_knowledge(case: Case, card: Card, find_player: Callable[[], Player | None] | None = None) -> Knowledge:
    """The prior knowledge the threat model grants, as far as the case has it, and nothing else.

    `find_player` finds one that plays for other attacks too.
    """
    knows, auxiliary = card.threat.knows, None
    if "auxiliary_data" in knows:
        auxiliary = images(case.data, case.examples.auxiliary)
    make = case.network.make if "architecture" in knows else None
    training = {}
    for f in dataclasses.fields(case.training) if case.training else ():
        value = getattr(case.training, f.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            training[f.name] = float(value)
    public = read_public(case.examples, case.data, case.method) if Kind.PUBLIC_LOGITS in card.reads else None
    played = {Kind.LOCAL_PROTOTYPES, *UPDATES} & {*card.requires, *card.targets}
    can_see_uploads = card.threat.position == Position.SERVER and (card.any_numbers or bool(played))
    find_player = find_player or (lambda: player(Lab.from_case(case), case.card))
    for kind in card.reads:
        if std := published_noise(case.protections, kind):
            training[f"noise_std.{kind}"] = std
    return Knowledge(
        classes=max(1, len(case.data.groups)),
        width=case.data.width,
        shape=tuple(case.data.shape),
        architecture=KnownArchitecture(make, case.data, case.device) if make else None,
        generators=known_generators(case.training, case.device, case.data) if make else None,
        auxiliary=auxiliary,
        public=public,
        training=training,
        trainer=trainer(case.network.make, case.training, case.data, case.device)
        if make and "auxiliary_data" in knows
        else None,
        heard=(case.participation.heard or {}) if card.threat.position == Position.SERVER else {},
        condenser=condenser(case, case.card, case.protections, case.data) if make else None,
        player=find_player() if make and auxiliary is not None and can_see_uploads else None,
        timing=timing(case) if make else None,
        hijacker=find_hijacker(case, case.device) if card.threat.conduct == Conduct.MALICIOUS else None,
        device=case.device,
        schema=case.data.schema,
        columns=case.data.columns,
        task=case.data.task,
    )
