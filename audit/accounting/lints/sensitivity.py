"""Sensitivity: whether a clip enforces what the noise was calibrated to."""

from fedaudit.audit.accounting.lint import Flaw, RunRecord, describe
from fedaudit.fl.ledger import Release
from fedaudit.reports.result import Severity

SLACK = 1 - 1e-6


def _scale(r: Release) -> float:
    return 2.0 if r.adjacency == "replace_one" else 1.0


def l1_unenforced(record: RunRecord) -> Flaw | None:
    """A sensitivity is declared, and no clip of the same vector enforces it."""
    bad = [
        r
        for r in record.noised
        if (r.derived != "clip" and not r.clipped)
        or (r.unit == "client" and r.clip_norm is not None and (r.sensitivity or 0) < r.clip_norm * SLACK)
    ]
    if not bad:
        return None
    r = bad[0]
    enforced = "nothing" if r.clip_norm is None else f"norm {r.clip_norm:g}"
    return Flaw(
        what=f"The noise of {describe(bad)} assumes a sensitivity of {r.sensitivity or 0:g} "
        f"({r.derived}), and {enforced} is enforced.",
        remedy="Clip the whole vector that is sent, before the noise, and take the sensitivity from it.",
        severity=Severity.HIGH,
        reason="The stated epsilon rests on a sensitivity that nothing enforces.",
    )


def l3_per_record_for_an_update(record: RunRecord) -> Flaw | None:
    """A record's sensitivity is assumed, and the clip bounds a whole update of several steps."""
    bad = [
        r
        for r in record.noised
        if r.unit == "record"
        and r.clip_of == "update"
        and r.clip_norm is not None
        and (r.sensitivity or 0) < _scale(r) * r.clip_norm * SLACK
    ]
    if not bad:
        return None
    r = bad[0]
    return Flaw(
        what=f"{describe(bad).capitalize()}: sensitivity {r.sensitivity:g} for one record, while a clip of "
        f"the whole update to {r.clip_norm:g} lets one record move it by {_scale(r) * (r.clip_norm or 0):g}.",
        remedy="Clip each record's gradient in every step (`dp_sgd`), or take the update's own sensitivity.",
        severity=Severity.HIGH,
        reason="The stated epsilon rests on a sensitivity that nothing enforces.",
    )


def l9_adjacency(record: RunRecord) -> Flaw | None:
    """Replace-one adjacency is reported with the sensitivity of add-or-remove."""
    bad = [
        r
        for r in record.noised
        if r.adjacency == "replace_one"
        and r.clip_norm is not None
        and not (r.unit == "record" and r.clip_of == "update")  # L3 says that already
        and (r.sensitivity or 0) < 2 * r.clip_norm * SLACK
    ]
    if not bad:
        return None
    r = bad[0]
    return Flaw(
        what=f"{describe(bad).capitalize()}: sensitivity {r.sensitivity:g} under replace-one, where a clip of "
        f"{r.clip_norm:g} gives {2 * (r.clip_norm or 0):g}.",
        remedy="Report add-or-remove, or double the sensitivity.",
        severity=Severity.HIGH,
        reason="The stated epsilon is of another adjacency than the noise was made for.",
    )


def l12_adaptive_clip(record: RunRecord) -> Flaw | None:
    """The clip is chosen from private data."""
    bad = [r for r in record.noised if r.threshold == "from_data"]
    if not bad:
        return None
    return Flaw(
        what=f"The norm that {describe(bad)} is clipped to was chosen from the data, and no release in the "
        "ledger pays for that.",
        remedy="Fix the norm beforehand.",
        severity=Severity.MEDIUM,
        reason="A clip chosen from the data is a release of its own, which nothing accounts for.",
    )
