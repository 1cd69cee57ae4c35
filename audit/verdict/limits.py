"""What an audit does not say: limits of every audit, and every question of this one that nothing answered."""

from collections.abc import Iterator, Sequence

from fedaudit.reports.questions import Cell, list_harms

LIMITS = [
    "The audit answers the questions that its table marks as answered, by the attacks that are named there and "
    "with the adversaries they assume. Another attack, or one with more data or computing time, may find more.",
    "Nothing here says that the method is safe. Limits count people whom the attacks that ran hit in this run; "
    "they say nothing of leaks that only another attack sees, of another run, or of other clients.",
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


def list_limits(cells: Sequence[Cell], *, simulated: bool, is_summed: bool = False) -> list[str]:
    """Limits as sentences: those of every audit, and what nothing answered in this one.

    `is_summed` says that secure aggregation leaves the server sums alone.
    """
    return [
        *LIMITS,
        *(OF_SIMULATED if simulated else OF_RECORDED),
        *([SUMS_BELIEVED] if is_summed and not simulated else []),
        *list_unanswered(cells),
        REPLAYED,
        OUTSIDE_SIMULATED if simulated else OUTSIDE_RECORDED,
        HIDDEN,
        KEPT,
    ]


def list_unanswered(cells: Sequence[Cell]) -> Iterator[str]:
    """How many questions are open, and of what, as a sentence; nothing where none is."""
    if left := [c for c in cells if not c.is_answered]:
        are = "question is" if len(left) == 1 else "questions are"
        yield (
            f"{len(left):,} {are} open ({list_harms(left)}); the tables of questions say what is missing of each."
        )
