"""Choice: which attacks an audit runs: those its config lists, or with `attacks: auto` all that apply and fit.

`auto` takes the panel first, without all of which nothing is limited: its attacks on required questions from the
cheapest up. Then it takes attacks by the required questions that each asks per second, then by other questions: a
second attack on one question never takes the time of the only one on another. What asks nothing new follows from
the cheapest up, as far as the budget goes. Efforts come from the cards and sizes from the config, so the choice
is the same on every machine, and under every policy: panel and required questions are the default policy's.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedaudit.attacks.attack import Card
from fedaudit.attacks.evaluation.update_inversion import UpdateInversion
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.controls.control import load_control
from fedaudit.audit.controls.updates import fit_updates
from fedaudit.audit.observer.reach import ObservedTraffic, Rounds, predict_traffic
from fedaudit.audit.planning.efforts import Sizes, estimate_seconds
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.record import Recorded, is_recorded, keeps_last, list_kinds
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.scene import Scene, is_about, list_questions, list_twins
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind, Need
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import share_result
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.questions import Question

LEAST_SECONDS = 0.1  # below which attacks take equally long


class PlannedTraffic(NamedTuple):
    """What will cross the wire, or be seen beside it, by what is known before the run."""

    title: str  # of the method
    bare: ObservedTraffic  # as the method sends it
    protected: ObservedTraffic  # what protections leave of it, and what they send instead


@dataclass(frozen=True)
class AttackChoice:
    """The attacks of an audit, and why others that could run are not among them."""

    traffic: PlannedTraffic
    setup: str  # the method and its protections, under which it is kept how long attacks took
    scene: Scene  # what the federation will send
    specs: tuple[AttackSpec, ...]
    cards: Mapping[str, Card]  # of the chosen, by label
    seconds: Mapping[str, float]  # estimates of the chosen, by label
    others: Mapping[str, Card]  # every other attack that exists, by name
    others_seconds: Mapping[str, float]  # estimates of these, by name
    left: Mapping[str, str]  # name -> why, of others that apply
    checked: frozenset[Kind] = frozenset()  # counts that will be held against what clients hold

    @property
    def names(self) -> Mapping[str, tuple[str, bool]]:
        """By label its name, and whether it is changed: with settings of its own, or not of fedaudit's."""
        return {s.label: (s.name, not _is_as_shipped(s)) for s in self.specs}

    @property
    def shipped(self) -> Mapping[str, Card]:
        """Every attack that comes with fedaudit, by name."""
        ours = catalog.names("attacks")
        return {**self.others, **{s.name: self.cards[s.label] for s in self.specs if s.name in ours}}


def choose(config: Config, case: Case) -> AttackChoice:
    """The attacks of this config; deterministic."""

    def make() -> tuple[AttackChoice, Case]:
        method, timed = "recorded", False
        record: Recorded = "last"
        if isinstance(config, SimulatedConfig):
            method, record, timed = config.method.name, config.record, config.federation.is_timed
        traffic = plan_traffic(case.card, case.protections, timed)
        scene = Scene(
            traffic=traffic.protected,
            rounds=_plan_rounds(traffic.protected, record, int(getattr(case.training, "rounds", 1))),
            gives=case.data.gives,
            clients=frozenset(k for k, rows in case.examples.parts.items() if len(rows)),
            fewest=min((len(rows) for rows in case.examples.parts.values() if len(rows)), default=None),
            are_persons=config.system.clients == "persons",
        )
        sizes = Sizes(
            pixels=math.prod(case.data.shape),
            **vars(case.network.size),
            auxiliary=len(case.examples.auxiliary),
            replays=config.replay.groups * len(config.replay.sizes),
            updates=_count_redrawn(config.replay, case.clients, 4 * case.network.size.parameters),
            clients=case.clients,
            rounds=max(1, max((len(r.kept) for r in scene.rounds.values()), default=1)),
        )
        known = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
        cost = {name: estimate_seconds(card.effort, sizes) for name, card in known.items()}
        specs, left = config.attacks, dict[str, str]()
        if specs is None:
            specs, left = _choose_fitting(scene, traffic.title, known, cost, config.budget)
        cards = {s.label: known.get(s.name) or catalog.load("attacks", s.name).card for s in specs}
        for i, card in enumerate(cards.values()):
            if card.control:
                load_control(card.control, f"attacks[{i}]")
        others = {n: c for n, c in known.items() if n not in {s.name for s in specs}}
        choice = AttackChoice(
            traffic=traffic,
            setup=" ".join([method, *(p.name for p in config.protections)]),
            scene=scene,
            specs=specs,
            cards=cards,
            seconds={
                s.label: build_plugin("attacks", s, "attacks").count_times()
                * estimate_seconds(cards[s.label].effort, sizes)
                for s in specs
            },
            others=others,
            others_seconds={n: cost[n] for n in others},
            left=left,
            checked=_list_checks(case.simulated, case.protections, case.card),
        )
        return choice, case  # with the case its id stays its own

    return share_result(("choice", config.model_dump_json(), id(case)), make)[0]


