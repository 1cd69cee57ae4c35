"""Questions: what an audit asks of a federation, and how each stands. The one table of coverage.

Questions follow from the wire: what was sent, who could read it, and what may be asked of such a kind
(audit/verdict/aims.py). Attacks, bounds and what else an audit has answer them; leaving an attack out changes an
answer and never a question.

* demonstrated: an attack hit more people than is tolerable, or succeeded on recorded messages.
* bounded: no more than is tolerable are hit by any attack, and every attack of the policy's panel was among
  them; or a verified epsilon, or a message held against what it must be, says so.
* inconclusive: it was asked, and the limit is too large or there is none.
* not asked: an attack exists, and was left out, failed to find a recorded round, or did not open the kind.
* no attack: none exists here for this kind and such examples, or none of those could work.

An attack runs once on a message and answers for everybody who reads that message.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedaudit.attacks.attack import Card
from fedaudit.audit.observer.reach import Reach, Rounds
from fedaudit.audit.verdict.aims import FROM_CLIENTS, list_aims
from fedaudit.audit.verdict.attempts import Attempt, is_about, list_fitting
from fedaudit.audit.verdict.fact_answers import (
    answer_by_check,
    describe_constancy,
    describe_true_numbers,
    mention_plays,
)
from fedaudit.audit.verdict.people import PeopleBound, bound_people, judge_limits, share_alpha
from fedaudit.audit.verdict.policy import Demands
from fedaudit.audit.verdict.privacy_answers import PrivacyLimit, limit_by_privacy, mention_declared
from fedaudit.audit.verdict.scene import Answers, Scene, describe_rounds, find_reach, list_twins
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports import format as fmt
from fedaudit.reports.questions import MESSAGES, Question, State
from fedaudit.reports.result import Outcome

MOST_LACKING = 3  # attacks of the panel that a sentence names


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


class Lacking(NamedTuple):
    """An attack of the panel that limits nothing of what a question is about."""

    name: str
    why: str
    is_left_out: bool = False
    ran: bool = False  # on all of it


def list_lacking(questions: Sequence[Question], scene: Scene, answers: Answers) -> dict[str, list[Lacking]]:
    """By question which attacks of the panel say nothing of it, so that it has no upper limit by attacks."""
    found = {}
    for q in questions:
        panel = _list_panel(q, scene, answers)
        reach = find_reach(q) if panel else None
        rounds = scene.find_rounds(reach) if reach else Rounds()
        lacking = [x for n in panel if reach and (x := _find_lacking(n, reach, rounds, scene, answers))]
        found[q.id] = lacking if panel else [Lacking("", "no attack of the panel is about it")]
    return found


def _list_panel(q: Question, scene: Scene, answers: Answers) -> list[str]:
    """Names of the panel's attacks on a question."""
    fitting = _list_fitting(q, answers.shipped, scene)
    return [n for n in answers.panel.list_attacks(q.aim, q.kind, scene.fewest) if n in fitting]


def answer_questions(questions: Sequence[Question], scene: Scene, answers: Answers) -> list[Question]:
    """The same questions with their states."""
    fitting = {q.id: _list_fitting(q, answers.shipped, scene) for q in questions}
    panels = {q.id: _list_panel(q, scene, answers) for q in questions}
    return [
        _answer(
            q,
            scene,
            answers,
            panels[q.id],
            # a reader's attacks look so often, whichever of them ran
            panel_looks=sum(len(panels[o.id]) for o in questions if o.observer == q.observer),
            other_looks=sum(len(fitting[o.id]) for o in questions if o.observer == q.observer),
        )
        for q in questions
    ]


def _list_fitting(q: Question, cards: Mapping[str, Card], scene: Scene) -> list[str]:
    """Names of the attacks that can ask a question of whoever reads the same message."""
    if q.kind == MESSAGES:
        return []
    places = list_twins(find_reach(q), scene.traffic)
    return [
        name
        for name, card in cards.items()
        if scene.modality in card.modality
        and any(is_about(card, q.aim, place) for place in places)
        and not scene.traffic.missing(card, "")
    ]


