"""Questions: what an audit asks of a federation, and how each stands. The one table of coverage.

Questions follow from the wire: what was sent, who could read it, in which rounds, and what may be asked of such
a kind (audit/verdict/aims.py). Attacks, bounds and what else an audit has answer them; leaving an attack out
changes an answer and never a question.

* demonstrated: an attack succeeded on recorded messages.
* bounded: at most a tolerable share of people could be exposed, by every attack that says how many; by a verified
  epsilon; or since it is computed from, or is, what is bounded already.
* inconclusive: it was asked, and the bound is too large or there is none.
* not asked: an attack exists, and was left out, failed to find a recorded round, or did not open the kind.
* no attack: none exists here for this kind and such examples, or none of those could work.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fedaudit.attacks.attack import Card
from fedaudit.audit.checks._check import ConstantKind
from fedaudit.audit.observer.reach import ObservedTraffic, Reach, Rounds
from fedaudit.audit.verdict.aims import FROM_CLIENTS, list_aims
from fedaudit.audit.verdict.attempts import Attempt, list_fitting
from fedaudit.audit.verdict.derived_answers import REST, derive_answers, find_reach
from fedaudit.audit.verdict.fact_answers import (
    answer_by_census,
    answer_by_check,
    describe_constancy,
    describe_true_numbers,
    mention_plays,
)
from fedaudit.audit.verdict.people import ExposureBound, bound_exposure
from fedaudit.audit.verdict.policy import Demands
from fedaudit.audit.verdict.privacy_answers import answer_by_privacy, mention_declared
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind, Modality
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.questions import MESSAGES, Question, State
from fedaudit.reports.result import Finding, Outcome


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A federation, as far as questions and their answers follow from it."""

    traffic: ObservedTraffic
    rounds: Mapping[tuple[Channel, Kind], Rounds]
    modality: Modality
    clients: AbstractSet[int] = frozenset()  # that hold examples
    people: int = 0  # examples of all of them
    # of them, in groups (one class of one client) of fewer than SMALL people; None: not known of all clients
    in_small_groups: int | None = None
    are_persons: bool = False  # or pseudonymous, so that who sent a message tells of a person

    def find_rounds(self, reach: Reach) -> Rounds:
        """In which rounds that position was sent that kind, and in which all of it was kept."""
        rounds = [self.rounds.get((channel, reach.kind), Rounds()) for channel in self.traffic.paths[reach]]
        sent = frozenset[int]().union(*(r.sent for r in rounds))
        unkept = frozenset[int]().union(*(r.sent - r.kept for r in rounds))
        return Rounds(sent, sent - unkept, frozenset[int]().union(*(r.unread for r in rounds)))


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What an audit has to answer questions with."""

    attempts: Sequence[Attempt]
    others: Mapping[str, Card] = field(default_factory=dict)  # every other attack that exists, by name
    seconds: Mapping[str, float] = field(default_factory=dict)  # of these
    left: Mapping[str, str] = field(default_factory=dict)  # name -> why one that could run did not
    findings: Sequence[Finding] = ()
    limits: Sequence[PrivacyBound] = ()
    checked: AbstractSet[Kind] = frozenset()  # counts that were held against what clients hold
    constant: Mapping[Kind, ConstantKind] = field(default_factory=dict)  # what came out the same when played

    def find_constant(self, reach: Reach, scene: Scene) -> ConstantKind | None:
        """What plays say of a kind that only its senders' code makes there."""
        is_own = scene.traffic.paths[reach] == {Channel.UPLINK} or reach.kind.control_plane
        return self.constant.get(reach.kind) if is_own else None


def list_questions(scene: Scene, demands: Demands) -> list[Question]:
    """Everything that is asked of people's data, unanswered; the same before a run and after it."""
    questions = []
    for reach, channels in scene.traffic.paths.items():
        is_sum = reach.kind == Kind.AGGREGATE
        awaited = _list_summed_aims(scene) if is_sum else dict(list_aims(reach.kind, channels, scene.modality))
        for aim, waits in awaited.items():
            questions.append(
                _make_question(
                    aim,
                    reach.position,
                    str(reach.kind),
                    waits and demands.requires(aim, reach.position, scene.are_persons),
                )
            )
    if any(scene.traffic.kinds.get(c) for c in FROM_CLIENTS):
        needed = demands.requires(Aim.LINKAGE, Position.SERVER, scene.are_persons) and scene.are_persons
        questions.append(_make_question(Aim.LINKAGE, Position.SERVER, MESSAGES, needed))
    for q in questions:
        q.tolerable = demands.tolerate(q.aim)
        sent = scene.find_rounds(find_reach(q)).sent if q.kind != MESSAGES else frozenset[int]()
        q.rounds = describe_rounds(sent, sent)
    return questions


