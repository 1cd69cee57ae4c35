"""What attacks left under evidence/ as subjects to judge, their figures and images, and the headline."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.measure import find_measure
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.verdict import figures
from fedaudit.audit.verdict.accusations import compute_accusations
from fedaudit.audit.verdict.judge import Subject, Verdict, most_telling
from fedaudit.audit.verdict.replays import find_replayed, find_sent, is_replay, settle_controls
from fedaudit.audit.verdict.statistics import clear
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import Asserted, UnverifiedAttack
from fedaudit.reports.questions import Question
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

NOBODY_TOLD = "What the attack claims could not be held against the truth"
_UNREAD = Verdict(
    outcome=Outcome.INCONCLUSIVE,
    reason="It opened none of the messages, so that nothing it claims was learned from them.",
)
_READ = TypeAdapter(list[Evidence], config=ConfigDict(extra="forbid"))
_READ_PEOPLE = TypeAdapter(list[PeopleCount])


def _explain_uncounted(card: Mapping[str, Any]) -> str:
    """Why an attack counts no people; empty where it does."""
    reason = card.get("uncounted", "")
    return f"how many people that exposes: {reason}" if reason else ""


@dataclasses.dataclass(frozen=True)
class Attacked(Subject):
    """One attack's file."""

    file: Mapping[str, Any]
    prior: float | None = None  # declared share of members among an adversary's candidates

    @cached_property
    def found(self) -> Sequence[Evidence]:
        try:
            evidence = _READ.validate_python(self.file.get("evidence", []))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"the evidence of {self.file['name']} cannot be read: entry {where}: {first['msg']}",
                hint="run `fedaudit phase attack` again",
            ) from error
        return settle_controls(evidence)

    @cached_property
    def people(self) -> list[PeopleCount]:
        """Whom the attack tested and hit, by kind of message; empty where it says nothing of single people."""
        return _READ_PEOPLE.validate_python(self.file.get("people", []))

    @property
    def not_gradable(self) -> Verdict | None:
        if self.file["status"] == "ran":
            return None if self.file.get("read", True) else _UNREAD
        if self.unverified:
            return Verdict(outcome=Outcome.INCONCLUSIVE, reason=f"{NOBODY_TOLD}: {self.file['reason']}.")
        return Verdict(outcome=Outcome(self.file["status"]), reason=self.file["reason"])

    @property
    def unverified(self) -> bool:
        """It ran, and of no message that it read is known whose examples are behind it."""
        return bool(self.file["status"] == "unverified")

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        card = self.file["card"]
        return {
            "id": self.file["name"].replace(":", "."),
            "title": f"{card['title']}: what it claims could not be verified"
            if self.unverified
            else _write_title(verdict.outcome, card["title"], card["learns"]),
            "source": "attack",
            "method": card["title"],
            "reference": card["source"],
            "summary": self._write_summary(verdict),
            "threat": card["threat"],
            "artifacts": [str(kind) for kind in self.file.get("read", [])],
            "evidence": self.found,
            "accusations": compute_accusations(self.found, self.prior),
            "does_not_show": "; ".join(filter(None, (card["does_not_show"], _explain_uncounted(card)))),
            "remedy": self.file.get("remedy") or card["remedy"],
            "seconds": self.file.get("seconds", 0.0),
        }

    def _write_summary(self, verdict: Verdict) -> str:
        if self.unverified:
            many = fmt.plural(len(self.file["assertions"]), "client")
            claims = f"It claims something of {many}" if self.file["assertions"] else "Its claims have no words"
            text = f"The attack ran on the recorded messages. {claims}"
            return f"{text}; what clients hold was not given to the auditor."
        return self.file["reason"] or verdict.reason if self.not_gradable else _summarise(self.found, verdict)

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


def _write_title(outcome: Outcome, attack: str, learns: str) -> str:
    """The finding's headline, as a sentence."""
    return {
        Outcome.DEMONSTRATED: f"{attack}: the adversary learns {learns}",
        Outcome.NOT_DEMONSTRATED: f"{attack}: no leak was demonstrated",
        Outcome.INCONCLUSIVE: f"{attack}: whether anything leaks is open",
        Outcome.NOT_APPLICABLE: f"{attack}: does not apply to this run",
        Outcome.FAILED: f"{attack}: the attack failed to run",
    }[outcome]


def _summarise(evidence: Sequence[Evidence], verdict: Verdict) -> str:
    """What the rule read, or where none held the most telling measure: value, trials, compared with what."""
    real = [e for e in evidence if e.control == "none"]
    if not real:
        return "The attack ran; only its controls could be measured."
    quoted = verdict.by or (most_telling(real),)
    parts = [f"{describe_evidence(e)}.{_describe_replays(e, real)}" for e in quoted]
    return " ".join([*parts, _name_largest(real)]).strip()


def _describe_replays(e: Evidence, real: Sequence[Evidence]) -> str:
    """What replays that are graded with one evidence gave, as a sentence; empty without any."""
    replayed = find_replayed(e, real)
    if replayed is None:
        return ""
    shown = f"{fmt.quantity(replayed.value, e.unit)} ({fmt.interval(replayed.interval, e.unit)}"
    return f" Replays of such messages gave {shown}, {fmt.plural(replayed.trials, 'trial')})."


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
    best = find_sent(most_telling([e for e in above if float(e.condition["n"]) == largest]), real)
    shown = f"{find_measure(best.measure).words} {fmt.quantity(best.value, best.unit)}"
    return f"The largest n at which it was seen to beat guessing is {largest:g} ({shown})."


def write_headline(
    findings: Sequence[Finding], questions: Sequence[Question], attacked: Sequence[Attacked] = ()
) -> Headline:
    """The worst demonstrated finding; where there is none, whether every required question was answered.

    Before all, where it is so, that of what attacks claim nothing could be verified.
    """
    found = _write_worst(findings, questions)
    unverified = sum(a.unverified for a in attacked)
    if not unverified or any(a.file["status"] == "ran" for a in attacked):
        return found
    ran = fmt.plural(unverified, "attack")
    text = (
        f"Nothing that attacks claim could be verified: {ran} ran on the recorded messages, and what clients "
        f"hold was not given to the auditor. {found.sentence}"
    )
    return found.model_copy(update={"sentence": text})


def _write_worst(findings: Sequence[Finding], questions: Sequence[Question]) -> Headline:
    worst = next((f for f in worst_first(findings) if f.outcome == Outcome.DEMONSTRATED), None)
    if worst:
        text = f"{worst.title}. {worst.summary}"
        return Headline(severity=worst.severity, outcome=worst.outcome, sentence=text)
    left = sum(q.is_open for q in questions)
    if questions and not left:
        text = "No leak was demonstrated; every required question was answered. That is not a proof of privacy."
        if more := [f.id for f in findings if _shows_more(f)]:
            text = "Every required question was answered, and no rule of the policy was met; more than guessing "
            text += f"gives was found by {', '.join(more)}."
        return Headline(severity=Severity.NONE, outcome=Outcome.NOT_DEMONSTRATED, sentence=text)
    needed = fmt.plural(left, "required question is", "required questions are")
    text = f"no leak was demonstrated, and {needed} open" if left else "nothing was asked"
    return Headline(
        severity=Severity.NONE, outcome=Outcome.INCONCLUSIVE, sentence=f"The audit is inconclusive: {text}."
    )


def _shows_more(finding: Finding) -> bool:
    """Whether a measure is clear of its baselines on what clients sent."""
    return any(clear(e) for e in finding.evidence if e.control == "none" and not is_replay(e))


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
