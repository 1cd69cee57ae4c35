"""Sampling: whether the amplification that accounting credits is there."""

from collections.abc import Sequence

from fedaudit.audit.accounting.lint import UNCOVERED, Flaw, RunRecord, describe
from fedaudit.audit.accounting.terms import CREDITED
from fedaudit.fl.ledger import EVERYONE
from fedaudit.reports.result import Severity

FEWEST_ROUNDS = 20  # before a number of answers that never varies says something


def l4_not_poisson(record: RunRecord) -> Flaw | None:
    """Accounted as Poisson sampling, and clients are drawn in another way."""
    bad = [
        r
        for r in record.noised
        if r.unit == "client"
        and r.sampling == "poisson"
        and 0 < r.sample_rate < 1
        and r.participation_seen_by != EVERYONE
    ]
    if not bad:
        return None
    if record.drawn is not None and record.drawn.sampling != "poisson":
        really = record.drawn.sampling.replace("_", " ")
        found = f"the federation's own sampling is {really}"
    elif _is_constant(record.delivered, bad[0].sample_rate):
        found = f"{record.delivered[0]} clients answered in each of {len(record.delivered)} rounds"
    else:
        return None
    return Flaw(
        what=f"{describe(bad).capitalize()} is accounted as Poisson sampling at rate "
        f"{bad[0].sample_rate:g}; {found}.",
        remedy="Enter the sampling that really happens; `wor_pld` accounts for a fixed number of clients.",
        severity=Severity.MEDIUM,
        reason=UNCOVERED,
    )


def _is_constant(delivered: Sequence[int], rate: float) -> bool:
    many = len(delivered) >= FEWEST_ROUNDS and 0.02 < rate < 0.98
    return many and len(set(delivered)) == 1 and delivered[0] > 1


def l5_visible_participation(record: RunRecord) -> Flaw | None:
    """Amplification by sampling is claimed towards someone who sees who takes part."""
    bad = [
        r
        for r in record.noised
        if r.unit == "client"
        and r.sampling in CREDITED
        and r.sample_rate < 1
        and (
            (r.participation_seen_by != EVERYONE and not r.sender.endswith("/*"))
            or ("server" in r.observers and "server" not in r.participation_seen_by)
        )
    ]
    if not bad:
        return None
    why = (
        "the server reads it and knows whom it selected"
        if "server" in bad[0].observers
        else "each line names its client, so it is there only when the client takes part"
    )
    return Flaw(
        what=f"{describe(bad).capitalize()} says that participation is hidden; {why}.",
        remedy="List those who see participation; credit sampling only to those who cannot.",
        severity=Severity.HIGH,
        reason="The stated epsilon credits an amplification that is not there.",
    )


def l7_private_denominator(record: RunRecord) -> Flaw | None:
    """The weights or the denominator of a noised mean depend on private data."""
    bad = [r for r in record.noised if r.normaliser == "private"]
    if not bad:
        return None
    return Flaw(
        what=f"{describe(bad).capitalize()} is divided by a number that depends on who takes part or on how "
        "many examples they hold, so the clip does not bound what one unit changes.",
        remedy="Use equal, fixed weights and a fixed denominator such as q times the number of clients.",
        severity=Severity.MEDIUM,
        reason=UNCOVERED,
    )
