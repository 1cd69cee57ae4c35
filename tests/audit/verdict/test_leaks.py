"""One leak is one finding: the strongest leads, the others stand below it, and all that counts counts it once."""

import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence

import pytest

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.phases.evidence import card_fields
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.answers import answer_signer
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.findings import Attacked
from fedaudit.audit.verdict.heads import count_exposed_people
from fedaudit.audit.verdict.judge import judge_subject
from fedaudit.audit.verdict.leaks import ONE_LEAK, join_leaks
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.terms import find_known, select_demonstrated
from fedaudit.fl.kinds import Kind
from fedaudit.reports.document import compose
from fedaudit.reports.result import AuditResult, Finding, Outcome, Severity, worst_first
from fedaudit.reports.sections.findings import Findings
from tests.reports.sample import result

POLICY = load_policy("default")
CELL = {"upcnn": 0.9, "ridge": 0.4, "lookup": 0.6, "prototype_membership": 0.3}  # named above chance


def run_attack(
    name: str,
    value: float,
    kinds: tuple[Kind, ...] = (),
    people: Sequence[PeopleCount] = (),
    condition: Mapping[str, str] | None = None,
) -> Attacked:
    """What an attack of ours left that names a share `value` of the people behind these kinds."""
    card = catalog.load("attacks", name).card
    evidence = [
        Evidence(
            measure="named",
            value=value,
            unit="fraction",
            trials=500,
            interval=(value - 0.02, value + 0.02),
            baselines=(Baseline(name="chance", value=0.01),),
            control=control,  # type: ignore[arg-type]
            condition=condition or {},
        )
        for control in ("none", "positive")
    ]
    return Attacked(
        {
            "name": name,
            "card": card_fields(card),
            "observer": str(card.threat.position),
            "status": "ran",
            "reason": "",
            "evidence": [dataclasses.asdict(e) for e in evidence],
            "people": [dataclasses.asdict(p) for p in people],
            "read": [str(k) for k in (*(kinds or card.targets), *card.aids)],
        }
    )


def find_leaks(*attacks: Attacked) -> list[tuple[Attacked, Finding]]:
    findings = [(a, judge_subject(a, POLICY)) for a in attacks]
    join_leaks(findings)
    return findings


def one_cell() -> list[Finding]:
    """One cell of ten images, which four attacks on its prototype show."""
    kinds = (Kind.LOCAL_PROTOTYPES,)
    return [f for _, f in find_leaks(*(run_attack(name, value, kinds) for name, value in CELL.items()))]


def audit_cell() -> AuditResult:
    audited = result()
    fields = {"findings": worst_first(one_cell()), "figures": [], "galleries": [], "decision": None}
    audited = audited.model_copy(update=fields)
    audited.decision = decide(audited, POLICY)
    return audited


def test_one_cell_is_one_finding_and_the_strongest_attack_leads() -> None:
    findings = one_cell()
    assert len({f.severity for f in findings}) > 1
    (leading,) = select_demonstrated(findings)
    assert leading.id == "upcnn" and leading.severity is Severity.CRITICAL
    assert leading.shown_by == ["lookup", "ridge", "prototype_membership"]
    assert {f.part_of for f in findings if f is not leading} == {"upcnn"}


def test_who_shows_the_same_leak_stands_right_below_it() -> None:
    mild = find_leaks(run_attack("count_recovery", 0.5))[0][1]
    below = ["lookup", "prototype_membership", "ridge"]  # of one severity in their own order
    ordered = [f.id for f in worst_first([*one_cell(), mild])]
    at = ordered.index("upcnn")
    assert sorted(ordered[at + 1 : at + 4]) == below


@pytest.mark.parametrize("name", [n for n in catalog.names("attacks") if n not in CELL])
def test_another_aim_party_or_kind_is_another_leak(name: str) -> None:
    card = catalog.load("attacks", name).card
    first, other = (
        f for _, f in find_leaks(run_attack("upcnn", 0.9, (Kind.LOCAL_PROTOTYPES,)), run_attack(name, 0.3))
    )
    kinds = {str(k) for k in card.targets}
    same = card.aim in ONE_LEAK and kinds == {"local_prototypes"} and other.threat == first.threat
    if card.aim not in ONE_LEAK or kinds != {"local_prototypes"}:
        assert not other.part_of and not first.shown_by
    elif same:
        assert other.part_of == "upcnn"


def test_exports_and_the_decision_count_it_once() -> None:
    audited = audit_cell()
    assert audited.decision is not None and audited.decision.failing == ["upcnn"]
    document = compose(audited, [Findings])
    sarif = json.loads(catalog.load("renderers", "sarif")().render(document))
    (found,) = sarif["runs"][0]["results"]
    assert found["ruleId"] == "upcnn" and len(found["properties"]["shownBy"]) == 3
    (case,) = [
        c
        for c in ET.fromstring(catalog.load("renderers", "junit")().render(document)).iter("testcase")
        if ".attack." in c.get("classname", "")
    ]
    assert case.get("classname", "").endswith("upcnn")
    bom = json.loads(catalog.load("renderers", "cyclonedx")().render(document))
    assert len(bom["declarations"]["claims"]) == 1
    text = catalog.load("renderers", "markdown")().render(document).decode()
    assert text.count("the adversary learns") <= 2  # the headline and the row


def test_what_leads_now_is_known_where_the_baseline_had_it_below_another() -> None:
    audited = audit_cell()
    (ridge,) = [f.model_copy() for f in one_cell() if f.id == "ridge"]
    ridge.part_of = ""
    now = audited.model_copy(update={"findings": [ridge]})
    assert find_known(now, audited) == ["ridge"]


def test_people_of_one_leak_are_those_of_its_strongest_attack_that_names_them() -> None:
    def hit(rows: tuple[int, ...]) -> list[PeopleCount]:
        people = PeopleCount(
            hit_means="named", tested={0: tuple(range(100))}, hit={0: rows}, held={0: 100}, luck=Share(trials=100)
        )
        return [people]

    kinds = (Kind.LOCAL_PROTOTYPES,)
    found = find_leaks(
        run_attack("upcnn", 0.9, kinds),
        run_attack("lookup", 0.6, kinds, hit((1, 2, 3))),
        run_attack("ridge", 0.4, kinds, hit((4, 5))),
    )
    heads = count_exposed_people(found)
    assert heads is not None and heads.expected == 3
    assert count_exposed_people(found[:1]) is None


def test_an_attack_that_opened_no_message_learned_nothing_from_them() -> None:
    read = run_attack("loss_threshold", 0.9)
    unread = Attacked({**read.file, "read": []})
    assert judge_subject(read, POLICY).is_demonstrated
    finding = judge_subject(unread, POLICY)
    assert finding.outcome is Outcome.INCONCLUSIVE and finding.severity is Severity.NONE
    assert "opened none of the messages" in finding.summary


def test_how_sure_an_audit_is_counts_attacks_without_a_control() -> None:
    ran = [f for _, f in find_leaks(run_attack("loss_threshold", 0.9), run_attack("entropy", 0.9))]
    kept = [e for e in ran[0].evidence if e.control != "positive"]
    tried = dataclasses.replace(kept[0], control="negative", value=0.0, interval=(0.0, 0.01))
    ran[0].evidence = [*kept, tried]
    audited = result().model_copy(update={"findings": ran})
    (how_sure,) = (a.answer for a in answer_signer(audited, []) if a.question == "How sure is it?")
    assert "no leak was planted for 1 other." in how_sure and "No such data was given to 1 other." in how_sure
