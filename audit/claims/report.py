"""The PDF of re-scored claims: an overview, then a page a claim."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedaudit.audit.accounting.child import Exceeded, call
from fedaudit.audit.claims.claim import Claim, TimedClaim, load
from fedaudit.audit.claims.clock import score_timing
from fedaudit.audit.claims.scores import record_failure, rescore
from fedaudit.reports.claims import page, table
from fedaudit.reports.document import Chapter
from fedaudit.reports.format import plural
from fedaudit.reports.renderers.pdf import Pdf
from fedaudit.reports.result import ClaimOutcome, ClaimRecord, Headline
from fedaudit.reports.section import Card, Paragraph
from fedaudit.reports.standalone import StandaloneDocument, describe_alone
from fedaudit.reports.visible import visible


def list_all(claims: Sequence[ClaimRecord]) -> Chapter:
    """Every claim in one table."""
    return Chapter(
        card=Card(title="All claims", order=10),
        blocks=(
            Paragraph(
                "Each claim is computed again from its own numbers: whether its formula applies, what one "
                "release costs, what all of them cost together, and what noise would make it true. A claim "
                "holds under its assumptions where an upper bound keeps it; it is refuted by a lower bound only; "
                "else it cannot be decided. Its page lists what was checked, what is assumed and what is "
                "contradicted. Smaller epsilon is more private."
            ),
            table(claims),
            Paragraph(tally(claims)),
        ),
    )


def tally(claims: Sequence[ClaimRecord]) -> str:
    """How many claims have each verdict, as a sentence."""
    counts = [f"{sum(c.outcome is o for c in claims)} {o.value}" for o in ClaimOutcome]
    return f"{plural(len(claims), 'verdict')}: {', '.join(counts)}."


SECONDS, GIGABYTES = 60.0, 8.0  # that one claim may take


class ScoredFile(NamedTuple):
    title: str
    claims: list[ClaimRecord]


def score_files(paths: Sequence[Path], progress: Callable[[str, int, int], None] = lambda *_: None) -> ScoredFile:
    """Every claim in these files, re-scored. Raises UserError for a bad file."""
    files = [load(p) for p in paths]
    claims: list[Claim | TimedClaim] = []
    for file in files:
        claims += [*file.claims, *file.timed]
    progress("claims", 0, len(claims))
    try:
        found = call(_score_all, SECONDS * len(claims), GIGABYTES, claims)
    except Exceeded:  # by which of them is not known
        found = [_score_alone(c) for c in claims]
    progress("claims", len(claims), len(claims))
    title = files[0].title if len(files) == 1 else "Claims of privacy, re-scored"
    return ScoredFile(title, found)


def _score_all(claims: Sequence[Claim | TimedClaim]) -> list[ClaimRecord]:
    return [score_timing(c) if isinstance(c, TimedClaim) else rescore(c) for c in claims]


def _score_alone(claim: Claim | TimedClaim) -> ClaimRecord:
    if isinstance(claim, TimedClaim):  # arithmetic of some seconds
        return score_timing(claim)
    try:
        return call(rescore, SECONDS, GIGABYTES, claim)
    except Exceeded as reason:
        return record_failure(claim, str(reason))


def pdf(title: str, claims: Sequence[ClaimRecord], command: str) -> bytes:
    """The report, as PDF."""
    claims = [ClaimRecord.model_validate(visible(claim.model_dump())) for claim in claims]
    worst = max(claims, key=lambda c: c.severity.rank)
    headline = Headline(severity=worst.severity, sentence=f"{worst.title}. {worst.verdict}")
    chapters = [list_all(claims)]
    for claim in claims:
        chapters.append(Chapter(card=Card(title=claim.title, order=20, new_page=True), blocks=tuple(page(claim))))
    private = all(c.exact is not None for c in claims)
    about = plural(len(claims), "claim") + (" about differential privacy" if private else "")
    return Pdf().render(
        StandaloneDocument(result=describe_alone(title, headline, command), chapters=tuple(chapters), about=about)
    )
