"""Cells that came to no end, by reason."""

from collections import defaultdict
from collections.abc import Sequence

from fedaudit.audit.phases.cells import Failure
from fedaudit.reports.robustness import NotRun


def reasons(failures: Sequence[Failure]) -> list[NotRun]:
    """What was refused does not apply; anything else failed."""
    by_reason: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for f in failures:
        by_reason[f.sentence, not f.is_refusal].append(f.name)
    return [NotRun(cells=names, reason=reason, failed=bad) for (reason, bad), names in by_reason.items()]
