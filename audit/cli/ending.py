"""What `fedaudit run` says last, and what `fedaudit explain` says of one finding: in the words of the report."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.attestation.reviewer_files import digest_finding
from fedaudit.audit.cli.app import name_next
from fedaudit.fl.runtime.errors import UserError, suggest_name
from fedaudit.reports import format as fmt
from fedaudit.reports.evidence_table import telling
from fedaudit.reports.page import Page
from fedaudit.reports.questions import Cell, Question, describe_limits
from fedaudit.reports.result import AuditResult, Finding, Outcome

MOST_LINES, WIDTH, INDENT = 12, 79, 12  # of the summary
MOST_CLAIMS = 20  # unverified, of one attack


def summarise(result: AuditResult) -> Iterator[str]:
    """Page 1 in twelve lines of at most 79 signs, in its own words; nothing without a decision."""
    if result.decision is None:
        return
    page = result.decision.page
    head = [*_hang(result.decision.word.words.upper(), page.sentence)]
    end = [*_hang("Questions", _count_questions(page)), *_hang("Decide", page.recommendation)]
    rows = [(str(n), h) for n, h in enumerate(page.harms, 1)] + [(" ", h) for h in page.bounded]
    room = MOST_LINES - len(head) - len(end)
    is_cut = len(rows) > room or bool(page.more)
    readers = {h.reader for _, h in rows}
    shown = rows[: room - 1] if is_cut else rows
    yield from head
    for number, h in shown:
        limits = h.instead.split(",")[0] or f"{h.least:>6} to {h.most}"
        what = h.what if len(readers) == 1 or not h.unit else f"{h.reader}: {h.what[:1].lower()}{h.what[1:]}"
        yield _cut(f"{number} {h.grade:<9} {limits:<18} {what}")
    if is_cut:
        left = len(rows) - len(shown)
        yield f"  {page.more}" if not left else f"  and {fmt.plural(left, 'more row')} on page 1"
    yield from end


def _count_questions(page: Page) -> str:
    names = {"cannot": "cannot be tested here"}
    parts = [f"{n:,} {names.get(state, state)}" for state, n in page.coverage.states.items() if n]
    return f"{', '.join(parts)}. {page.coverage.text}" if parts else page.coverage.text


def _hang(head: str, text: str) -> list[str]:
    """Text beside its head; further lines below the text."""
    first = f"{head:<{INDENT - 1}} "
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=" " * INDENT, break_on_hyphens=False
    )


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 2].rstrip()} …"


def last_words(result: AuditResult, folder: Path, report: Path, *, trust: bool = False) -> Iterator[str]:
    """The summary, where the report is, and the command that tells more of the worst, under the same `trust`."""
    yield from summarise(result)
    for f in (f for f in result.findings if f.outcome is Outcome.FAILED):
        yield f"failed: {f.id}: {f.reason}"
    failing = set(result.decision.failing) if result.decision else set()
    bad = [f for f in result.findings if f.is_demonstrated and f.id in failing]
    rest = [f for f in result.findings if f.is_demonstrated and f.id not in failing]
    exposed = [c for c in result.cells if c.required and c.is_exposed and not c.accepted]
    yield f"report: {report}"
    worst = next(iter((*exposed, *bad, *rest)), None)
    words = ("explain", worst.id, "--run", folder) if worst else ("check", folder)
    yield name_next(*words, *(["--trust-plugins"] if trust else []))


def describe_accuracy(history: Sequence[Mapping[str, Any]]) -> str:
    """What `fedaudit run --phase simulate` says last: accuracy after the last evaluated round, and the best."""
    measured = {int(r["round"]): float(r["accuracy"]) for r in history if r.get("accuracy") is not None}
    if not measured:
        return f"{fmt.plural(len(history), 'round')}; no accuracy: the method has no model that everybody shares"
    last, best = max(measured), max(measured, key=measured.__getitem__)
    return (
        f"accuracy: {fmt.percent(measured[last])} after round {last + 1} of {len(history)}; "
        f"best {fmt.percent(measured[best])} after round {best + 1}"
    )


def explain_finding(result: AuditResult, name: str, content: str = "") -> Iterator[str]:
    """What a finding hit and measured, what it does not show, what to do, and the verdict of the run.

    `content` is the digest of the run, which a waiver names. Raises UserError where there is no such finding.
    """
    found = {f.id: f for f in result.findings}
    if question := next((c for c in result.cells if c.id == name), None):
        yield from explain_question(question, result, content)
        return
    if name not in found:
        raise UserError(
            f"the run has no finding {name!r}",
            hint=suggest_name(name, found, f"it has: {', '.join(found) or 'none'}"),
        )
    finding = found[name]
    grade = finding.severity if finding.severity.rank else fmt.OUTCOMES[finding.outcome].lower()
    yield from _part("", f"{finding.title} ({grade})")
    yield from _part("What", finding.account)
    yield from _part("Who", fmt.threat(finding.threat) if finding.threat else "")
    yield from _part("Shown as well by", ", ".join(finding.shown_by))
    yield from _part("The same leak as", finding.part_of)
    for one in (u for u in result.unverified if u.attack == name):
        for a in one.claims[:MOST_CLAIMS]:
            yield from _part("Unverified claim", f"client {a.client}: {a.says}; to check it, see {a.check}")
        if len(one.claims) > MOST_CLAIMS:
            yield from _part("Unverified claims", f"{len(one.claims):,} in all, in audit.json")
    for e in _describe_measurements(finding):
        yield from _part("Measured", e)
    yield from _part("What it does not show", finding.does_not_show)
    yield from _part("What to do", finding.remedy)
    yield from _part("By", finding.method + (f" ({finding.reference})" if finding.reference else ""))
    yield from _part("Verdict of the run", result.decision.line if result.decision else "")
    if content and finding.is_demonstrated:
        yield "To accept it, a waiver names:"
        yield f"  run: {content}"
        yield f"  finding: {finding.id}"
        yield f"  severity: {finding.severity}"
        yield f"  digest: {digest_finding(finding)}"


def explain_question(q: Cell, result: AuditResult, content: str = "") -> Iterator[str]:
    """How a question stands, both its limits, what would settle it, the run's verdict, and how to accept it."""
    needed = "required" if q.required else "not required"
    yield from _part("", f"{fmt.sentence_case(fmt.name_question(q))} ({q.state.value}, {needed})")
    if isinstance(q, Question):
        yield from _part("Counted", q.harm.words)
        yield from _part("Read", ", ".join(k.replace("_", " ") for k in q.kinds))
    yield from _part("Limits", describe_limits(q))
    yield from _part("Tolerable", fmt.percent(q.tolerable))
    yield from _part("Why", q.why)
    yield from _part("Attacks", ", ".join(q.findings))
    for g in q.groups if isinstance(q, Question) else ():
        most = "no limit known" if g.at_most is None else f"at most {g.at_most:,}"
        yield from _part("Group", f"{g.name}: at least {g.at_least:,}, {most} of {g.people:,}, by {g.attack}")
    if isinstance(q, Question) and q.more:
        yield from _part("To settle it", f"test {q.more:,} people more")
    yield from _part("Accepted by", q.accepted)
    yield from _part("Verdict of the run", result.decision.line if result.decision else "")
    if content and q.is_open:
        yield "To accept it, a waiver names:"
        yield f"  run: {content}"
        yield f"  question: {q.id}"


def _describe_measurements(finding: Finding) -> Iterator[str]:
    """The telling measurements, with what guessing gives."""
    from fedaudit.attacks.measure import find_measure

    for e in telling([e for e in finding.evidence if e.control == "none"])[:6]:
        blind = f"; guessing {fmt.quantity(e.strongest.value, e.unit)}" if e.strongest else ""
        place = f" at {e.place}" if e.place else ""
        yield f"{find_measure(e.measure).words}{place}: {fmt.estimate(e.value, e.interval, e.unit)}{blind}"


def _part(head: str, text: str) -> Iterator[str]:
    if text.strip():
        yield f"{head}: {text.strip()}" if head else fmt.sentence_case(text.strip())


def newest(root: Path) -> Path:
    """The run folder under `root` whose audit is youngest; raises UserError where there is none."""
    found = sorted(root.glob("*/audit.json"), key=lambda p: p.stat().st_mtime_ns)
    if not found:
        raise UserError(f"no audited run in {root}/", hint="name one: fedaudit explain FINDING --run FOLDER")
    return found[-1].parent