def _answer(
    q: Question, scene: Scene, answers: Answers, panel: Sequence[str], *, panel_looks: int, other_looks: int
) -> Question:
    if q.kind == MESSAGES:
        why = "fedaudit has no attack on the fact that a client sends a message, or on when it does"
        return q.model_copy(update={"why": why})
    reach = find_reach(q)
    rounds = scene.find_rounds(reach)
    places = list_twins(reach, scene.traffic)
    asking = [a for a in answers.attempts if any(a.covers(q.aim, place) for place in places)]
    read = frozenset[int]().union(*(a.rounds[reach.kind] for a in asking)) & (
        rounds.sent or _read_all(asking, reach)
    )
    if asking:
        q = q.model_copy(
            update={"rounds": describe_rounds(read, rounds.sent or read), "findings": [a.id for a in asking]}
        )
    lacking = [x for n in panel if (x := _find_lacking(n, reach, rounds, scene, answers))]
    if asking and asking[0].outcome is None:
        names = ", ".join(a.id for a in asking)
        why = f"to be asked by {names}{_describe_lacking(lacking, answers, '; no limit without ')}"
        return q.model_copy(update={"state": State.NOT_ASKED, "why": why})
    own = [a.id for a in answers.attempts if not a.shipped]
    bounds = {
        a.id: bound_people(
            people,
            alpha=share_alpha(
                is_panel=a.shipped in panel,
                looks=panel_looks if a.shipped in panel else other_looks,
                place=0 if a.shipped else own.index(a.id) + 1,
            ),
            tolerable=q.tolerable,
        )
        for a in asking
        if (people := a.find_people(reach.kind))
    }
    found = _Limits(q, scene, answers, panel, lacking, bounds)
    shown = [a.id for a in asking if a.has_shown(reach.kind)]
    exact = _answer_exactly(q, reach, rounds, scene, answers)
    known = found.fields | ({"at_most": max(0, found.at_least)} if exact else {})
    if answer := answer_by_check(q, answers.findings):
        return q.model_copy(update=known | answer)
    state = judge_limits(found.at_least, known["at_most"], found.people, q.tolerable)
    if shown or state is State.DEMONSTRATED or found.refuted:
        return q.model_copy(update=known | {"state": State.DEMONSTRATED} | found.describe_exposed(shown))
    if exact or state is State.BOUNDED:
        return q.model_copy(update=known | {"state": State.BOUNDED, "why": exact or found.why})
    if not asking:
        q = q.model_copy(update=_explain_unasked(q, reach, rounds, scene, answers))
    else:
        q = q.model_copy(update=known | {"state": State.INCONCLUSIVE} | found.describe_open(asking))
    if _can_noise_answer(q, panel, lacking):
        q = mention_declared(q, answers.limits, scene.people, len(scene.clients))
    return mention_plays(q, answers.find_constant(reach, scene))


def _can_noise_answer(q: Question, panel: Sequence[str], lacking: Sequence[Lacking]) -> bool:
    """Whether an epsilon answers: in the place of attacks that see nothing, and of none that did not run.

    Code may write a record past the noise, so there somebody must have looked.
    """
    return all(x.ran for x in lacking) and (bool(panel) or q.aim is not Aim.EXFILTRATION)


def _answer_exactly(q: Question, reach: Reach, rounds: Rounds, scene: Scene, answers: Answers) -> str:
    """Why nothing of anybody's can be in any round of what was sent; empty where that is not known."""
    if not rounds.sent:
        return ""
    if q.aim is Aim.EXFILTRATION and reach.kind in answers.checked and rounds.sent == rounds.kept:
        return describe_true_numbers()
    channels = scene.traffic.paths[reach]
    if not FROM_CLIENTS & channels:  # made of what the server knows of clients, which is all of this
        known = [(c, k) for c in (*FROM_CLIENTS, Channel.OBSERVED) for k in scene.traffic.kinds.get(c, ())]
    elif channels == {Channel.UPLINK} or reach.kind.control_plane:
        known = [(c, reach.kind) for c in channels & FROM_CLIENTS]
    else:
        return ""

    def is_constant(channel: Channel, kind: Kind) -> bool:
        found, constant = scene.rounds.get((channel, kind), Rounds()), answers.constant.get(kind)
        if constant is None or not constant.is_enough:
            return False
        return found.sent <= (found.kept - found.unread) & frozenset(constant.rounds)

    if not known or not all(is_constant(c, k) for c, k in known):
        return ""
    return describe_constancy(min((answers.constant[k] for _, k in known), key=lambda c: c.plays))