def _is_as_shipped(spec: AttackSpec) -> bool:
    """Whether it comes with fedaudit and has the settings that it comes with, written out or not."""
    if spec.name not in catalog.names("attacks"):
        return False
    plain = AttackSpec(name=spec.name)
    own, ours = (build_plugin("attacks", s, "attacks").config for s in (spec, plain))
    return bool(own == ours)


def _choose_fitting(
    scene: Scene, title: str, known: Mapping[str, Card], cost: Mapping[str, float], minutes: float
) -> tuple[tuple[AttackSpec, ...], dict[str, str]]:
    """Those that apply and fit, and of those that apply and do not fit why, by name."""
    applicable = {
        n: c for n, c in known.items() if not c.explain_unfit(scene.gives) and not scene.traffic.missing(c, title)
    }
    policy = load_policy("default")
    questions = list_questions(scene, policy.demands)
    credits = give_credits(applicable, questions, scene)
    panel = {
        name
        for name, earned in credits.items()
        if any(c.required and name in policy.whole_panel.list_attacks(c.kind, scene.fewest) for c in earned)
    }
    names = _fit_budget(credits, {n: cost[n] for n in applicable}, minutes * 60, panel)
    over = f"the budget of {minutes:g} minutes has no room for its"
    left = {n: f"{over} {describe_duration(cost[n])}" for n in applicable if n not in names}
    return tuple(AttackSpec(name=n) for n in names), left


def _list_checks(simulated: bool, protections: Sequence[Protection], card: MethodCard) -> frozenset[Kind]:
    """Counts that audit/checks/sample_counts.py holds against what clients hold."""
    if not simulated:
        return frozenset()
    changed = {k for p in protections for k in getattr(p.config, "kinds", p.kinds)}
    made = {Kind.NUM_EXAMPLES} if card.counts_made else set[Kind]()
    return frozenset(k for k in Kind if k.counted) - changed - made


def choose_anew(
    choice: AttackChoice, minutes: float, names: Collection[str] | None = None
) -> tuple[AttackSpec, ...]:
    """The attacks of a variant that lists attacks, of the `choice` under the variant's protections.

    Those, with their settings, that can read something of what is sent; and those that can because of the
    protections alone, such as attacks on sums, within the budget. With `names` only these.
    """
    (title, bare, protected), left = choice.traffic, minutes * 60
    specs = [s for s in choice.specs if not protected.missing(choice.cards[s.label], title)]
    if names is not None:
        return tuple(s for s in specs if s.label in names)
    for name in sorted(choice.others, key=lambda n: (choice.others_seconds[n], n)):
        card, seconds = choice.others[name], choice.others_seconds[name]
        if bare.missing(card, title) and not protected.missing(card, title) and seconds <= left:
            specs.append(AttackSpec(name=name))
            left -= seconds
    return tuple(specs)


def plan_traffic(card: MethodCard, protections: Sequence[Protection], timed: bool) -> PlannedTraffic:
    """What a method of this card sends; `timed`: a clock is simulated."""
    protected = predict_traffic(card, protections, timed)
    withheld = {k for p in protections for k in p.withholds()}
    left = {c: tuple(k for k in ks if k not in withheld) for c, ks in protected.kinds.items()}
    return PlannedTraffic(card.title, predict_traffic(card, (), timed), protected._replace(kinds=left))


def _plan_rounds(traffic: ObservedTraffic, record: Recorded, rounds: int) -> dict[tuple[Channel, Kind], Rounds]:
    sent = frozenset(range(rounds))
    kept = frozenset(r for r in sent if is_recorded(record, r) or (keeps_last(record) and r == rounds - 1))
    kinds = list_kinds(record)
    return {
        (channel, k): Rounds(sent, kept if kinds is None or k in kinds else frozenset())
        for channel, of_channel in traffic.kinds.items()
        for k in of_channel
    }


def refuse_impossible(
    card: MethodCard,
    timed: bool,
    attacks: Sequence[AttackSpec] | None,
    specs: Sequence[PluginSpec],
    protections: Sequence[Protection],
) -> None:
    """Raises UserError for what can do nothing here, before anything trains; `specs` are of the protections.

    An attack that a config lists and whose artifacts the method never sends; a protection on such a kind, which
    would be printed as if it protected something. What protections hide is no mistake: that is what they are for.
    """
    title, bare, protected = plan_traffic(card, protections, timed)
    for i, spec in enumerate(attacks or ()):
        attack = catalog.load("attacks", spec.name).card
        if (reason := bare.missing(attack, title)) and protected.missing(attack, title):
            raise UserError(
                f"attacks[{i}]: {spec.name} can never apply: {reason}",
                hint="leave it out, or write `attacks: auto`; `fedaudit plan CONFIG` says what applies",
                key=f"attacks[{i}]",
            )
    sent = {k for kinds in bare.kinds.values() for k in kinds}
    for i, (given, protection) in enumerate(zip(specs, protections, strict=True)):
        if needed := [k for k in protection.withholds() if k in sent]:
            raise UserError(
                f"protections[{i}]: the server of {title} reads {', '.join(needed)}, which would not be sent",
                hint="a simulation cannot go on without it; messages of a recorded federation can be withheld",
                key=f"protections[{i}]",
            )
        acts_on = tuple(getattr(protection.config, "kinds", protection.kinds))
        if acts_on and not set(acts_on) & sent:
            uploads = dict.fromkeys((*bare.kinds[Channel.UPLINK], *bare.kinds[Channel.RELAY]))
            raise UserError(
                f"protections[{i}]: {given.name} acts on {', '.join(acts_on)}, and {title} never sends that",
                hint=f"it sends {', '.join(uploads)}",
                key=f"protections[{i}]",
            )


