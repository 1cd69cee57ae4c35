"""Questions: who reads what, by what can happen to people; and how each stands. The one table of coverage.

A question is a reader and a harm. It follows from what was sent: leaving an attack out changes an answer and
never a question. Each has two limits of one quantity, the people who are hit because their data were in:

* L, from below, by any attack;
* U, from above, by a complete panel: all attacks that the policy names for each kind of message that is read have
  run on all of it, counted people, and were not seen to be blind. A verified epsilon may lower it, and so may a
  message that was held against what it must be. U is never smaller than L.

Exposed: L is more than is tolerable, or that of a group is, or an epsilon is refuted by it. Clear: U is no more
than is tolerable, nor that of any group. Open: neither, with what is missing. An attack runs once on a message
and answers for everybody who reads that message.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from fedaudit.audit.observer.check import ENOUGH
from fedaudit.audit.observer.reach import Reach, Rounds
from fedaudit.audit.verdict.people import (
    PeopleBound,
    bound_people,
    count_allowed_in_group,
    rate_people,
    share_alpha,
)
from fedaudit.audit.verdict.scene import (
    Answers,
    Attempt,
    PrivacyLimit,
    Reading,
    Scene,
    describe_rounds,
    find_exact,
    is_about,
    limit_by_privacy,
    list_twins,
    mention_declared,
)
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm, Position
from fedaudit.reports import format as fmt
from fedaudit.reports.questions import GroupLimits, Question, State, count_allowed
from fedaudit.reports.result import Outcome, Severity

MOST_LACKING = 3  # attacks of the panel that a sentence names
PRESENCE = "whether and when a client sends"


class Lacking(NamedTuple):
    """An attack of the panel that limits nothing of a kind of message that is read."""

    name: str  # empty: there is none for that kind
    kind: str
    why: str  # without a name, what there is none for
    is_left_out: bool = False
    ran: bool = False  # on all of it


class Shown(NamedTuple):
    """What one attack did to most people, in the question that it speaks on most."""

    severity: Severity
    question: Question
    bound: PeopleBound


class Answered(NamedTuple):
    """Of one table its questions, and by attack what it showed, where it counts people."""

    questions: list[Question]
    shown: Mapping[str, Shown]


def answer_questions(questions: Sequence[Question], scene: Scene, answers: Answers) -> Answered:
    """The same questions with their states, and what each attack showed in them."""
    asked = _open_cells(questions, scene, answers)
    for observer in {c.question.observer for c in asked}:
        mine = [c for c in asked if c.question.observer == observer]
        # a reader's attacks look so often, whichever of them ran
        panel, others = sum(c.panel_looks for c in mine), sum(c.other_looks for c in mine)
        for cell in mine:
            cell.bound(panel, others)
    shown: dict[str, Shown] = {}
    for cell in asked:
        for attack, found in cell.list_shown():
            if attack not in shown or _weigh(found) > _weigh(shown[attack]):
                shown[attack] = found
    return Answered([c.answer() for c in asked], shown)


def _weigh(shown: Shown) -> tuple[int, bool, int, float]:
    """What is severe first, of that what is not mild; where nobody is hit for sure, who is hit most."""
    rank, bound = shown.severity.rank, shown.bound
    return rank, rank > 0 and not shown.question.harm.is_mild, bound.at_least, bound.net


def list_lacking(questions: Sequence[Question], scene: Scene, answers: Answers) -> dict[str, list[Lacking]]:
    """By question which attacks of the panel say nothing of it, so that it has no upper limit by attacks."""
    return {cell.question.id: cell.lacking for cell in _open_cells(questions, scene, answers)}


def _open_cells(questions: Sequence[Question], scene: Scene, answers: Answers) -> "list[_Cell]":
    readings = scene.list_readings()
    return [_Cell(q, readings[Position(q.observer), q.harm], scene, answers) for q in questions]


class _Read(NamedTuple):
    """A kind that is read, with what an audit has on it."""

    reading: Reading
    places: list[Reach]  # where the same message is read
    rounds: Rounds
    exact: str  # why nothing of anybody's is in it; empty where that is not known
    panel: list[str]  # names of attacks
    fitting: list[str]  # all that come with fedaudit


class _Cell:
    """One question while it is answered."""

    def __init__(self, question: Question, readings: Sequence[Reading], scene: Scene, answers: Answers) -> None:
        self.question, self._scene, self._answers = question, scene, answers
        self._reads = [self._look_up(r) for r in readings]
        self._bounds: dict[tuple[str, Kind], PeopleBound] = {}

    def _look_up(self, reading: Reading) -> _Read:
        """What the audit has on one kind."""
        scene, answers = self._scene, self._answers
        places = list_twins(reading.reach, scene.traffic)
        fitting = [
            name
            for name, card in answers.shipped.items()
            if not card.explain_unfit(scene.gives)
            and any(is_about(card, reading.aims, place) for place in places)
            and not scene.traffic.missing(card, "")
        ]
        rounds = scene.find_rounds(reading.reach)
        panel = [n for n in answers.panel.list_attacks(reading.reach.kind, scene.fewest) if n in fitting]
        exact = find_exact(self.question.harm, reading, rounds, scene, answers)
        return _Read(reading, places, rounds, exact, panel, fitting)

    @property
    def panel_looks(self) -> int:
        return sum(len(r.panel) for r in self._reads)

    @property
    def other_looks(self) -> int:
        return sum(len(r.fitting) for r in self._reads)

    @cached_property
    def asking(self) -> list[Attempt]:
        """Attacks that read something of it."""
        return [a for a in self._answers.attempts if any(a.covers(r.reading.aims, r.places) for r in self._reads)]

    @cached_property
    def lacking(self) -> list[Lacking]:
        """What keeps attacks from limiting it."""
        found = []
        for read in self._reads:
            kind = str(read.reading.reach.kind)
            if read.exact:
                continue
            if not read.panel:
                found.append(Lacking("", kind, kind.replace("_", " ")))
            found += [x for n in read.panel if (x := self._find_lacking(n, read))]
        if self.question.harm is Harm.LINKAGE and self.question.observer == Position.SERVER:
            found.append(Lacking("", PRESENCE, PRESENCE))
        return found

    def _find_lacking(self, name: str, read: _Read) -> Lacking | None:
        """Why an attack of the panel says nothing of the people behind all that was sent; None where it does."""
        rounds, kind, answers, scene = read.rounds, read.reading.reach.kind, self._answers, self._scene
        mine = [a for a in answers.attempts if a.shipped == name]
        if not mine:
            changed = [a.id for a in answers.attempts if a.name == name]
            why = answers.left.get(name, "")
            why = (
                f"{changed[0]} has settings of its own" if changed else f"left out: {why}" if why else "left out"
            )
            return Lacking(name, kind, why, is_left_out=True)
        attempt = mine[0]
        if not attempt.ran:
            failed = "failed" if attempt.outcome is Outcome.FAILED else "could not run"
            return Lacking(name, kind, f"{failed}: {attempt.reason}")
        if rounds.unread:
            many = fmt.plural(len(rounds.unread), "round")
            return Lacking(name, kind, f"of {many} a message was set aside unread")
        if unread := rounds.sent - attempt.rounds.get(kind, frozenset[int]()):
            if unkept := unread - rounds.kept:
                many = fmt.plural(len(unkept), "round was", "rounds were")
                return Lacking(name, kind, f"{many} not recorded (setting record)")
            return Lacking(name, kind, f"did not read {describe_rounds(unread, rounds.sent)}")
        if attempt.outcome is None:
            return None
        people = attempt.find_people(self.question.harm, kind)
        if people is None:
            uncounted = attempt.reason or attempt.card.uncounted
            return Lacking(name, kind, f"counts nobody here{f': {uncounted}' if uncounted else ''}", ran=True)
        if not any(people.tested.values()) or not people.luck.trials:
            return Lacking(name, kind, "tested nobody beside people who were held out", ran=True)
        if scene.clients - {c for c, held in people.held.items() if held}:
            some = sum(bool(people.held.get(c)) for c in scene.clients)
            return Lacking(name, kind, f"read {some} of {len(scene.clients)} clients")
        return None

    def bound(self, panel_looks: int, other_looks: int) -> None:
        """Limits of every attack that counts people, of each kind that it read."""
        own = [a.id for a in self._answers.attempts if not a.shipped]
        for read in self._reads:
            kind = read.reading.reach.kind
            for a in self.asking:
                people = a.find_people(self.question.harm, kind)
                if people is None or kind not in a.rounds:
                    continue
                is_panel = a.shipped in read.panel
                alpha = share_alpha(
                    is_panel=is_panel,
                    looks=panel_looks if is_panel else other_looks,
                    place=0 if a.shipped else own.index(a.id) + 1,
                )
                self._bounds[a.id, kind] = bound_people(people, alpha=alpha, tolerable=self.question.tolerable)

    def list_shown(self) -> list[tuple[str, Shown]]:
        """What each attack showed, of each kind."""
        q = self.question
        return [
            (
                attack,
                Shown(rate_people(b.at_least, b.people, b.groups, q.tolerable, is_mild=q.harm.is_mild), q, b),
            )
            for (attack, _), b in self._bounds.items()
        ]

    def answer(self) -> Question:
        """The question as it stands."""
        q, answers = self.question, self._answers
        if self.asking and self.asking[0].outcome is None:
            names = ", ".join(a.id for a in self.asking)
            why = f"to be asked by {names}{self._describe_lacking('; no limit without ')}"
            return q.model_copy(update={"findings": [a.id for a in self.asking], "why": why})
        raw = {f"raw-{k}" for k in q.kinds} if q.harm is Harm.RECORD else set[str]()
        seen = [f for f in answers.findings if f.id in raw and f.severity.rank]
        people = q.people or max((b.people for b in self._bounds.values()), default=0)
        worst = max(self._bounds, key=lambda k: self._bounds[k].at_least, default=None)
        at_least = self._bounds[worst].at_least if worst else 0
        if seen:
            at_least = max(1, at_least, *(f.at_least for f in seen))
        exact = self._exact
        limited = {k: b for k, b in self._bounds.items() if b.at_most is not None and k[1] not in exact}
        widest = max(limited, key=lambda k: limited[k].at_most or 0, default=None)
        unlimited = [
            f"{attack}: {b.reason}"
            for (attack, kind), b in self._bounds.items()
            if b.reason and kind not in exact and self._is_panel(attack, kind)
        ]
        unlimited += [answers.doubt] if answers.doubt and self._bounds else []
        is_whole = bool(self._reads and people) and not (self.lacking or unlimited)
        at_most = (limited[widest].at_most if widest else 0) if is_whole else None
        refuted, usable = self._find_privacy(people, at_least)
        by_privacy = usable if usable and (at_most is None or usable.at_most < at_most) else None
        at_most = by_privacy.at_most if by_privacy else at_most
        groups = self._list_groups(has_limit=at_most is not None, privacy=usable)
        known: dict[str, object] = {
            "people": people,
            "at_least": at_least,
            "at_most": None if at_most is None else max(at_most, at_least),
            "groups": groups,
            "is_refuting": refuted is not None,
            "findings": [f.id for f in seen] + self._order(worst[0] if worst else ""),
        }
        if worst:
            known |= {name: getattr(self._bounds[worst], name) for name in ("hits", "tested", "luck")}
        q = q.model_copy(update=known)
        allowed = count_allowed(people, q.tolerable)
        if at_least > allowed or refuted or any(self._is_over(g, g.at_least) for g in groups):
            why = (
                f"{seen[0].id} was seen in recorded messages"
                if seen
                else self._describe_exposed(worst, groups, refuted)
            )
            return q.model_copy(update={"state": State.EXPOSED, "why": why})
        if q.at_most is not None and q.at_most <= allowed and not groups:
            why = self._describe_clear(q, widest, by_privacy)
            earned = self._describe_earned(widest, by_privacy)
            return q.model_copy(update={"state": State.CLEAR, "why": why, "earned": earned})
        return q.model_copy(update=self._describe_open(q, widest, unlimited))

    def _is_panel(self, attack: str, kind: Kind) -> bool:
        shipped = next(a.shipped for a in self._answers.attempts if a.id == attack)
        return any(shipped in r.panel for r in self._reads if r.reading.reach.kind == kind)

    def _order(self, first: str) -> list[str]:
        """Ids of the attacks that asked, those that count somebody first."""
        names = [a.id for a in self.asking]
        return sorted(names, key=lambda n: (n != first, not any(n == a for a, _ in self._bounds)))

    @property
    def _exact(self) -> set[Kind]:
        """Kinds in which nothing of anybody's is, whatever attacks make of them."""
        return {r.reading.reach.kind for r in self._reads if r.exact}

    def _is_over(self, g: GroupLimits, number: int | None) -> bool:
        return number is not None and number > count_allowed_in_group(g.people, self.question.tolerable)

    def _list_groups(self, *, has_limit: bool, privacy: PrivacyLimit | None) -> list[GroupLimits]:
        """Groups of whom more are hit than is tolerable of a group, or may be; the worst of each name."""
        found: dict[str, GroupLimits] = {}
        for (attack, kind), b in self._bounds.items():
            for g in b.groups:
                most = None if not has_limit else g.at_least if kind in self._exact else g.at_most
                if privacy is not None and most is not None:
                    most = max(g.at_least, min(most, count_allowed(g.people, privacy.share)))
                here = GroupLimits(name=g.name, people=g.people, at_least=g.at_least, at_most=most, attack=attack)
                if self._is_over(here, here.at_least) or self._is_over(here, most):
                    worse = [x for x in (found.get(g.name), here) if x is not None]
                    found[g.name] = max(worse, key=lambda x: (x.at_least, x.at_most or 0))
        return sorted(found.values(), key=lambda g: (-g.at_least, -(g.at_most or 0), g.name))

    def _find_privacy(self, people: int, at_least: int) -> tuple[PrivacyLimit | None, PrivacyLimit | None]:
        """An epsilon that is refuted by what was hit, or one that limits as well as the attacks do.

        It stands in for attacks that see nothing or that nobody has, and for none that did not run. Of records
        somebody must have looked: code may write one past the noise.
        """
        limit = limit_by_privacy(self.question, self._answers.limits, people, len(self._scene.clients))
        if limit is None:
            return None, None
        if at_least > limit.at_most:
            return limit, None
        is_record = self.question.harm is Harm.RECORD
        is_usable = all(x.ran or not (x.name or is_record) for x in self.lacking)
        return None, limit if is_usable else None

    def _describe(self, key: tuple[str, Kind]) -> str:
        """What an attack found of those it tested."""
        b, is_client = self._bounds[key], self.question.harm is Harm.CLIENT_FACT
        tested = fmt.plural(b.tested, "client" if is_client else "person", "" if is_client else "people")
        return f"{key[0]} hit {f'{b.hits:,}' if b.hits else 'none'} of {tested} tested"

    def _describe_exposed(
        self, worst: tuple[str, Kind] | None, groups: Sequence[GroupLimits], refuted: PrivacyLimit | None
    ) -> str:
        if worst is None:
            return ""
        over = [g for g in groups if self._is_over(g, g.at_least)]
        least = self._bounds[worst].at_least
        why = f"{self._describe(worst)}, at least {least:,} because their data were in"
        if over and least <= count_allowed(self.question.people, self.question.tolerable):
            g = over[0]
            why = (
                f"{g.attack} hit at least {g.at_least:,} of {g.people:,} people of {g.name} because "
                "their data were in"
            )
        if refuted:
            why += f", more than {refuted.bound.epsilon:.3g} allows: the epsilon is refuted"
        return why

    def _describe_clear(self, q: Question, widest: tuple[str, Kind] | None, privacy: PrivacyLimit | None) -> str:
        if privacy is not None:
            return privacy.why
        if widest is not None:
            who = "clients" if q.harm is Harm.CLIENT_FACT else "people"
            return (
                f"{self._describe(widest)}; at most {q.at_most:,} of {q.people:,} {who} are, net of luck, by any "
                "attack that ran, all of the panel among them"
            )
        return "; ".join(dict.fromkeys(r.exact for r in self._reads))

    def _describe_earned(self, widest: tuple[str, Kind] | None, privacy: PrivacyLimit | None) -> str:
        """Where a limit comes from, in a few words for who signs."""
        if privacy is not None:
            return "limited by a verified epsilon"
        if widest is None:
            return "what is sent does not depend on anybody's data"
        b, who = self._bounds[widest], "clients" if self.question.harm is Harm.CLIENT_FACT else "people"
        number = "all" if b.tested == b.people else f"{b.tested:,}"
        return f"every attack that the policy names, on {number} {who}"

    def _describe_open(
        self, q: Question, widest: tuple[str, Kind] | None, unlimited: Sequence[str]
    ) -> dict[str, object]:
        """Fields of an open question: what is missing, or how large the limit is."""
        declared = mention_declared(q, self._answers.limits, q.people, len(self._scene.clients))
        ends = declared + self._mention_plays()
        if self.lacking:
            left = [x.name for x in self.lacking if x.is_left_out]
            seconds = self._answers.seconds
            first = min(left, key=lambda n: (seconds.get(n, math.inf), n), default="")
            why = self._describe_lacking("there is no limit, since the panel lacks ")
            known = {"seconds": seconds.get(first), "is_untestable": any(not x.name for x in self.lacking)}
            return {"why": f"{why}{ends}", "next_attack": first, **known}
        if unlimited:
            return {"why": f"there is no limit: {'; '.join(unlimited)}{ends}"}
        if q.groups:
            g = q.groups[0]
            return {
                "why": f"of {g.people:,} people of {g.name} at most {g.at_most:,} are hit by {g.attack}{ends}"
            }
        if widest is None:
            nobody = "nobody is behind what was sent" if not q.people else "no attack was tried"
            return {"why": f"{nobody}{ends}"}
        wide = self._bounds[widest]
        why = (
            f"{self._describe(widest)}; at most {q.at_most:,} of {q.people:,} are, net of luck, by any "
            "attack that ran"
        )
        if wide.held_out:
            why += (
                "; everybody was tested, and a threshold set by "
                f"{wide.held_out:,} people whom nobody trained on should settle it if nobody is exposed"
            )
        found: dict[str, object] = {"why": f"{why}{ends}"}
        if wide.more and wide.tested:
            seconds_ = next(a.seconds for a in self.asking if a.id == widest[0])
            found |= {"more": wide.more, "seconds": seconds_ * wide.more / wide.tested}
        return found

    def _describe_lacking(self, before: str) -> str:
        """The first few with why, and how long those that were left out take; empty without any."""
        once: dict[str, Lacking] = {}
        for x in self.lacking:
            once.setdefault(x.name or x.kind, x)
        parts = []
        for x in [*once.values()][:MOST_LACKING]:
            seconds = self._answers.seconds.get(x.name) if x.is_left_out else None
            time = f", about {fmt.duration(max(1, round(seconds)))}" if seconds is not None else ""
            parts.append(f"{x.name} ({x.why}{time})" if x.name else f"any attack on {x.why}")
        more = f" and {len(once) - MOST_LACKING} more" if len(once) > MOST_LACKING else ""
        return f"{before}{', '.join(parts)}{more}" if parts else ""

    def _mention_plays(self) -> str:
        """How many plays with other people are missing, where none came out otherwise; empty elsewhere."""
        for read in self._reads:
            constant = self._answers.find_constant(read.reading.reach, self._scene)
            if constant is not None and not constant.is_enough and not read.exact:
                played = fmt.plural(constant.plays, "play") if constant.plays else "no play"
                return (
                    f"; of its senders' code {played} with other people could be made, and {ENOUGH} are "
                    "needed to say that it sends the same whoever they are"
                )
        return ""
