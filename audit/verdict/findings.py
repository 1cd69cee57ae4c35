"""Findings of attacks, from what they left under evidence/: words, figures and images, and the headline.

One leak is one finding: attacks that show the same leak stand below the one that shows it most.
"""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedaudit.attacks import measure
from fedaudit.attacks.evidence import Baseline, Evidence, is_replay
from fedaudit.attacks.measure import find_measure
from fedaudit.audit.verdict import figures
from fedaudit.audit.verdict.people import UNLIKE
from fedaudit.audit.verdict.questions import Shown
from fedaudit.audit.verdict.scene import OUTCOMES, name_finding
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.exhibits import Gallery, MarkedWord, RowLines, RowTables, TextLines, Texts
from fedaudit.reports.imported import Asserted, UnverifiedAttack
from fedaudit.reports.questions import Cell, count_allowed
from fedaudit.reports.result import Figure, Finding, Headline, Severity, worst_first

MADE = "made by the auditor, sets no severity"
UNTOLD = {
    "unverified": "what it claims could not be verified",
    "not_applicable": "does not apply to this run",
    "failed": "the attack failed to run",
}  # by the status of an attack's file: why it shows nothing
NOBODY_TOLD = "What the attack claims could not be held against the truth"
_READ = TypeAdapter(list[Evidence], config=ConfigDict(extra="forbid"))


def _explain_uncounted(card: Mapping[str, Any]) -> str:
    """Why an attack counts no people, to go on with; empty where its card does not say."""
    reason = str(card.get("uncounted", "")).rstrip(".")
    return f": {reason}" if reason else ""


def describe_attack(file: Mapping[str, Any], shown: Shown | None) -> Finding:
    """The finding about one attack, of its file under evidence/.

    `shown`: what it showed in the table of questions, None where it counts nobody. Raises UserError for evidence
    that cannot be read.
    """
    card, found = file["card"], _read_evidence(file)
    return Finding(
        id=name_finding(file),
        title=f"{card['title']}: {_say_what_came(file, shown)}",
        source="attack",
        method=card["title"],
        reference=card["source"],
        outcome=OUTCOMES[file["status"]],
        severity=shown.severity if shown else Severity.NONE,
        summary=_summarise(file, found),
        reason=_explain(file, shown),
        harm=shown.question.harm if shown else None,
        at_least=shown.bound.at_least if shown else 0,
        people=shown.bound.people if shown else 0,
        threat=card["threat"],
        artifacts=[str(kind) for kind in file.get("read", [])],
        evidence=found,
        does_not_show=card["does_not_show"],
        remedy=file.get("remedy") or card["remedy"],
        seconds=file.get("seconds", 0.0),
    )


def _read_evidence(file: Mapping[str, Any]) -> list[Evidence]:
    try:
        return mark_replays(_READ.validate_python(file.get("evidence", [])))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(
            f"the evidence of {file['name']} cannot be read: entry {where}: {first['msg']}",
            hint="`fedaudit run RUN --phase attack` makes it again",
        ) from error


def _say_what_came(file: Mapping[str, Any], shown: Shown | None) -> str:
    """The end of the finding's headline."""
    if file["status"] in UNTOLD:
        return UNTOLD[file["status"]]
    if shown is None:
        return "it counts nobody here"
    if shown.severity is Severity.NONE:
        return "nobody is known to be hit beyond luck"
    return f"the adversary learns {file['card']['learns']}"


def _explain(file: Mapping[str, Any], shown: Shown | None) -> str:
    """Why it is that severe, or why nothing is known."""
    if file["status"] == "unverified":
        return f"{NOBODY_TOLD}: {file['reason']}."
    if file["status"] != "ran":
        return str(file["reason"])
    if not file.get("read", True):
        return "It opened none of the messages, so that nothing it claims was learned from them."
    if shown is None:
        return f"It counts nobody, so that it has no severity{_explain_uncounted(file['card'])}."
    return describe_shown(shown)


def list_figures(file: Mapping[str, Any], finding: Finding) -> list[Figure]:
    """The curves over n and the ROC of one attack."""
    curves = figures.by_samples(finding.id, finding.evidence) + figures.by_frozen(finding.id, finding.evidence)
    return curves + figures.roc(finding.id, file.get("curves", []))


