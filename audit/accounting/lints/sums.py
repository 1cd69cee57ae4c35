"""Sums: whether noise that several clients add up to is there, and whether the run ended when it was set to."""

from fedaudit.audit.accounting.lint import Flaw, RunRecord, describe
from fedaudit.reports.result import Severity


def l19_missing_shares(record: RunRecord) -> Flaw | None:
    """Noise is counted for more contributors than there were."""
    bad = [
        r
        for r in record.noised
        if r.shared and r.round < len(record.delivered) and 0 < record.delivered[r.round] < r.aggregated
    ]
    if not bad:
        return None
    r = min(bad, key=lambda r: record.delivered[r.round] / r.aggregated)
    came = record.delivered[r.round]
    return Flaw(
        what=f"{describe(bad).capitalize()}: the noise is counted for a sum over {r.aggregated} contributors. In "
        f"round {r.round} {came} answered, which leaves {(came / r.aggregated) ** 0.5:.3g} of it.",
        remedy="Count the noise at the fewest honest contributors that a sum is opened for; open none for fewer.",
        severity=Severity.HIGH,
        reason="The noise that the bound counts was not there: contributors who were to add some did not come.",
    )


def l20_shares_in_clear(record: RunRecord) -> Flaw | None:
    """Noise is counted for a sum, and the server reads each contribution."""
    bad = [r for r in record.noised if r.shared and "server" in r.observers]
    if not bad:
        return None
    r = bad[0]
    return Flaw(
        what=f"{describe(bad).capitalize()}: each client adds 1 / {r.aggregated} of the variance that the ledger "
        "counts, and the server reads single uploads, which have that share of it only.",
        remedy="Use secure aggregation, or let each client add all of the noise.",
        severity=Severity.HIGH,
        reason="The bound is that of a sum, and what is read are its parts, each with a part of the noise.",
    )


def l21_stopped_early(record: RunRecord) -> Flaw | None:
    """The run ended before the rounds that were set, and nothing lists what decided that."""
    ran = len(record.delivered)
    if not record.noised or not 0 < ran < record.rounds:
        return None
    return Flaw(
        what=f"{record.rounds:,} rounds were set and {ran:,} ran. What ended the run is seen by whoever reads "
        "the model, and no line of the ledger accounts for it: where data decided it, the bound does not hold.",
        remedy="Fix the number of rounds beforehand, or decide when to stop by something noised that is listed.",
        severity=Severity.MEDIUM,
        reason="A run that stops by what it sees of the data releases that, and nothing accounts for it.",
    )
