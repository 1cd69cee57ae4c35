"""Coverage: every attack beside what it read, and what nobody read said aloud."""

from reports.result import AuditResult, Outcome, Severity
from reports.section import Paragraph, Table
from reports.sections.coverage import Coverage
from tests.reports.sample import result


def with_artifacts(kinds: list[str]) -> AuditResult:
    sample = result()
    attacks = [f.model_copy(update={"artifacts": kinds}) for f in sample.findings]
    return sample.model_copy(update={"findings": attacks})


def test_a_demonstrated_attack_shows_its_severity_under_the_artifact_it_read() -> None:
    kind = result().exposures[0].kind
    (table,) = [b for b in Coverage().build(with_artifacts([kind])) if isinstance(b, Table)]
    assert table.header == ["Attack", kind]
    found = [f for f in result().findings if f.source == "attack"]
    cells = {row[0]: row[1] for row in table.rows}
    worst = next(f for f in found if f.severity is Severity.CRITICAL)
    assert cells[worst.method] == "Critical"
    assert "Inconclusive" in cells.values() and len(table.rows) == len(found)
    assert any(f.outcome is Outcome.INCONCLUSIVE for f in found)


def test_an_artifact_that_no_attack_reads_is_named() -> None:
    kinds = list(dict.fromkeys(e.kind for e in result().exposures))
    (text,) = [b.text for b in Coverage().build(with_artifacts(kinds[:1])) if isinstance(b, Paragraph)]
    assert all(f"`{kind}`" in text for kind in kinds[1:])
    assert f"`{kinds[0]}`" not in text


def test_an_attack_on_something_that_was_never_sent_is_not_in_the_table() -> None:
    blocks = Coverage().build(with_artifacts(["generator_weights_nobody_sent"]))
    assert not [b for b in blocks if isinstance(b, Table)]


def test_a_report_without_attacks_says_that_nothing_was_tested() -> None:
    bare = result().model_copy(update={"findings": []})
    (only,) = Coverage().build(bare)
    assert isinstance(only, Paragraph) and "not tested" in only.text