def list_texts(file: Mapping[str, Any]) -> list[Texts]:
    """Texts that one attack claims, beside the true ones."""
    return [
        Texts(
            finding=name_finding(file),
            title=t["title"],
            caption=t["caption"],
            pairs=[
                TextLines(
                    name=p["name"],
                    original=list(p["original"]),
                    claimed=[MarkedWord(text=text, mark=mark) for text, mark in p["claimed"]],
                )
                for p in t["pairs"]
            ],
        )
        for t in file.get("texts", [])
    ]


def list_rows(file: Mapping[str, Any]) -> list[RowTables]:
    """Rows of a table that one attack claims, beside the true ones."""
    return [
        RowTables(
            finding=name_finding(file),
            title=r["title"],
            caption=r["caption"],
            pairs=[RowLines(**pair) for pair in r["pairs"]],
        )
        for r in file.get("rows", [])
    ]


def list_galleries(file: Mapping[str, Any]) -> list[Gallery]:
    """Images that one attack made, beside the true ones."""
    return [
        Gallery(
            finding=name_finding(file),
            title=g["title"],
            caption=g["caption"],
            alt=f"{g['title']}: rows of images, {', '.join(g['rows'])}",
            columns=g["columns"],
            rows=g["rows"],
        )
        for g in file.get("galleries", [])
    ]


def mark_replays(found: Sequence[Evidence]) -> list[Evidence]:
    """The same evidence, in which what the auditor made is a control: a leak that nobody sent is none."""
    return [
        dataclasses.replace(e, control="positive", note=_add_note(e.note))
        if e.control == "none" and is_replay(str(e.condition.get("origin", "")))
        else e
        for e in found
    ]


def _add_note(note: str) -> str:
    return note if MADE in note else f"{note}; {MADE}".removeprefix("; ")


def describe_shown(shown: Shown) -> str:
    """How many people an attack hit, how many by luck, and how many are tolerable."""
    q, b = shown.question, shown.bound
    is_client = q.harm is Harm.CLIENT_FACT
    tested = fmt.plural(b.tested, "client" if is_client else "person", "" if is_client else "people")
    text = (
        f"{fmt.sentence_case(q.harm.label)}: {b.hits:,} of {tested} tested {'was' if b.hits == 1 else 'were'} hit"
    )
    nobody = f"of which nothing follows: {UNLIKE}" if b.reason == UNLIKE else "which luck alone may explain"
    least = f"at least {b.at_least:,} because their data were in" if b.at_least else nobody
    return f"{text}, {least}; {fmt.percent(q.tolerable)} are tolerable, {count_allowed(b.people, q.tolerable):,}."


def most_telling(evidence: Sequence[Evidence]) -> Evidence:
    """Of the measure that tells a reader most, the first."""
    (name,) = measure.telling((e.measure for e in evidence), 1)
    return next(e for e in evidence if e.measure == name)


def _summarise(file: Mapping[str, Any], evidence: Sequence[Evidence]) -> str:
    """The most telling measure of what clients sent: value, trials, compared with what; or why there is none."""
    if file["status"] == "unverified":
        many = fmt.plural(len(file["assertions"]), "client")
        claims = f"It claims something of {many}" if file["assertions"] else "Its claims have no words"
        text = f"The attack ran on the recorded messages. {claims}"
        return f"{text}; what clients hold was not given to the auditor."
    if file["status"] != "ran":
        return str(file["reason"])
    real = [e for e in evidence if e.control == "none"]
    if not real:
        return "The attack ran; only its controls could be measured."
    return f"{describe_evidence(most_telling(real))}. {_name_largest(real)}".strip()


def describe_evidence(e: Evidence) -> str:
    """One evidence: value, interval, trials, and the strongest baseline beside it."""
    text = f"{fmt.sentence_case(find_measure(e.measure).words)} {fmt.quantity(e.value, e.unit)}"
    trials = fmt.plural(e.trials, "trial")
    text += f" ({fmt.interval(e.interval, e.unit)}, {trials})" if e.interval else f" ({trials})"
    if e.place:
        text += f" for {e.place}"
    if e.strongest:
        text += f"; the strongest baseline got {fmt.quantity(e.strongest.value, e.unit)} ({e.strongest.name})"
    return text


def _name_largest(real: Sequence[Evidence]) -> str:
    """The largest n at which any measure is clear of its baselines, where several were looked at.

    Of larger ones nothing is said: what was not shown there may be for want of trials.
    """
    curve = [e for e in real if "n" in e.condition and e.interval and e.baselines]
    above = [e for e in curve if clear(e)]
    if len({e.condition["n"] for e in curve}) < 2 or not above:
        return ""
    largest = max(float(e.condition["n"]) for e in above)
    best = most_telling([e for e in above if float(e.condition["n"]) == largest])
    shown = f"{find_measure(best.measure).words} {fmt.quantity(best.value, best.unit)}"
    return f"The largest n at which it was seen to beat guessing is {largest:g} ({shown})."


