"""Answers that follow from others: of a message at another reader, or of what a message is computed from."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from fedaudit.audit.observer.reach import ObservedTraffic, Reach
from fedaudit.audit.verdict.aims import FROM_CLIENTS, is_same_harm
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position
from fedaudit.reports.questions import MESSAGES, Question, State

REST = ".other_rounds"  # at the end of the name of a question about the rounds that nothing read


def derive_answers(questions: Sequence[Question], traffic: ObservedTraffic) -> list[Question]:
    """Answers that follow from others: of the same artifact at another reader, or of what it is computed from.

    What a server sends is computed from what it read; whatever is learned from it could be learned from that.
    """
    answers = list(questions)
    uploads = {
        r.kind
        for r, channels in traffic.paths.items()
        if FROM_CLIENTS & channels and r.position == Position.SERVER
    }
    for i, q in enumerate(answers):
        if q.is_answered or q.kind == MESSAGES or Kind(q.kind) in uploads:
            continue
        if FROM_CLIENTS & traffic.paths[find_reach(q)]:
            continue  # what one client made and handed on
        awaited = _list_sources(q, questions, uploads)
        twins = [s for s in answers if _says_more(s, q) and _is_twin(s, q, traffic)]
        twins.sort(key=lambda s: s.state is not State.DEMONSTRATED)
        is_shown = bool(twins) and twins[0].state is State.DEMONSTRATED
        if not is_shown and (bound := _bound_by_sources(q, awaited)):
            answers[i] = q.model_copy(update=bound)
        elif twins:
            why = f"the same message is read by the {twins[0].observer.replace('_', ' ')}: {twins[0].why}"
            keep = {"state", "findings", "at_most", "people", "more", "seconds"}
            answers[i] = q.model_copy(update={k: getattr(twins[0], k) for k in keep} | {"why": why})
        elif awaited and q.state in (State.NO_ATTACK, State.NOT_ASKED):
            answers[i] = q.model_copy(
                update={"why": f"{q.why}; it follows once {_list_kinds(awaited)} is bounded"}
            )
    return answers


def _bound_by_sources(q: Question, sources: Sequence[Question]) -> dict[str, object]:
    """The answer of what is computed from bounded artifacts alone; empty where that is too much, or not so.

    What was demonstrated of an artifact is no larger than its bound, if it has one.
    """
    if not sources or not all(
        s.state is State.BOUNDED or (s.state is State.DEMONSTRATED and s.at_most is not None) for s in sources
    ):
        return {}
    people = max(s.people for s in sources)
    numbers = [s.at_most for s in sources if s.at_most is not None]
    at_most = min(people, sum(numbers)) if len(numbers) == len(sources) else None
    if at_most is not None and at_most > q.tolerable * people:
        return {}
    why = f"computed from {_list_kinds(sources)}, where the same is bounded"
    return {"state": State.BOUNDED, "at_most": at_most, "people": people, "why": why, "more": None}


def _list_sources(q: Question, questions: Sequence[Question], uploads: AbstractSet[Kind]) -> list[Question]:
    """What a verdict waits for of the same harm, where the server reads what it computes such a message from."""
    same = [
        s
        for s in questions
        if s.observer == Position.SERVER and s.kind in uploads and is_same_harm(s.aim, q.aim) and s.id != q.id
    ]
    return [s for s in same if s.required or not any(t.required and t.kind == s.kind for t in same)]


def _says_more(one: Question, other: Question) -> bool:
    """Whether an answer, or an attack on its way to one, is worth repeating at an unanswered question."""
    if one.is_answered:
        return True
    return bool(one.findings) and not other.findings


def _is_twin(one: Question, other: Question, traffic: ObservedTraffic) -> bool:
    """Whether both are about the same message, which the server sends to both readers."""
    if (one.aim, one.kind, one.id.endswith(REST)) != (other.aim, other.kind, other.id.endswith(REST)):
        return False
    return one.id != other.id and not FROM_CLIENTS & traffic.paths[find_reach(one)]


def _list_kinds(questions: Sequence[Question]) -> str:
    return ", ".join(dict.fromkeys(q.kind.replace("_", " ") for q in questions))


def find_reach(q: Question) -> Reach:
    """Who reads what a question is about, and which kind that is."""
    return Reach(Position(q.observer), Kind(q.kind))