def refuse_fruitless(
    lr: float, gives: Collection[Need], attacks: Sequence[AttackSpec] | None, matrix: object
) -> None:
    """Raises UserError where nobody learns anything, or what is asked for needs what no example gives.

    The `matrix` counts lost answers; None: there is none.
    """
    if not lr:
        raise UserError(
            "method.lr is 0: nobody would learn anything, and so nobody leak anything",
            hint="give a step size, such as 0.01",
            key="method.lr",
        )
    if matrix is not None and not {"classes", "next tokens"} & set(gives):
        raise UserError(
            "matrix: lost answers are counted by class, and the examples have no classes",
            hint="leave it out; attacks on people need no classes",
            key="matrix",
        )
    for i, spec in enumerate(attacks or ()):
        if reason := catalog.load("attacks", spec.name).card.explain_unfit(gives):
            raise UserError(
                f"attacks[{i}]: {spec.name} can never apply: {reason}",
                hint="leave it out, or write `attacks: auto`; `fedaudit plan CONFIG` says what applies",
                key=f"attacks[{i}]",
            )


def describe_duration(seconds: float) -> str:
    """About how long, in words."""
    if seconds < 60:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Credit(NamedTuple):
    """An attack asks one question of one kind of message."""

    question: str
    kind: Kind
    required: bool


def give_credits(
    cards: Mapping[str, Card], questions: Sequence[Question], scene: Scene
) -> dict[str, list[Credit]]:
    """What each attack asks, of its reader or of others of the same message."""
    required = {q.id: q.required for q in questions}
    earned: dict[str, list[Credit]] = {name: [] for name in cards}
    for (position, harm), readings in scene.list_readings().items():
        for reading in readings:
            places = list_twins(reading.reach, scene.traffic)
            for name, card in cards.items():
                if any(is_about(card, reading.aims, place) for place in places):
                    question = f"{harm}.{position}"
                    earned[name].append(Credit(question, reading.reach.kind, required[question]))
    return earned


def rank_attacks(credits: Mapping[str, Sequence[Credit]], cost: Mapping[str, float]) -> list[str]:
    """Attacks in the order in which they ask most questions per second; those that ask nothing new are left out.

    Each question counts once. Required questions come first, then the others.
    """
    ranked: list[str] = []
    asked = set[tuple[str, Kind]]()

    def gain(name: str, required: bool) -> float:
        new = sum(c.required is required and (c.question, c.kind) not in asked for c in credits[name])
        return new / max(cost[name], LEAST_SECONDS)

    for required in (True, False):
        left = [n for n in sorted(credits, key=lambda n: (cost[n], n)) if n not in ranked]
        while left:
            best = max(left, key=lambda n: gain(n, required))  # of equals the cheapest
            if not gain(best, required):
                break
            ranked.append(best)
            left.remove(best)
            asked |= {(c.question, c.kind) for c in credits[best]}
    return ranked


def _fit_budget(
    credits: Mapping[str, Sequence[Credit]], cost: Mapping[str, float], seconds: float, panel: Collection[str]
) -> list[str]:
    """Names that fit, in the order they run: cheapest first."""
    cheapest = sorted(cost, key=lambda n: (cost[n], n))
    first = [*(n for n in cheapest if n in panel), *(n for n in rank_attacks(credits, cost) if n not in panel)]
    chosen, spent = set(), 0.0
    for name in (*first, *(n for n in cheapest if n not in first)):
        if spent + cost[name] <= seconds:
            chosen.add(name)
            spent += cost[name]
    return [n for n in cheapest if n in chosen]


def _count_redrawn(replay: Replay, clients: int, upload: int) -> int:
    """Images that an attack on updates redraws at its own settings: of replays and of one upload a client.

    An upload has so many bytes: of large ones fewer are replayed.
    """
    c = UpdateInversion.Config()
    replayed = sum(
        min(times, max(2, c.per_size // (n * steps))) * min(n, c.most)
        for n, steps, times in fit_updates(upload, replay)
        if steps <= c.most_steps
    )
    return replayed + min(clients, c.recorded) * c.most_recorded