def write_headline(
    findings: Sequence[Finding], cells: Sequence[Cell], files: Sequence[Mapping[str, Any]] = ()
) -> Headline:
    """The worst finding; where nothing was found, whether every required question was answered.

    Before all, where it is so, that of what attacks claim nothing could be verified.
    """
    found = _write_worst(findings, cells)
    unverified = sum(f["status"] == "unverified" for f in files)
    if not unverified or any(f["status"] == "ran" for f in files):
        return found
    ran = fmt.plural(unverified, "attack")
    text = (
        f"Nothing that attacks claim could be verified: {ran} ran on the recorded messages, and what clients "
        f"hold was not given to the auditor. {found.sentence}"
    )
    return found.model_copy(update={"sentence": text})


def _write_worst(findings: Sequence[Finding], cells: Sequence[Cell]) -> Headline:
    worst = next((f for f in worst_first(findings) if f.is_demonstrated), None)
    if worst:
        return Headline(severity=worst.severity, sentence=f"{worst.title}. {worst.reason or worst.summary}")
    left = sum(c.is_open for c in cells)
    if cells and not left:
        text = (
            "Nobody is known to be hit, and every required question was answered. That is not a proof of privacy."
        )
        return Headline(severity=Severity.NONE, sentence=text)
    needed = fmt.plural(left, "required question is", "required questions are")
    text = f"nobody is known to be hit, and {needed} open" if left else "nothing was asked"
    return Headline(severity=Severity.NONE, sentence=f"The audit cannot tell: {text}.")


def list_unverified_claims(files: Sequence[Mapping[str, Any]]) -> list[UnverifiedAttack]:
    """What attacks assert of clients of whom nobody told the auditor, attack by attack."""
    return [
        UnverifiedAttack(
            attack=name_finding(file),
            title=file["card"]["title"],
            observer=file["observer"],
            claims=[Asserted(**a) for a in file.get("assertions", [])],
        )
        for file in files
        if file["status"] == "unverified" or file.get("assertions")
    ]


# one leak: single people stand in what is read; an attribute, or who sent a message, is another
ONE_LEAK = frozenset({Harm.RECORD, Harm.RECONSTRUCTION, Harm.MEMBERSHIP, Harm.DIFFUSE})


def join_leaks(findings: Sequence[Finding]) -> None:
    """Name in every demonstrated finding of an attack those that show the same leak.

    It is the same where one party reads the same kinds of messages and both attacks hit single people. The
    severest leads; exports, counts and waivers know it alone.
    """
    leaks: dict[Hashable, list[Finding]] = {}
    for f in findings:
        if f.is_demonstrated and f.source == "attack" and f.harm in ONE_LEAK and f.threat is not None:
            leaks.setdefault((f.threat.position, f.threat.conduct, frozenset(f.artifacts)), []).append(f)
    for same in leaks.values():
        leading, *others = worst_first(same)
        leading.shown_by = [f.id for f in others]
        for finding in others:
            finding.part_of = leading.id


def clear(e: Evidence) -> bool:
    """Whether it beats every baseline, with the whole interval; not without an interval, or without baselines."""
    if e.interval is None or not math.isfinite(e.value) or not e.baselines:
        return False
    return all(bound_excess(e, b)[0] > 0 for b in e.baselines)


def bound_excess(e: Evidence, b: Baseline) -> tuple[float, float]:
    """Both ends of the distance from one baseline; higher is worse for people.

    The two intervals are combined as independent estimates (MOVER: Zou, Donner. Stat. Med. 27, 2008, eq. 3).
    Raises ValueError without an interval.
    """
    if e.interval is None:
        raise ValueError(f"{e.measure} has no interval")
    sign = 1.0 if e.higher_is_worse else -1.0
    low, high = sorted(sign * end for end in e.interval)
    value, blind = sign * e.value, sign * b.value
    least, most = sorted(sign * end for end in b.interval or (b.value, b.value))
    down, up = max(0.0, value - low), max(0.0, high - value)
    near, far = max(0.0, blind - least), max(0.0, most - blind)
    return value - blind - math.hypot(down, far), value - blind + math.hypot(up, near)