def _list_summed_aims(scene: Scene) -> dict[Aim, bool]:
    """Of a sum is asked what is asked of what it sums, as a client would have sent it."""
    aims: dict[Aim, bool] = {}
    for kind in sorted(scene.traffic.summed):
        for aim, waits in list_aims(kind, (Channel.UPLINK,), scene.modality):
            aims[aim] = aims.get(aim, False) or waits
    return {aim: aims[aim] for aim in Aim if aim in aims}


def _make_question(aim: Aim, position: str, kind: str, required: bool) -> Question:
    return Question(
        id=f"{aim}.{position}.{kind}",
        aim=aim,
        observer=str(position),
        kind=kind,
        rounds="",
        required=required,
        state=State.NO_ATTACK,
        why=f"fedaudit has no attack with this aim on {kind.replace('_', ' ')}",
    )


def answer_questions(questions: Sequence[Question], scene: Scene, answers: Answers) -> list[Question]:
    """The same questions with their states; one of whose rounds only some were read becomes two."""
    direct = [part for q in questions for part in _answer(q, scene, answers)]
    answered = derive_answers(direct, scene.traffic)
    answered = [
        mention_declared(q, answers.limits, scene.people)
        if not q.is_answered and _can_noise_answer(q, bool(q.findings))
        else q
        for q in answered
    ]
    return [
        q if q.kind == MESSAGES else mention_plays(q, answers.find_constant(find_reach(q), scene))
        for q in answered
    ]


def _can_noise_answer(q: Question, asked: bool) -> bool:
    """Whether an epsilon answers: code may write a record past the noise, so there somebody must have looked."""
    return asked or q.aim is not Aim.EXFILTRATION


def _answer(q: Question, scene: Scene, answers: Answers) -> list[Question]:
    if q.kind == MESSAGES:
        why = "fedaudit has no attack on the fact that a client sends a message, or on when it does"
        return [q.model_copy(update={"why": why})]
    reach = find_reach(q)
    rounds = scene.find_rounds(reach)
    asking = [a for a in answers.attempts if a.covers(q.aim, reach)]
    answer = answer_by_check(q, answers.findings)
    if not answer and q.aim is Aim.EXFILTRATION and reach.kind in answers.checked:
        return _answer_rounds(q, describe_true_numbers(scene.people), rounds.kept, rounds)
    if not any(a.has_shown(reach.kind) for a in asking):  # what was seen to work outweighs any bound
        if _can_noise_answer(q, bool(asking)):
            answer = answer or answer_by_privacy(q, answers.limits, scene.people)
        answer = answer or answer_by_census(q, scene.in_small_groups, scene.people)
        constant = answers.find_constant(reach, scene)
        seen = frozenset(constant.rounds) & rounds.kept if constant else frozenset[int]()
        if not answer and constant and constant.is_enough and seen:
            return _answer_rounds(q, describe_constancy(constant, scene.people), seen, rounds)
    if answer:
        is_clear = answer["state"] is State.BOUNDED and bool(rounds.unread)
        return [q.model_copy(update=answer), *([_leave_rest(q, rounds.unread, rounds, ())] if is_clear else [])]
    read = frozenset[int]().union(*(a.rounds[reach.kind] for a in asking)) & (
        rounds.sent or _all_rounds(asking, reach)
    )
    if not asking:
        return [q.model_copy(update=_explain_unasked(q, reach, rounds, scene, answers))]
    part = q.model_copy(update={"rounds": describe_rounds((read - rounds.unread) or read, rounds.sent or read)})
    parts = [part.model_copy(update=_answer_by_attacks(part, reach, read, asking, scene, answers))]
    if rest := (rounds.sent - read) | rounds.unread:
        parts.append(_leave_rest(q, rest, rounds, asking))
    return parts


def _answer_rounds(
    q: Question, answer: Mapping[str, object], seen: AbstractSet[int], rounds: Rounds
) -> list[Question]:
    """What is known of the rounds that were seen, and the others as a question of their own."""
    rest = rounds.sent - seen
    if not seen:
        return [_leave_rest(q, rest, rounds, ()).model_copy(update={"id": q.id})]
    part = q.model_copy(update={**answer, "rounds": describe_rounds(seen, rounds.sent)})
    return [part, *([_leave_rest(q, rest, rounds, ())] if rest else [])]


def _all_rounds(asking: Sequence[Attempt], reach: Reach) -> frozenset[int]:
    return frozenset[int]().union(*(a.rounds[reach.kind] for a in asking))


