"""What an audit does not say: limits of every audit, and every question of this one that nothing answered."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from fedaudit.reports import format as fmt
from fedaudit.reports.questions import Question, State, count_by_aim

LIMITS = [
    "The audit answers the questions that its table marks as answered, by the attacks that are named there and "
    "with the adversaries they assume. Another attack, or one with more data or computing time, may find more.",
    "Nothing here says that the method is safe. A result of *not demonstrated* means that an attack "
    "which does find planted leaks found none in this run.",
]
OF_SIMULATED = [
    "The federation was simulated from one seed. Other seeds, data and hyperparameters give other numbers; "
    "intervals cover the trials of this run, not the choice of the run."
]
OF_RECORDED = [
    "This federation was not simulated: it ran elsewhere, once. Messages that its recorder did not see are "
    "missing. Statements of its operator that no message confirms are taken at their word."
]
SUMS_BELIEVED = (
    "Secure aggregation is believed: nobody here could run the server's code and see whether it makes the same "
    "of sums as of single uploads."
)
REPLAYED = (
    "Replayed artifacts were recomputed by the auditor with the models that clients really uploaded; "
    "tables and figures mark them."
)
OUTSIDE_SIMULATED = (
    "Availability is simulated. Traffic analysis, side channels of the machines and the security of the "
    "transport are outside the audit."
)
OUTSIDE_RECORDED = (
    "Traffic analysis, side channels of the machines and the security of the transport are outside the audit, "
    "and so is whether the recorder and the files were left alone before they were taken in."
)
HIDDEN = (
    "An attack on exfiltration looks for records among the numbers of a message, in their own order. None looks "
    "for labels or counts that a client's code writes into a loss, a cluster or an order."
)
KEPT = (
    "The run folder holds what clients sent, and examples of theirs where those were given. Keep it as long as "
    "the audit may have to be repeated and no longer; `fedaudit tools shred RUN` removes them and leaves the "
    "audit."
)
UNANSWERED = (
    (State.NO_ATTACK, "fedaudit has no attack for {}"),
    (State.NOT_ASKED, "No attack of this audit asked {}"),
    (State.INCONCLUSIVE, "Attacks ran without an answer to {}"),
)


def list_limits(questions: Sequence[Question], *, simulated: bool, is_summed: bool = False) -> list[str]:
    """Limits as sentences: those of every audit, and what nothing answered in this one.

    `is_summed` says that secure aggregation leaves the server sums alone.
    """
    return [
        *LIMITS,
        *(OF_SIMULATED if simulated else OF_RECORDED),
        *([SUMS_BELIEVED] if is_summed and not simulated else []),
        *list_unanswered(questions),
        REPLAYED,
        OUTSIDE_SIMULATED if simulated else OUTSIDE_RECORDED,
        HIDDEN,
        KEPT,
    ]


def list_unanswered(questions: Sequence[Question]) -> Iterator[str]:
    """A sentence for each way of standing open, with the number of questions by aim; the table names each."""
    for state, words in UNANSWERED:
        if left := [q for q in questions if q.state is state]:
            text = words.format(fmt.plural(len(left), "question"))
            yield f"{text} ({count_by_aim(left)}); the table of questions names each."


def name_questions(questions: Sequence[Question]) -> list[str]:
    """Questions in words, those of one aim and reader together: "membership, server: loss, model"."""
    places = sorted(questions, key=_place)  # stable: artifacts keep their order
    return [
        f"{aim}, {observer}: {', '.join(dict.fromkeys(q.artifact for q in some))}"
        for (aim, observer), some in groupby(places, key=_place)
    ]


def _place(q: Question) -> tuple[str, str]:
    return str(q.aim), q.observer.replace("_", " ")


def name_question(q: Question) -> str:
    """One question in words."""
    return f"{q.aim} by {fmt.name_observer(q.observer)} ({q.artifact})"
