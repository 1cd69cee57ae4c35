"""Findings: an attack says whom it hit, severity follows from that, and there is one order everywhere."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.measure import find_measure
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.findings import Attacked, describe_evidence, write_headline
from fedaudit.audit.verdict.people import UNLIKE, PeopleBound
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.questions import Shown
from fedaudit.audit.verdict.statistics import clear
from fedaudit.audit.verdict.subject import make_finding
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.document import compose
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult, Finding, Outcome, Severity, worst_first
from fedaudit.reports.section import Heading, Table
from tests.audit.verdict.audits import ask
from tests.reports.sample import result

POLICY = load_policy("default")
CARD = {
    "title": "Attack",
    "learns": "something",
    "source": "a paper",
    "threat": {"position": "server", "conduct": "honest_but_curious", "knows": []},
    "reads": ["model_delta"],
    "does_not_show": "more",
    "remedy": "noise",
}


def attacked(*evidence: Evidence, shown: Shown | None = None, **file: Any) -> Attacked:
    found = [dataclasses.asdict(e) for e in evidence]
    whole = {"name": "attack", "card": CARD, "status": "ran", "reason": "", "evidence": found}
    return Attacked(whole | file, shown)


def hit(at_least: int, severity: Severity) -> Shown:
    bound = PeopleBound(at_least=at_least, at_most=102, people=719, tested=719, hits=110)
    return Shown(severity, ask(State.OPEN), bound)


def find(*evidence: Evidence, shown: Shown | None = None, **file: Any) -> Finding:
    return make_finding(attacked(*evidence, shown=shown, **file), POLICY)


def beyond(name: str, shift: float, **more: Any) -> Evidence:
    """Evidence of a measure that is `shift` worse than its baseline, and known exactly."""
    row = find_measure(name)
    blind = 0.0 if row.higher_is_worse else 1.0
    value = blind + shift if row.higher_is_worse else blind - shift
    fields: dict[str, Any] = {
        "measure": name,
        "value": value,
        "unit": row.unit,
        "trials": 100,
        "interval": (value, value),
        "baselines": (Baseline(name="blind", value=blind),),
        "higher_is_worse": row.higher_is_worse,
        "condition": {"kind": "here"},
    }
    return Evidence(**(fields | more))


def test_an_attack_is_as_severe_as_what_it_did_to_people_whatever_its_measures_are() -> None:
    loud, quiet = beyond("auc", 0.9), beyond("auc", 0.0)
    assert find(loud).severity is Severity.NONE
    found = find(quiet, shown=hit(51, Severity.MEDIUM))
    assert (found.severity, found.at_least, found.people, str(found.harm)) == (
        Severity.MEDIUM,
        51,
        719,
        "membership",
    )
    assert found.is_demonstrated and found.title == "Attack: the adversary learns something"
    assert found.reason == (
        "Membership: 110 of 719 people tested were hit, at least 51 because their data were in; 5\u00a0% are "
        "tolerable, 35."
    )


def test_who_hit_nobody_for_sure_says_so_and_who_counts_nobody_says_why() -> None:
    lucky = find(shown=hit(0, Severity.NONE))
    assert lucky.title == "Attack: nobody is known to be hit beyond luck"
    assert "which luck alone may explain" in lucky.reason
    shown = hit(0, Severity.NONE)
    unlike = find(shown=shown._replace(bound=dataclasses.replace(shown.bound, reason=UNLIKE)))
    assert (
        "luck" not in unlike.reason and "of which nothing follows: its held-out people are not" in unlike.reason
    )
    silent = find(card=CARD | {"uncounted": "it ranks clients."})
    assert silent.title == "Attack: it counts nobody here" and silent.reason.endswith(
        "severity: it ranks clients."
    )
    unread = find(read=[])
    assert "opened none of the messages" in unread.reason and unread.severity is Severity.NONE


@pytest.mark.parametrize(
    ("status", "outcome", "title"),
    [
        ("failed", Outcome.FAILED, "the attack failed to run"),
        ("not_applicable", Outcome.NOT_APPLICABLE, "does not apply to this run"),
        ("unverified", Outcome.RAN, "what it claims could not be verified"),
    ],
)
def test_whether_it_looked_at_all_is_its_outcome(status: str, outcome: Outcome, title: str) -> None:
    found = find(status=status, reason="why", assertions=[])
    assert (found.outcome, found.severity) == (outcome, Severity.NONE)
    assert title in found.title and "why" in found.reason


@pytest.mark.parametrize("origin", ["replayed", "replayed, whole"])
def test_what_the_auditor_made_is_a_control_and_never_quoted_as_what_happened(origin: str) -> None:
    sent = beyond("named", 0.1, condition={"n": 1.0, "origin": "recorded"})
    made = beyond("named", 0.9, condition={"n": 1.0, "origin": origin})
    found = find(made, sent)
    assert [e.control for e in found.evidence] == ["positive", "none"]
    assert found.summary.startswith(describe_evidence(sent))
    assert find(made).summary == "The attack ran; only its controls could be measured."


def test_the_most_telling_measure_is_quoted() -> None:
    assert find(beyond("rank5", 0.0), beyond("auc", 0.0)).summary.startswith("AUC 0")


def at(measure: str, n: int, leaks: bool) -> Evidence:
    """Evidence of n samples that is clear of its baseline, or has too few trials for that."""
    row = find_measure(measure)
    return Evidence(
        measure=measure,
        value=0.6,
        unit=row.unit,
        trials=200 if leaks else 8,
        interval=(0.55, 0.65) if leaks else (0.2, 0.9),
        baselines=(Baseline(name="blind", value=0.5),),
        condition={"kind": "here", "n": n, "origin": "recorded"},
    )


@pytest.mark.parametrize("seed", range(6))
def test_of_larger_groups_than_any_measure_showed_something_for_nothing_is_said(seed: int) -> None:
    rng = random.Random(seed)
    found = [at(m, n, rng.random() < 0.4) for m in ("named", "member_first") for n in (1, 2, 5, 10)]
    largest = max((e.condition["n"] for e in found if clear(e)), default=None)
    text = find(*found).summary
    assert ("The largest n" in text) is (largest is not None)
    assert largest is None or f"beat guessing is {largest:g}" in text
    assert "no longer" not in text


def test_clear_is_clear_of_every_baseline_with_the_whole_interval() -> None:
    e = beyond("auc", 0.5, interval=(0.4, 0.6))
    assert clear(e) and not clear(dataclasses.replace(e, interval=None))
    near = dataclasses.replace(e, baselines=(*e.baselines, Baseline(name="other", value=0.45)))
    assert not clear(near)
    assert not clear(beyond("auc", 0.0))
    wide = Baseline(name="blind", value=0.3, interval=(0.29, 0.55))  # its far end counts
    assert not clear(dataclasses.replace(e, baselines=(wide,)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"measure": "likeness"}, "entry 0: .*no row"),
        ({"value": "much"}, "entry 0.value: "),
        ({"interval": [0]}, "entry 0.interval"),
        ({"p": 0.1}, "entry 0.p: "),
    ],
)
def test_damaged_evidence_is_refused_by_the_name_of_its_attack(change: dict[str, Any], said: str) -> None:
    whole = dataclasses.asdict(beyond("named", 0.5)) | change
    with pytest.raises(UserError, match=f"the evidence of mine cannot be read: {said}"):
        find(name="mine", evidence=[whole])


def test_the_headline_never_reassures_where_a_question_is_open() -> None:
    assert "1 required question is open" in write_headline([find()], [ask(State.OPEN)]).sentence
    assert "every required question was answered" in write_headline([find()], [ask(State.CLEAR)]).sentence
    worst = find(shown=hit(51, Severity.MEDIUM))
    assert write_headline([find(), worst], [ask(State.EXPOSED)]).sentence.startswith(worst.title)


# One order ----------------------------------------------------------------------------------------


def list_shown(texts: Sequence[str], titles: Sequence[str]) -> list[str]:
    return [t for t in texts if t in titles]


@pytest.mark.parametrize("seed", range(3))
def test_audit_json_and_every_section_show_findings_in_one_order(seed: int) -> None:
    audited = result()
    mixed = random.Random(seed).sample(audited.findings, len(audited.findings))
    again = AuditResult.model_validate(audited.model_dump() | {"findings": [f.model_dump() for f in mixed]})
    ids = [f.id for f in again.findings]
    assert ids == [f.id for f in worst_first(mixed)]
    assert [f["id"] for f in again.model_dump(mode="json")["findings"]] == ids
    titles = [f.title for f in again.findings]
    document = compose(again, [catalog.load("sections", n) for n in catalog.names("sections")])
    for chapter in document.chapters:
        headings = [b.text for b in chapter.blocks if isinstance(b, Heading)]
        rows = [row[0] for b in chapter.blocks if isinstance(b, Table) for row in b.rows]
        for shown in (list_shown(headings, titles), list_shown(rows, titles)):
            assert shown == [t for t in titles if t in shown], chapter.card.title


def test_the_order_is_severity_then_outcome_and_attacks_before_bounds() -> None:
    some = result().findings
    ranks = [f.severity.rank for f in worst_first(some)]
    assert ranks == sorted(ranks, reverse=True)
    bound, attack = (some[0].model_copy(update={"id": s, "source": s}) for s in ("accountant", "attack"))
    assert [f.id for f in worst_first([bound, attack])] == ["attack", "accountant"]
