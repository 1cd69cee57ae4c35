"""Choice: which attacks an audit runs: those its config lists, or with `attacks: auto` all that apply and fit.

`auto` takes attacks by the required questions that each can answer per second, then by other questions: a second
attack on one question never takes the time of the only one on another. An attack that says whom it hits can bound
a harm and earns a question in full; one that can only demonstrate earns half. What asks nothing new follows from
the cheapest up, as far as the budget goes. Efforts come from the cards and sizes from the config, so the choice
is the same on every machine, and under every policy: what is required is what the default policy requires.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedaudit.attacks.attack import Attack, Card, Sizes
from fedaudit.attacks.updates._inversion import UpdateInversion
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.sharing import share_result
from fedaudit.audit.observer.reach import ObservedTraffic, Reach, Rounds, predict_traffic
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.record import RecordSettings
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.audit.verdict.attempts import is_about
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.questions import Scene, list_questions, list_twins
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Position
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.questions import MESSAGES, Question

DEMONSTRATING = 0.5  # credit of an attack that can demonstrate and never bound
LEAST_SECONDS = 0.1  # below which attacks take equally long


@dataclass(frozen=True)
class AttackChoice:
    """The attacks of an audit, and why others that could run are not among them."""

    scene: Scene  # what the federation will send
    sizes: Sizes  # what estimates are made from
    specs: tuple[AttackSpec, ...]
    cards: Mapping[str, Card]  # of the chosen, by label
    seconds: Mapping[str, float]  # estimates of the chosen, by label
    others: Mapping[str, Card]  # every other attack that exists, by name
    others_seconds: Mapping[str, float] = field(default_factory=dict)  # estimates of these, by name
    left: Mapping[str, str] = field(default_factory=dict)  # name -> why, of others that apply


def choose(config: Config, case: Case) -> AttackChoice:
    """The attacks of this config; deterministic."""
    key = ("choice", config.model_dump_json(), id(case))
    return share_result(key, lambda: (_choose(config, case), case))[0]  # with the case its id stays its own


def _choose(config: Config, case: Case) -> AttackChoice:
    scene = _plan_scene(config, case)
    sizes, traffic = _measure_sizes(config.replay, case, scene), scene.traffic
    known = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
    left: dict[str, str] = {}
    if config.attacks is None:
        applicable = {
            n: c
            for n, c in known.items()
            if scene.modality in c.modality and not traffic.missing(c, case.card.title)
        }
        credits = give_credits(applicable, list_questions(scene, load_policy("default").demands), traffic)
        cost = {n: c.effort.estimate_seconds(sizes) for n, c in applicable.items()}
        names = _within(credits, cost, config.budget.minutes * 60)
        specs = tuple(AttackSpec(name=n) for n in names)
        over = f"the budget of {config.budget.minutes:g} minutes has no room for its"
        left = {
            n: f"{over} {duration(c.effort.estimate_seconds(sizes))}"
            for n, c in applicable.items()
            if n not in names
        }
    else:
        specs = config.attacks
    cards = {s.label: known.get(s.name) or catalog.load("attacks", s.name).card for s in specs}
    listed = {s.name for s in specs}
    return AttackChoice(
        scene=scene,
        sizes=sizes,
        specs=specs,
        cards=cards,
        seconds={label: card.effort.estimate_seconds(sizes) for label, card in cards.items()},
        others={n: c for n, c in known.items() if n not in listed},
        others_seconds={n: c.effort.estimate_seconds(sizes) for n, c in known.items() if n not in listed},
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
    choice, title = choose(config, case), case.card.title
    really, bare = choice.scene.traffic, plan_traffic(config, case.card, case.protections, protected=False)
    able = [s for s in choice.specs if not really.missing(catalog.load("attacks", s.name).card, title)]
    if names is not None:
        return tuple(s for s in able if s.label in names)
    sizes, left = choice.sizes, config.budget.minutes * 60
    known = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
    for name in sorted(known, key=lambda n: (known[n].effort.estimate_seconds(sizes), n)):
        is_new = bool(bare.missing(known[name], title)) and not really.missing(known[name], title)
        if is_new and name not in {s.name for s in able} and known[name].effort.estimate_seconds(sizes) <= left:
            able.append(AttackSpec(name=name))
            left -= known[name].effort.estimate_seconds(sizes)
    return tuple(able)


def plan_traffic(
    config: Config, card: MethodCard, protections: Sequence[Protection], protected: bool = True
) -> ObservedTraffic:
    """What will cross the wire, or be seen beside it, by what is known before the run."""
    clock = isinstance(config, SimulatedConfig) and config.federation.time_model != "none"
    traffic = predict_traffic(card, protections if protected else (), clock)
    withheld = {k for p in protections for k in p.withholds()} if protected else set()
    return traffic._replace(
        kinds={c: tuple(k for k in ks if k not in withheld) for c, ks in traffic.kinds.items()}
    )


def _plan_scene(config: Config, case: Case) -> Scene:
    """What a federation will send, to whom and in which rounds, by what is known before the run."""
    traffic = plan_traffic(config, case.card, case.protections)
    sent = frozenset(range(int(getattr(case.training, "rounds", 1)) if case.training else 1))
    record = config.record if isinstance(config, SimulatedConfig) else RecordSettings()
    kept = frozenset(r for r in sent if _is_kept(record, r, len(sent)))
    kinds = record.kinds
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


def _is_kept(record: RecordSettings, round: int, rounds: int) -> bool:
    wanted = record.rounds
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
    bare, title = plan_traffic(config, case.card, case.protections, protected=False), case.card.title
    really = plan_traffic(
        config, case.card, case.protections
    )  # what protections send instead, a sum, is there as well
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


class Credit(NamedTuple):
    """What an attack earns where it asks one question."""

    question: str
    required: bool
    worth: float


def give_credits(
    cards: Mapping[str, Card], questions: Sequence[Question], traffic: ObservedTraffic
) -> dict[str, list[Credit]]:
    """Which questions each attack asks, of its reader or of others of the same message, and what they earn."""
    earned: dict[str, list[Credit]] = {name: [] for name in cards}
    bounding = {n for n in cards if catalog.load("attacks", n).count_people is not Attack.count_people}
    for q in questions:
        if q.kind == MESSAGES:
            continue
        places = list_twins(Reach(Position(q.observer), Kind(q.kind)), traffic)
        for name, card in cards.items():
            if any(is_about(card, q.aim, place) for place in places):
                worth = 1.0 if name in bounding else DEMONSTRATING
                earned[name].append(Credit(q.id, q.required, worth))
    return earned


def rank_attacks(credits: Mapping[str, Sequence[Credit]], cost: Mapping[str, float]) -> list[str]:
    """Attacks in the order in which they earn most per second; those that earn nothing new are left out.

    Each question earns its largest credit once. Required questions come first, then the others.
    """
    ranked: list[str] = []
    earned: dict[str, float] = {}

    def gain(name: str, required: bool) -> float:
        new = (max(0.0, c.worth - earned.get(c.question, 0.0)) for c in credits[name] if c.required is required)
        return sum(new) / max(cost[name], LEAST_SECONDS)

    for required in (True, False):
        left = [n for n in sorted(credits, key=lambda n: (cost[n], n)) if n not in ranked]
        while left:
            best = max(left, key=lambda n: gain(n, required))  # of equals the cheapest
            if not gain(best, required):
                break
            ranked.append(best)
            left.remove(best)
            for c in credits[best]:
                earned[c.question] = max(earned.get(c.question, 0.0), c.worth)
    return ranked


def _within(credits: Mapping[str, Sequence[Credit]], cost: Mapping[str, float], seconds: float) -> list[str]:
    """Names that fit, in the order they run: cheapest first."""
    cheapest = sorted(cost, key=lambda n: (cost[n], n))
    first = rank_attacks(credits, cost)
    chosen, spent = set(), 0.0
    for name in (*first, *(n for n in cheapest if n not in first)):
        if spent + cost[name] <= seconds:
            chosen.add(name)
            spent += cost[name]
    return [n for n in cheapest if n in chosen]


def _measure_sizes(replay: Replay, case: Case, scene: Scene) -> Sizes:
    return Sizes(
        pixels=math.prod(case.data.shape),
        parameters=case.parameters,
        auxiliary=len(case.examples.auxiliary),
        replays=replay.groups * len(replay.sizes),
        updates=_redrawn(replay, case.clients),
        clients=case.clients,
        rounds=max(1, max((len(r.kept) for r in scene.rounds.values()), default=1)),
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