def _answer_by_attacks(
    q: Question, reach: Reach, read: frozenset[int], asking: Sequence[Attempt], scene: Scene, answers: Answers
) -> dict[str, object]:
    """By attacks that opened the artifact: any demonstrates, and all that say how many must bound.

    Where every attack that demonstrates says how many as well, a bound stands beside what was shown.
    """
    names = [a.id for a in asking]
    if asking[0].outcome is None:
        return {"state": State.NOT_ASKED, "findings": names, "why": f"to be asked by {', '.join(names)}"}
    bound, counted = _bound_by_attacks(q, reach, read, asking, scene, answers)
    shown = [a.id for a in asking if a.has_shown(reach.kind)]
    if not shown:
        return bound
    rest = [n for n in names if n not in shown]
    why = f"{shown[0]} succeeded on recorded messages"
    answer: dict[str, object] = {"state": State.DEMONSTRATED, "findings": [*shown, *rest], "why": why}
    is_whole = bound["state"] is State.BOUNDED or "more" in bound  # everybody was read, in every round
    if is_whole and {*shown} <= {*counted}:
        answer |= {"at_most": bound["at_most"], "people": bound["people"]}
    return answer


def _bound_by_attacks(
    q: Question, reach: Reach, read: frozenset[int], asking: Sequence[Attempt], scene: Scene, answers: Answers
) -> tuple[dict[str, object], list[str]]:
    """The answer of attacks that showed nothing, and those of them that say how many people that bounds."""
    names = [a.id for a in asking]
    people = {a.id: p for a in asking if (p := a.find_people(reach.kind))}
    bounds = {name: bound_exposure(p, q.aim, tolerable=q.tolerable) for name, p in people.items()}
    counted = [a for a in asking if a.id in bounds and bounds[a.id].at_most is not None]
    counted.sort(key=lambda a: -bounds[a.id].sensitivity)  # planted people choose the primary attack
    answer: dict[str, object] = {"state": State.INCONCLUSIVE, "findings": names}
    broken = [a for a in answers.attempts if a.outcome is Outcome.FAILED and a.is_about(q.aim, reach)]
    if not counted:
        reasons = [f"{n}: {b.reason[:1].lower()}{b.reason[1:].rstrip('.')}" for n, b in bounds.items()]
        silent = [a for a in asking if a.id not in bounds]
        reasons += [f"{a.id} counts no people: {a.card.uncounted}" for a in silent if a.card.uncounted]
        unable = ", ".join(a.id for a in silent if not a.card.uncounted)
        reasons += (
            [f"{unable} met no rule of the policy and cannot say how many people that bounds"] if unable else []
        )
        known = scene.in_small_groups if q.aim is Aim.ATTRIBUTE else None
        of_all = {} if known is None else {"at_most": known, "people": scene.people}
        return answer | of_all | {"why": "; ".join(reasons)}, []
    able = [a.id for a in counted]
    answer["findings"] = [*able, *(n for n in names if n not in able)]
    first = bounds[counted[0].id]
    unread = scene.clients - {c for c, held in people[counted[0].id].held.items() if held}
    widest = max(counted, key=lambda a: bounds[a.id].at_most or 0)
    wide = bounds[widest.id]
    answer |= {"at_most": wide.at_most, "people": first.people}
    if broken:
        return answer | {"why": "; ".join(f"{a.id} failed: {a.reason}" for a in broken)}, able
    if unread:
        read_clients = len(scene.clients) - len(unread)
        return answer | {
            "at_most": None,
            "why": f"{counted[0].id} read {read_clients} of {len(scene.clients)} clients",
        }, able
    if missed := read - _all_rounds(counted, reach):
        return answer | {
            "why": f"{fmt.plural(len(missed), 'round was', 'rounds were')} not read by {counted[0].id}"
        }, able
    if all((bounds[a.id].at_most or 0) <= q.tolerable * bounds[a.id].people for a in counted):
        return answer | {"state": State.BOUNDED, "why": describe_bound(counted[0].id, first, wide)}, able
    seconds = None
    if wide.more and wide.tested:
        seconds = widest.seconds * wide.more / wide.tested
    why = describe_bound(widest.id, wide, wide)
    if wide.held_out:
        why += (
            "; everybody was tested, and a threshold set by "
            f"{wide.held_out:,} people whom nobody trained on should settle it if nobody is exposed"
        )
    return answer | {"why": why, "more": wide.more, "seconds": seconds}, able


