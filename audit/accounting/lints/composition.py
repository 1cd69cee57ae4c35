"""Composition: whether all that was released is noised, and whether the run ended when it was set to."""

from fedaudit.audit.accounting.budget import SEES
from fedaudit.audit.accounting.lint import Flaw, RunRecord
from fedaudit.reports.result import Severity

_NAMED = {"server": "the server", "another client": "another client", "public": "the public"}


def l10_companions(record: RunRecord) -> Flaw | None:
    """Something is sent in clear beside what is noised."""
    kinds: dict[str, str] = {}
    for observer, reads in SEES.items():
        seen = [r for r in record.releases if {o.partition("/")[0] for o in r.observers} & reads]
        # a server that adds the noise itself is no one whom it is meant for
        meant = [r for r in seen if observer != "server" or "server" in r.observers]
        if any(r.noise_multiplier for r in meant):
            for r in seen:
                if not r.noise_multiplier:
                    kinds.setdefault(r.kind, observer)
    if not kinds:
        return None
    named = ", ".join(list(kinds)[:5])
    return Flaw(
        what=f"{named} {'is' if len(kinds) == 1 else 'are'} released without noise to "
        f"{_NAMED[next(iter(kinds.values()))]}, who also gets noised releases; their noise bounds nothing "
        "there.",
        remedy="Noise, withhold or fix the companions: counts, numbers of examples, buffers, losses.",
        severity=Severity.LOW,
        reason="The bound counts what is sent in clear, and says by itself how little is left.",
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
