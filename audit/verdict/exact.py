"""Exact answers: kinds of messages in which nothing of anybody's can be, so that no attack need say so."""

from fedaudit.audit.observer.reach import Rounds
from fedaudit.audit.verdict.scene import Answers, Reading, Scene
from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm


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
