"""Federations as far as questions follow from them, and attacks that read what they are told to."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fedaudit.attacks.attack import Card
from fedaudit.attacks.people import GroupCount, PeopleCount, Share
from fedaudit.audit.observer.reach import ObservedTraffic, Rounds, predict_traffic
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.questions import answer_questions
from fedaudit.audit.verdict.scene import Answers, Attempt, Scene, list_questions
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind, Need
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.threats.threat import Harm
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.questions import Question
from fedaudit.reports.result import Outcome

CARDS: dict[str, Card] = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
# the same, as if each could do without the kinds that only help it: for scenes in which one kind is sent
ALONE = {name: replace(card, requires=()) for name, card in CARDS.items()}
METHODS: dict[str, MethodCard] = {name: catalog.load("methods", name).card for name in catalog.names("methods")}
DEMANDS = load_policy("default").demands
CLIENTS = 5
_OF_CLASSES: frozenset[Need] = frozenset({"classes", "groups", "answers"})
GIVEN: dict[str, frozenset[Need]] = {  # what data give an attack
    "image": _OF_CLASSES | {"numbers", "images", "one scale"},
    "table": _OF_CLASSES | {"numbers", "rows"},
    "text": _OF_CLASSES | {"tokens", "one scale"},
    "language": frozenset({"groups", "tokens", "next tokens", "one scale"}),
}
IMAGES = GIVEN["image"]


def make_scene(
    method: str,
    *,
    rounds: int = 3,
    kept: Iterable[int] | None = None,
    gives: frozenset[Need] = IMAGES,
    protections: Collection[Protection] = (),
) -> Scene:
    traffic = predict_traffic(METHODS[method], list(protections), clock=True)
    sent = frozenset(range(rounds))
    recorded = sent if kept is None else frozenset(kept)
    return Scene(
        traffic=traffic,
        rounds={(c, k): Rounds(sent, recorded) for c, kinds in traffic.kinds.items() for k in kinds},
        gives=gives,
        clients=frozenset(range(CLIENTS)),
        people=CLIENTS * 72,
        fewest=72,
    )


def make_uploads(*kinds: Kind, kept: Iterable[int] = range(3), unread: Iterable[int] = ()) -> Scene:
    """Five clients that send these kinds in three rounds, and nothing else."""
    traffic = ObservedTraffic(kinds={Channel.UPLINK: kinds or (Kind.LOCAL_MODEL,)})
    sent = frozenset(range(3))
    found = Rounds(sent, frozenset(kept), frozenset(unread))
    return Scene(
        traffic=traffic,
        rounds={(Channel.UPLINK, k): found for k in traffic.kinds[Channel.UPLINK]},
        gives=IMAGES,
        clients=frozenset(range(CLIENTS)),
        people=CLIENTS * 72,
        fewest=72,
    )


def attempt(
    name: str,
    rounds: Mapping[Kind, Collection[int]],
    outcome: Outcome | None = Outcome.RAN,
    people: PeopleCount | Sequence[PeopleCount] = (),
) -> Attempt:
    return Attempt(
        id=name,
        name=name,
        card=CARDS[name],
        outcome=outcome,
        rounds={k: frozenset(r) for k, r in rounds.items()},
        people=(people,) if isinstance(people, PeopleCount) else tuple(people),
        seconds=100.0,
        reason="" if outcome in (None, Outcome.RAN) else "why",
    )


def try_all(scene: Scene, without: Collection[str] = ()) -> list[Attempt]:
    """Every attack that fits, having opened all that was kept and that it could see."""
    made = []
    for name, card in CARDS.items():
        if name in without or card.explain_unfit(scene.gives) or scene.traffic.missing(card, ""):
            continue
        seen = scene.traffic.visible(card.threat.position)
        kept = {k: r.kept for (_, k), r in scene.rounds.items() if k in card.reads and k in seen and r.kept}
        made.append(attempt(name, kept))
    return made


def answer(scene: Scene, attempts: Collection[Attempt], answers: Answers | None = None) -> dict[str, Question]:
    """The table by id; attacks that were not attempted were left out."""
    given = answers or Answers(attempts=list(attempts), shipped=CARDS)
    return {q.id: q for q in answer_questions(list_questions(scene, DEMANDS), scene, given).questions}


def make_people(
    harm: Harm = Harm.MEMBERSHIP,
    *,
    tested: int = 72,
    hit: int = 0,
    planted: float = 40.0,
    luck: float = 0.0,
    clients: int = CLIENTS,
    groups: Sequence[GroupCount] = (),
) -> PeopleCount:
    """So many tested of each client's 72, `hit` of the first client's; 40 planted in each client."""
    return PeopleCount(
        harm=harm,
        hit_means="named",
        tested={c: tuple(range(100 * c, 100 * c + tested)) for c in range(clients)},
        hit={0: tuple(range(hit))} if hit else {},
        held=dict.fromkeys(range(clients), 72),
        luck=Share(hits=luck, trials=1000),
        groups=tuple(groups),
        planted={c: Share(hits=planted, trials=40) for c in range(clients)},
    )