def _explain_unasked(
    q: Question, reach: Reach, rounds: Rounds, scene: Scene, answers: Answers
) -> dict[str, object]:
    """Why no attack read it, and whether one exists that could have."""
    mine = [a for a in answers.attempts if a.is_about(q.aim, reach)]
    if failed := [a for a in mine if a.outcome is Outcome.FAILED]:
        why = "; ".join(f"{a.id} failed: {a.reason}" for a in failed)
        return {"state": State.NOT_ASKED, "findings": [a.id for a in failed], "why": why}
    kept_out = [a for a in mine if not a.ran and rounds.sent and not rounds.kept]
    fitting = [
        name
        for twin in list_twins(reach, scene.traffic)
        for name in list_fitting(answers.others, q.aim, twin, scene.modality)
        if not scene.traffic.missing(answers.others[name], "")
    ]
    unopened = [a for a in mine if a.ran]
    if kept_out or (rounds.sent and not rounds.kept and (fitting or unopened)):
        lost = "set aside unread" if rounds.sent <= rounds.unread else "not recorded (setting record)"
        return {"state": State.NOT_ASKED, "why": f"its messages were {lost}"}
    if fitting:
        fitting = sorted(set(fitting), key=lambda n: (answers.seconds.get(n, math.inf), n))
        reason = next((answers.left[n] for n in fitting if n in answers.left), "")
        why = f"left out: {', '.join(fitting)}"
        text = f"{why} ({reason})" if reason else why
        seconds = answers.seconds.get(fitting[0])
        return {"state": State.NOT_ASKED, "why": text, "next_attack": fitting[0], "seconds": seconds}
    if unopened:
        return {"state": State.NOT_ASKED, "why": f"{', '.join(a.id for a in unopened)} did not open it"}
    if mine:
        return {"state": State.NO_ATTACK, "why": "; ".join(f"{a.id} could not: {a.reason}" for a in mine)}
    cards = {**answers.others, **{a.id: a.card for a in answers.attempts}}
    unfit = sorted(
        {m for c in cards.values() if c.aim is q.aim and c.pick_targets([reach.kind]) for m in c.modality}
    )
    if unfit and scene.modality not in unfit:
        what = f"{' and '.join(unfit)} data only, and these are {scene.modality} data"
        return {"why": f"attacks with this aim exist for {what}"}
    return {}


def list_twins(reach: Reach, traffic: ObservedTraffic) -> list[Reach]:
    """The same artifact as it is read here, and elsewhere where the server sends it: one message for all."""
    paths = traffic.paths
    if FROM_CLIENTS & paths[reach]:
        return [reach]
    return [
        reach,
        *(
            r
            for r, channels in paths.items()
            if r.kind == reach.kind and r != reach and not FROM_CLIENTS & channels
        ),
    ]


def _leave_rest(q: Question, rest: frozenset[int], rounds: Rounds, asking: Sequence[Attempt]) -> Question:
    """The rounds that nothing read, as a question of its own."""
    unkept = rest - rounds.kept - rounds.unread
    reasons = []
    if unread := rest & rounds.unread:
        reasons.append(f"of {fmt.plural(len(unread), 'round')} a message was set aside unread")
    if unkept:
        reasons.append(f"{fmt.plural(len(unkept), 'round was', 'rounds were')} not recorded (setting record)")
    if kept := (rest & rounds.kept) - rounds.unread:
        names = ", ".join(a.id for a in asking)
        reasons.append(
            f"{fmt.plural(len(kept), 'recorded round was', 'recorded rounds were')} not read by {names}"
        )
    update = {"state": State.NOT_ASKED, "why": "; ".join(reasons), "rounds": describe_rounds(rest, rounds.sent)}
    return q.model_copy(update={"id": q.id + REST} | update)


def describe_bound(attack: str, bound: ExposureBound, widest: ExposureBound) -> str:
    """What an attack found of those it tested, and how many people that leaves."""
    nobody = "None of" if not bound.hits else f"{bound.hits:,} of"
    were = "were" if bound.hits > 1 else "was"
    tested = f"{nobody} {fmt.plural(bound.tested, 'person', 'people')} tested {were} hit by {attack}"
    left = (
        f"; with the protections at most {fmt.percent(bound.left)} of planted people are"
        if bound.left is not None and bound.by == "plants"
        else ""
    )
    return f"{tested}; at most {widest.at_most:,} of {widest.people:,} could be exposed{left}"


def describe_rounds(some: AbstractSet[int], every: AbstractSet[int]) -> str:
    """Rounds in words, counted from 1: "all 15 rounds", "round 15 of 15", "rounds 1 to 14 of 15"."""
    if not every:
        return "all rounds"
    total = max(every) + 1
    if len(some) == len(every):
        return "the only round" if len(every) == 1 else f"all {len(every):,} rounds"
    if len(some) == 1:
        return f"round {next(iter(some)) + 1:,} of {total:,}"
    low, high = min(some), max(some)
    if high - low + 1 == len(some):
        return f"rounds {low + 1:,} to {high + 1:,} of {total:,}"
    return f"{len(some):,} of {len(every):,} rounds"
