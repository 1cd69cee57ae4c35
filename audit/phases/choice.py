"""Choice: which attacks an audit runs: those its config lists, or with `attacks: auto` all that apply and fit.

`auto` first gives every question the cheapest attack that asks it, required questions before others: a second
attack on one question never takes the time of the only one on another. The others follow from the cheapest up, as
far as the budget goes. Efforts come from the cards and sizes from the config, so the choice is the same on every
machine, and under every policy: what is required here is what the default policy requires.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fedaudit.attacks.attack import Card, Sizes
from fedaudit.attacks.updates._inversion import UpdateInversion
from fedaudit.audit.case.case import Case, KnownFederation
from fedaudit.audit.observer.reach import Reach, Rounds, Traffic, declared
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.audit.verdict.aims import MESSAGES
from fedaudit.audit.verdict.attempts import is_about
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.questions import Scene, list_questions
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import count
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Position
from fedaudit.reports.questions import Question


@dataclass(frozen=True)
class Choice:
    """The attacks of an audit, and why others that could run are not among them."""

    specs: tuple[AttackSpec, ...]
    cards: Mapping[str, Card]  # of the chosen, by label
    seconds: Mapping[str, float]  # estimates of the chosen, by label
    others: Mapping[str, Card]  # every other attack that exists, by name
    left: Mapping[str, str] = field(default_factory=dict)  # name -> why, of others that apply


def choose(config: Config, case: Case) -> Choice:
    """The attacks of this config; deterministic."""
    sizes, scene = _sizes(config, case), plan_scene(config, case)
    traffic = scene.traffic
    known = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
    left: dict[str, str] = {}
    if config.attacks is None:
        applicable = {
            n: c
            for n, c in known.items()
            if scene.modality in c.modality and not traffic.missing(c, case.card.title)
        }
        asked = list_questions(scene, load_policy("default").demands)
        names = _within(applicable, asked, lambda card: card.effort.at(sizes), config.budget.minutes * 60)
        specs = tuple(AttackSpec(name=n) for n in names)
        over = f"the budget of {config.budget.minutes:g} minutes has no room for its"
        left = {n: f"{over} {duration(c.effort.at(sizes))}" for n, c in applicable.items() if n not in names}
    else:
        specs = config.attacks
    cards = {s.label: known.get(s.name) or catalog.load("attacks", s.name).card for s in specs}
    listed = {s.name for s in specs}
    return Choice(
        specs=specs,
        cards=cards,
        seconds={label: card.effort.at(sizes) for label, card in cards.items()},
        others={n: c for n, c in known.items() if n not in listed},
        left=left,
    )


def choose_anew(
    config: Config, case: Case, names: Collection[str] | None = None
) -> tuple[AttackSpec, ...] | None:
    """The attacks of a variant, whose protections `config` has; None: `attacks: auto` decides by what it sends.

    Of attacks that are listed, with their settings, those that can read something of what is sent; and those that
    can because of the protections alone, such as attacks on sums, within the budget. With `names` only these.
    """
    if config.attacks is None and names is None:
        return None
    title, really, bare = case.card.title, planned(config, case), planned(config, case, protected=False)
    listed = choose(config, case).specs
    able = [s for s in listed if not really.missing(catalog.load("attacks", s.name).card, title)]
    if names is not None:
        return tuple(s for s in able if s.label in names)
    sizes, left = _sizes(config, case), config.budget.minutes * 60
    known = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
    for name in sorted(known, key=lambda n: (known[n].effort.at(sizes), n)):
        is_new = bool(bare.missing(known[name], title)) and not really.missing(known[name], title)
        if is_new and name not in {s.name for s in able} and known[name].effort.at(sizes) <= left:
            able.append(AttackSpec(name=name))
            left -= known[name].effort.at(sizes)
    return tuple(able)


def planned(config: Config, case: KnownFederation, protected: bool = True) -> Traffic:
    """What will cross the wire, or be seen beside it, by what is known before the run."""
    clock = config.case == "simulated" and config.federation.time_model != "none"
    traffic = declared(case.card, case.protections if protected else (), clock)
    withheld = {k for p in case.protections for k in p.withholds()} if protected else set()
    return traffic._replace(
        kinds={c: tuple(k for k in ks if k not in withheld) for c, ks in traffic.kinds.items()}
    )


def plan_scene(config: Config, case: Case) -> Scene:
    """What a federation will send, to whom and in which rounds, by what is known before the run."""
    traffic = planned(config, case)
    sent = frozenset(range(int(getattr(case.training, "rounds", 1)) if case.training else 1))
    kept = frozenset(r for r in sent if _is_kept(config, r, len(sent)))
    kinds = config.record.kinds
    return Scene(
        traffic=traffic,
        rounds={
            (channel, k): Rounds(sent, kept if kinds is None or k in kinds else frozenset())
            for channel, of_channel in traffic.kinds.items()
            for k in of_channel
        },
        modality=case.data.modality,
        clients=frozenset(k for k, rows in case.examples.parts.items() if len(rows)),
        are_persons=config.system.clients == "persons",
    )


def _is_kept(config: Config, round: int, rounds: int) -> bool:
    wanted = config.record.rounds
    if isinstance(wanted, tuple):
        return round in wanted
    if isinstance(wanted, int):
        return round % wanted == 0 or round == rounds - 1
    return wanted == "all" or round == rounds - 1


def refuse_impossible(config: Config, case: Case) -> None:
    """Raises UserError for what can do nothing here, before anything trains.

    An attack that a config lists and whose artifacts the method never sends; a protection on such a kind, which
    would be printed as if it protected something. What protections hide is no mistake: that is what they are for.
    """
    bare, title = planned(config, case, protected=False), case.card.title
    really = planned(config, case)  # what protections send instead, a sum, is there as well
    for i, spec in enumerate(config.attacks or ()):
        card = catalog.load("attacks", spec.name).card
        if (reason := bare.missing(card, title)) and really.missing(card, title):
            raise UserError(
                f"attacks[{i}]: {spec.name} can never apply: {reason}",
                hint="leave it out, or write `attacks: auto`; `fedaudit plan CONFIG` says what applies",
                key=f"attacks[{i}]",
            )
    sent = {k for kinds in bare.kinds.values() for k in kinds}
    for i, protection in enumerate(case.protections):
        if needed := [k for k in protection.withholds() if k in sent]:
            raise UserError(
                f"protections[{i}]: the server of {title} reads {', '.join(needed)}, which would not be sent",
                hint="a simulation cannot go on without it; messages of a recorded federation can be withheld",
                key=f"protections[{i}]",
            )
        acts_on = tuple(getattr(protection.config, "kinds", protection.kinds))
        if acts_on and not set(acts_on) & sent:
            raise UserError(
                f"protections[{i}]: {config.protections[i].name} acts on {', '.join(acts_on)}, "
                f"and {title} never sends that",
                hint=f"it sends {', '.join(k for k in dict.fromkeys(case.card.uplink + case.card.relay))}",
                key=f"protections[{i}]",
            )


def duration(seconds: float) -> str:
    """About how long, in words."""
    if seconds < 60:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _within(
    applicable: Mapping[str, Card], questions: Sequence[Question], cost: Callable[[Card], float], seconds: float
) -> list[str]:
    """Names that fit, in the order they run: cheapest first."""
    cheapest = sorted(applicable, key=lambda n: (cost(applicable[n]), n))
    first = choose_first({n: applicable[n] for n in cheapest}, questions)
    chosen, spent = set(), 0.0
    for name in (*first, *(n for n in cheapest if n not in first)):
        if spent + cost(applicable[name]) <= seconds:
            chosen.add(name)
            spent += cost(applicable[name])
    return [n for n in cheapest if n in chosen]


def choose_first(cards: Mapping[str, Card], questions: Sequence[Question]) -> list[str]:
    """The first of `cards` to ask each question, in the order of the questions, required ones before others."""
    found: list[str] = []
    for q in sorted(questions, key=lambda q: not q.required):
        if q.kind == MESSAGES:
            continue
        reach = Reach(Position(q.observer), Kind(q.kind))
        name = next((n for n, card in cards.items() if is_about(card, q.aim, reach)), None)
        if name is not None and name not in found:
            found.append(name)
    return found


def _sizes(config: Config, case: Case) -> Sizes:
    first, replay = case.initial(), config.replay
    return Sizes(
        pixels=math.prod(case.data.shape),
        parameters=count(first) if first else 0,
        auxiliary=len(case.examples.auxiliary),
        replays=replay.groups * len(replay.sizes),
        updates=_redrawn(replay, case.clients),
        clients=case.clients,
        rounds=max(1, max((len(r.kept) for r in plan_scene(config, case).rounds.values()), default=1)),
    )


def _redrawn(replay: Replay, clients: int) -> int:
    """Images that an attack on updates redraws at its own settings: of replays and of one upload a client."""
    c = UpdateInversion.Config()
    replayed = sum(
        min(replay.update_groups, max(2, c.per_size // (n * steps))) * min(n, c.most)
        for n in replay.updates
        for steps in replay.update_steps
        if steps <= c.most_steps
    )
    return replayed + min(clients, c.recorded) * c.most_recorded
