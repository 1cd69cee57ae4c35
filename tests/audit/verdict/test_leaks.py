"""One leak is one finding: the strongest leads, the others stand below it, and all that counts counts it once."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.findings import ONE_LEAK, join_leaks
from fedaudit.audit.verdict.policy import find_known, load_policy, select_demonstrated
from fedaudit.fl.threats.threat import Harm, Position, ThreatModel
from fedaudit.reports.document import compose
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult, Finding, worst_first
from fedaudit.reports.sections.findings import Findings
from tests.audit.verdict.audits import ask, make_audit, make_finding

POLICY = load_policy("default")
SERVER = ThreatModel(position=Position.SERVER)
MEANS = ["local_prototypes"]


def show(
    id: str, severity: str, harm: Harm = Harm.RECONSTRUCTION, threat: ThreatModel = SERVER, **more: list[str]
) -> Finding:
    fields = {"artifacts": MEANS} | more
    return make_finding(
        severity, id=id, title=f"{id}: the adversary learns it", harm=harm, threat=threat, **fields
    )


def one_cell() -> list[Finding]:
    """What four attacks show of the same means of classes, to the same party."""
    findings = [
        show("upcnn", "critical"),
        show("ridge", "medium"),
        show("lookup", "high"),
        show("prototype_membership", "medium", Harm.MEMBERSHIP),
    ]
    join_leaks(findings)
    return findings


def audit_cell() -> AuditResult:
    audited = make_audit(
        *worst_first(one_cell()), cells=[ask(State.EXPOSED, Harm.RECONSTRUCTION, findings=["upcnn", "lookup"])]
    )
    audited.figures, audited.galleries, audited.texts = [], [], []
    audited.decision = decide(audited, POLICY)
    return audited


def test_one_cell_is_one_finding_and_the_strongest_attack_leads() -> None:
    findings = one_cell()
    (leading,) = select_demonstrated(findings)
    assert leading.id == "upcnn"
    assert leading.shown_by == ["lookup", "ridge", "prototype_membership"]
    assert {f.part_of for f in findings if f is not leading} == {"upcnn"}


def test_who_shows_the_same_leak_stands_right_below_it() -> None:
    mild = show("count_recovery", "high", Harm.ATTRIBUTE)
    ordered = [f.id for f in worst_first([*one_cell(), mild])]
    assert ordered == ["upcnn", "lookup", "ridge", "prototype_membership", "count_recovery"]


@pytest.mark.parametrize(
    "other",
    [
        show("other", "high", Harm.LINKAGE),
        show("other", "high", Harm.ATTRIBUTE),
        show("other", "high", artifacts=["local_model"]),
        show("other", "high", threat=replace(SERVER, position=Position.CLIENT)),
        show("other", "none"),
    ],
)
def test_another_harm_party_or_kind_is_another_leak(other: Finding) -> None:
    first = show("upcnn", "critical")
    join_leaks([first, other])
    assert not other.part_of and not first.shown_by
    assert Harm.LINKAGE not in ONE_LEAK


def test_exports_and_the_decision_count_it_once() -> None:
    audited = audit_cell()
    assert audited.decision is not None and len(audited.decision.risks) == 1
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


def test_what_leads_now_is_known_where_the_baseline_had_it_below_another() -> None:
    audited = audit_cell()
    (ridge,) = [f.model_copy() for f in one_cell() if f.id == "ridge"]
    ridge.part_of = ""
    now = audited.model_copy(update={"findings": [ridge]})
    assert find_known(now, audited) == ["ridge"]