class _Limits:
    """What the attacks that count people, and an epsilon, say of one question."""

    def __init__(
        self,
        q: Question,
        scene: Scene,
        answers: Answers,
        panel: Sequence[str],
        lacking: Sequence[Lacking],
        bounds: Mapping[str, PeopleBound],
    ) -> None:
        self._q, self._answers, self._panel, self._lacking, self._bounds = q, answers, panel, lacking, bounds
        ids = {a.shipped: a.id for a in answers.attempts if a.id in bounds}
        self._blind = {ids[n]: bounds[ids[n]].blind for n in panel if n in ids and bounds[ids[n]].blind}
        self.people = scene.people or max((b.people for b in bounds.values()), default=0)
        self._lowest = max(bounds, key=lambda i: bounds[i].at_least, default="")
        self.at_least = bounds[self._lowest].at_least if bounds else 0
        limited = {i: b for i, b in bounds.items() if b.at_most is not None}
        self._widest = max(limited, key=lambda i: limited[i].at_most or 0, default="")
        is_whole = bool(panel and limited) and not lacking and not self._blind
        at_most = limited[self._widest].at_most if is_whole else None
        self.refuted: PrivacyLimit | None = None
        self.by_privacy: PrivacyLimit | None = None
        if _can_noise_answer(q, panel, lacking):
            limit = limit_by_privacy(q, answers.limits, self.people, len(scene.clients))
            if limit and self.at_least > limit.at_most:
                self.refuted = limit
            elif limit and (at_most is None or limit.at_most < at_most):
                self.by_privacy, at_most = limit, limit.at_most
        self.at_most = None if at_most is None else max(at_most, self.at_least)

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the question."""
        return {
            "at_least": self.at_least,
            "at_most": self.at_most,
            "people": self.people,
            "is_refuting": self.refuted is not None,
        }

    @property
    def why(self) -> str:
        """What a tolerable upper limit rests on."""
        return self.by_privacy.why if self.by_privacy else self._describe(self._widest)

    def _describe(self, attack: str) -> str:
        """What an attack found of those it tested, and how many people that leaves."""
        b = self._bounds[attack]
        nobody = "None of" if not b.hits else f"{b.hits:,} of"
        were = "were" if b.hits > 1 else "was"
        tested = f"{nobody} {fmt.plural(b.tested, 'person', 'people')} tested {were} hit by {attack}"
        if self.at_most is None:
            return tested
        return (
            f"{tested}; at most {self.at_most:,} of {self.people:,} are, net of luck, by any attack of the panel"
        )

    def describe_exposed(self, shown: Sequence[str]) -> dict[str, Any]:
        """Fields of a question whose harm was seen."""
        first = shown[0] if shown else self._lowest
        rest = [i for i in self._q.findings if i not in shown and i != first]
        why = f"{first} succeeded on recorded messages"
        if not shown or self.at_least:
            b = self._bounds[self._lowest]
            why = (
                f"{self._lowest} hit {b.hits:,} of {fmt.plural(b.tested, 'person', 'people')} tested, at least "
                f"{b.at_least:,} of them because their data were in"
            )
        if self.refuted:
            why += f", more than {self.refuted.bound.epsilon:.3g} allows: the epsilon is refuted"
        return {"findings": [*dict.fromkeys([first, *shown, *rest])], "why": why}

    def describe_open(self, asking: Sequence[Attempt]) -> dict[str, Any]:
        """Fields of a question that was asked: what is missing, or how large the limit is."""
        if not self._panel:
            silent = [f"{a.id} counts no people: {a.card.uncounted}" for a in asking if a.card.uncounted]
            why = f"{', '.join(a.id for a in asking)} showed nothing, and no attack of the panel is about it"
            return {"why": "; ".join([why, *silent])}
        if self._lacking:
            left = [x.name for x in self._lacking if x.is_left_out]
            seconds = self._answers.seconds
            first = min(left, key=lambda n: (seconds.get(n, math.inf), n), default="")
            why = _describe_lacking(self._lacking, self._answers, "the panel lacks ")
            return {"why": why, "next_attack": first, "seconds": seconds.get(first)}
        if self._blind:
            why = "; ".join(f"{i} is blind here: {why}" for i, why in self._blind.items())
            return {"why": f"there is no limit: {why}"}
        if not self._widest:
            return {"why": "; ".join(f"{i}: {b.reason}" for i, b in self._bounds.items())}
        wide = self._bounds[self._widest]
        why = self._describe(self._widest)
        if wide.held_out:
            why += (
                "; everybody was tested, and a threshold set by "
                f"{wide.held_out:,} people whom nobody trained on should settle it if nobody is exposed"
            )
        seconds_ = next(a.seconds for a in asking if a.id == self._widest)
        more = (
            {"more": wide.more, "seconds": seconds_ * wide.more / wide.tested}
            if wide.more and wide.tested
            else {}
        )
        return {"why": why, **more}


def _find_lacking(name: str, reach: Reach, rounds: Rounds, scene: Scene, answers: Answers) -> Lacking | None:
    """Why an attack of the panel says nothing of the people behind all that was sent; None where it does."""
    mine = [a for a in answers.attempts if a.shipped == name]
    if not mine:
        changed = [a.id for a in answers.attempts if a.name == name]
        why = answers.left.get(name, "")
        why = f"{changed[0]} has settings of its own" if changed else f"left out: {why}" if why else "left out"
        return Lacking(name, why, is_left_out=True)
    attempt = mine[0]
    if not attempt.ran:
        failed = "failed" if attempt.outcome is Outcome.FAILED else "could not run"
        return Lacking(name, f"{failed}: {attempt.reason}")
    if rounds.unread:
        return Lacking(name, f"of {fmt.plural(len(rounds.unread), 'round')} a message was set aside unread")
    opened = attempt.rounds.get(reach.kind, frozenset[int]())
    if unread := rounds.sent - opened:
        if unkept := unread - rounds.kept:
            many = fmt.plural(len(unkept), "round was", "rounds were")
            return Lacking(name, f"{many} not recorded (setting record)")
        return Lacking(name, f"did not read {describe_rounds(unread, rounds.sent)}")
    if attempt.outcome is None:
        return None
    people = attempt.find_people(reach.kind)
    if people is None:
        uncounted = f": {attempt.card.uncounted}" if attempt.card.uncounted else ""
        return Lacking(name, f"counts no people here{uncounted}", ran=True)
    if not any(people.tested.values()) or not people.luck.trials:
        return Lacking(name, "tested nobody beside people who were held out", ran=True)
    unread_clients = scene.clients - {c for c, held in people.held.items() if held}
    if unread_clients:
        return Lacking(name, f"read {len(scene.clients) - len(unread_clients)} of {len(scene.clients)} clients")
    return None


def _describe_lacking(lacking: Sequence[Lacking], answers: Answers, before: str) -> str:
    """The first few with why, and how long those that were left out take; empty without any."""
    if not lacking:
        return ""
    parts = []
    for name, why, is_left_out, _ in lacking[:MOST_LACKING]:
        seconds = answers.seconds.get(name) if is_left_out else None
        time = f", about {fmt.duration(max(1, round(seconds)))}" if seconds is not None else ""
        parts.append(f"{name} ({why}{time})")
    more = f" and {len(lacking) - MOST_LACKING} more" if len(lacking) > MOST_LACKING else ""
    return f"{before}{', '.join(parts)}{more}"


def _read_all(asking: Sequence[Attempt], reach: Reach) -> frozenset[int]:
    return frozenset[int]().union(*(a.rounds[reach.kind] for a in asking))


def _explain_unasked(
    q: Question, reach: Reach, rounds: Rounds, scene: Scene, answers: Answers
) -> dict[str, object]:
    """Why no attack read it, and whether one exists that could have."""
    places = list_twins(reach, scene.traffic)
    mine = [a for a in answers.attempts if any(a.is_about(q.aim, place) for place in places)]
    if failed := [a for a in mine if a.outcome is Outcome.FAILED]:
        why = "; ".join(f"{a.id} failed: {a.reason}" for a in failed)
        return {"state": State.NOT_ASKED, "findings": [a.id for a in failed], "why": why}
    kept_out = [a for a in mine if not a.ran and rounds.sent and not (rounds.kept | rounds.unread)]
    fitting = [
        name
        for twin in places
        for name in list_fitting(answers.others, q.aim, twin, scene.modality)
        if not scene.traffic.missing(answers.others[name], "")
    ]
    unopened = [a for a in mine if a.ran]
    if kept_out or (rounds.sent and not (rounds.kept | rounds.unread) and (fitting or unopened)):
        return {"state": State.NOT_ASKED, "why": "its messages were not recorded (setting record)"}
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
