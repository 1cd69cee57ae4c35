"""What limits a question without an attack: a message that must be what it is, or a verified epsilon."""

from collections.abc import Iterable
from typing import NamedTuple

from fedaudit.audit.observer.reach import Rounds
from fedaudit.audit.verdict.people import bound_by_privacy, find_luck
from fedaudit.audit.verdict.scene import Answers, Reading, Scene
from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import Question, count_allowed


def find_exact(harm: Harm, reading: Reading, rounds: Rounds, scene: Scene, answers: Answers) -> str:
    """Why nothing of anybody's can be in any round of what was sent; empty where that is not known."""
    reach = reading.reach
    if not rounds.sent:
        return ""
    if harm is Harm.RECORD and reach.kind in answers.checked and rounds.sent == rounds.kept:
        if any(f.id == f"untrue-{reach.kind}" and f.severity.rank for f in answers.findings):
            return ""
        return "every recorded number is the one that its sender holds, so that it carries nothing else"
    channels = scene.traffic.paths[reach]
    if not FROM_CLIENTS & channels:  # made of what the server knows of clients, which is all of this
        known = [(c, k) for c in (*FROM_CLIENTS, Channel.OBSERVED) for k in scene.traffic.kinds.get(c, ())]
    elif channels == {Channel.UPLINK} or reach.kind.control_plane:
        known = [(c, reach.kind) for c in channels & FROM_CLIENTS]
    else:
        return ""
    if not known or not all(_is_constant(c, k, scene, answers) for c, k in known):
        return ""
    plays = min(answers.constant[k].plays for _, k in known)
    return (
        f"in {plays:,} plays with other people, of other numbers and classes, its senders' code sends the "
        "same, to the byte: it is made of what they received alone"
    )


def _is_constant(channel: Channel, kind: Kind, scene: Scene, answers: Answers) -> bool:
    found, constant = scene.rounds.get((channel, kind), Rounds()), answers.constant.get(kind)
    if constant is None or not constant.is_enough:
        return False
    return found.sent <= (found.kept - found.unread) & frozenset(constant.rounds)


COPIED = 0.001  # chance that a message resembles a copy of anybody's record, though nobody's is in it
CERTAIN = 0.05  # chance that anybody's record is in it after all, where nobody's may be
OBSERVERS = {"server": "server", "another client": "client", "public": "public"}  # of bounds -> positions
# no epsilon speaks of linkage: whether and when a client sends is in no release
BY_RECORD = frozenset({Harm.RECORD, Harm.RECONSTRUCTION, Harm.MEMBERSHIP, Harm.DIFFUSE})
BY_CLIENT = BY_RECORD | {Harm.ATTRIBUTE, Harm.CLIENT_FACT}  # what epsilon for a whole client bounds as well


class PrivacyLimit(NamedTuple):
    """How many people an epsilon lets anybody hit beyond luck."""

    at_most: int
    share: float  # of the people of any group
    bound: PrivacyBound
    left: str  # what it leaves, in words

    @property
    def why(self) -> str:
        """As part of a sentence."""
        b = self.bound
        return (
            f"a verified epsilon of {b.epsilon:.3g} per {b.unit} (delta {fmt.number(b.delta)}) leaves {self.left}"
        )


def limit_by_privacy(
    q: Question, bounds: Iterable[PrivacyBound], people: int, clients: int, status: Status = Status.VERIFIED
) -> PrivacyLimit | None:
    """The smallest limit of epsilons of that status towards the reader; None without any that says something.

    It holds for whatever is read, in whichever round.
    """
    limits = []
    for bound in bounds:
        harms = BY_CLIENT if bound.unit == "client" else BY_RECORD
        if bound.status is status and q.harm in harms and OBSERVERS.get(bound.observer) == q.observer:
            limits += _limit(q.harm, bound, people, clients)
    return min(limits, key=lambda limit: limit.at_most, default=None)


def _limit(harm: Harm, bound: PrivacyBound, people: int, clients: int) -> list[PrivacyLimit]:
    """Of one epsilon. A record is in a message or is not, so there the chance that anybody's is must be small."""
    if harm is Harm.RECORD:
        chance = people * bound_by_privacy(bound.epsilon, bound.delta, COPIED / max(1, people))
        left = f"a chance of at most {fmt.percent(chance)} that anybody's record is in a message"
        return [PrivacyLimit(0, 0.0, bound, left)] if chance <= CERTAIN else []
    share = bound_by_privacy(bound.epsilon, bound.delta, find_luck(harm, clients))
    who = "clients" if harm is Harm.CLIENT_FACT else "people"
    return [
        PrivacyLimit(
            count_allowed(people, share), share, bound, f"at most {fmt.percent(share)} of {who} beyond luck"
        )
    ]


def mention_declared(q: Question, bounds: Iterable[PrivacyBound], people: int, clients: int) -> str:
    """What keeps a declared epsilon from answering an open question, to go on with; empty where none would."""
    limit = limit_by_privacy(q, bounds, people, clients, Status.DECLARED)
    if limit is None or limit.at_most > count_allowed(people, q.tolerable):
        return ""
    reason = limit.bound.reasons[0].sentence.rstrip(".")
    return (
        f"; the declared epsilon of {limit.bound.epsilon:.3g} per {limit.bound.unit} would bound it if it were "
        f"verified, and is not: {reason}"
    )
