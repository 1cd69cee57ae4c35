"""What attacks left under evidence/ as subjects to judge, their figures and images, and the headline."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedaudit.attacks import measure
from fedaudit.attacks.evidence import Evidence, is_replay
from fedaudit.attacks.measure import find_measure
from fedaudit.audit.verdict import figures
from fedaudit.audit.verdict.accusations import compute_accusations
from fedaudit.audit.verdict.attempts import OUTCOMES, name_finding
from fedaudit.audit.verdict.people import UNLIKE
from fedaudit.audit.verdict.questions import Shown
from fedaudit.audit.verdict.statistics import clear
from fedaudit.audit.verdict.subject import Subject
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import Asserted, UnverifiedAttack
from fedaudit.reports.questions import Cell, count_allowed
from fedaudit.reports.result import (
    Figure,
    Finding,
    Gallery,
    Headline,
    MarkedWord,
    Outcome,
    Severity,
    TextLines,
    Texts,
    worst_first,
)

MADE = "made by the auditor, sets no severity"
NOBODY_TOLD = "What the attack claims could not be held against the truth"
_READ = TypeAdapter(list[Evidence], config=ConfigDict(extra="forbid"))


def _explain_uncounted(card: Mapping[str, Any]) -> str:
    """Why an attack counts no people, to go on with; empty where its card does not say."""
    reason = str(card.get("uncounted", "")).rstrip(".")
    return f": {reason}" if reason else ""


@dataclasses.dataclass(frozen=True)
class Attacked(Subject):
    """One attack's file, and what the attack showed in the table of questions."""

    file: Mapping[str, Any]
    shown: Shown | None = None  # None: it counts nobody here
    prior: float | None = None  # declared share of members among an adversary's candidates

    @cached_property
    def found(self) -> Sequence[Evidence]:
        try:
            return mark_replays(_READ.validate_python(self.file.get("evidence", [])))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"the evidence of {self.file['name']} cannot be read: entry {where}: {first['msg']}",
                hint="run `fedaudit phase attack` again",
            ) from error

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.file["status"]]

    @property
    def unverified(self) -> bool:
        """It ran, and of no message that it read is known whose examples are behind it."""
        return bool(self.file["status"] == "unverified")

    @property
    def severity(self) -> Severity:
        return self.shown.severity if self.shown else Severity.NONE

    @property
    def reason(self) -> str:
        if self.unverified:
            return f"{NOBODY_TOLD}: {self.file['reason']}."
        if self.outcome is not Outcome.RAN:
            return str(self.file["reason"])
        if not self.file.get("read", True):
            return "It opened none of the messages, so that nothing it claims was learned from them."
        if self.shown is None:
            return f"It counts nobody, so that it has no severity{_explain_uncounted(self.file['card'])}."
        return describe_shown(self.shown)

    def words(self) -> Mapping[str, Any]:
        card, shown = self.file["card"], self.shown
        return {
            "id": name_finding(self.file),
            "title": self._write_title(),
            "source": "attack",
            "method": card["title"],
            "reference": card["source"],
            "summary": self._write_summary(),
            "harm": shown.question.harm if shown else None,
            "at_least": shown.bound.at_least if shown else 0,
            "people": shown.bound.people if shown else 0,
            "threat": card["threat"],
            "artifacts": [str(kind) for kind in self.file.get("read", [])],
            "evidence": self.found,
            "accusations": compute_accusations(self.found, self.prior),
            "does_not_show": card["does_not_show"],
            "remedy": self.file.get("remedy") or card["remedy"],
            "seconds": self.file.get("seconds", 0.0),
        }

    def _write_title(self) -> str:
        """The finding's headline, as a sentence."""
        card = self.file["card"]
        if self.unverified:
            return f"{card['title']}: what it claims could not be verified"
        if self.outcome is Outcome.NOT_APPLICABLE:
            return f"{card['title']}: does not apply to this run"
        if self.outcome is Outcome.FAILED:
            return f"{card['title']}: the attack failed to run"
        if self.shown is None:
            return f"{card['title']}: it counts nobody here"
        if self.severity is Severity.NONE:
            return f"{card['title']}: nobody is known to be hit beyond luck"
        return f"{card['title']}: the adversary learns {card['learns']}"

    def _write_summary(self) -> str:
        if self.unverified:
            many = fmt.plural(len(self.file["assertions"]), "client")
            claims = f"It claims something of {many}" if self.file["assertions"] else "Its claims have no words"
            text = f"The attack ran on the recorded messages. {claims}"
            return f"{text}; what clients hold was not given to the auditor."
        return _summarise(self.found) if self.outcome is Outcome.RAN else str(self.file["reason"])

    def figures(self, finding: Finding) -> list[Figure]:
        """The curves over n and the ROC."""
        curves = figures.by_samples(finding.id, self.found) + figures.by_frozen(finding.id, self.found)
        return curves + figures.roc(finding.id, self.file.get("curves", []))

    def texts(self, finding: Finding) -> list[Texts]:
        return [
            Texts(
                finding=finding.id,
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
            for t in self.file.get("texts", [])
        ]

    def galleries(self, finding: Finding) -> list[Gallery]:
        return [
            Gallery(
                finding=finding.id,
                title=g["title"],
                caption=g["caption"],
                alt=f"{g['title']}: rows of images, {', '.join(g['rows'])}",
                columns=g["columns"],
                rows=g["rows"],
            )
            for g in self.file.get("galleries", [])
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


def _summarise(evidence: Sequence[Evidence]) -> str:
    """The most telling measure of what clients sent: value, trials, compared with what."""
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
    findings: Sequence[Finding], cells: Sequence[Cell], attacked: Sequence[Attacked] = ()
) -> Headline:
    """The worst finding; where nothing was found, whether every required question was answered.

    Before all, where it is so, that of what attacks claim nothing could be verified.
    """
    found = _write_worst(findings, cells)
    unverified = sum(a.unverified for a in attacked)
    if not unverified or any(a.file["status"] == "ran" for a in attacked):
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


def list_unverified_claims(attacked: Sequence[Attacked]) -> list[UnverifiedAttack]:
    """What attacks assert of clients of whom nobody told the auditor, attack by attack."""
    return [
        UnverifiedAttack(
            attack=subject.file["name"].replace(":", "."),
            title=subject.file["card"]["title"],
            observer=subject.file["observer"],
            claims=[Asserted(**a) for a in subject.file.get("assertions", [])],
        )
        for subject in attacked
        if subject.unverified or subject.file.get("assertions")
    ]
