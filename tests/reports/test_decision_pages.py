"""The pages to decide by and the annexes: what a person who signs reads."""

import re
from pathlib import Path

from fedaudit.reports import format as fmt
from fedaudit.reports.document import Document
from fedaudit.reports.page import Page
from fedaudit.reports.result import Severity
from fedaudit.reports.robustness import NotRun
from fedaudit.reports.section import Block, Cell, Folded, Table, words
from fedaudit.reports.sections._not_run import tabulate_failures
from fedaudit.reports.sections.annexes import Annexes
from fedaudit.reports.sections.behind import Behind
from fedaudit.reports.sections.decision import Decision
from fedaudit.reports.sections.protections import Protections
from tests.reports.audits import NEW, crowded
from tests.reports.sample import result


def test_a_result_of_an_older_version_has_no_pages_to_decide_by() -> None:
    audited = result()
    audited.decision = None
    assert Decision().build(audited) == Behind().build(audited) == Annexes().build(audited) == []
    audited = result()
    audited.verdict.page = Page()  # an audit that has a decision and no pages yet
    assert Decision().build(audited) == Behind().build(audited) == []


def cells(blocks: list[Block]) -> list[list[str]]:
    return [[words(c) for c in row] for b in blocks if isinstance(b, Table) for row in b.rows]


def test_a_run_that_stands_alone_in_the_table_of_the_unfinished_is_not_called_one_of_more() -> None:
    runs = [
        NotRun(cells=["median"], reason="too few", failed=False),
        NotRun(cells=["krum", "bulyan", "none"], reason="an error", failed=True),
    ]
    rows = cells([tabulate_failures(runs, "Run", "c")])
    assert [row[0] for row in rows] == ["median", "krum and 2 more"]


def test_a_cell_says_all_it_has() -> None:
    assert words(Cell(lead="a", text="b", note="c", badge=Severity.LOW)) == "low a b c"


STAMP = re.compile(r"\d{4}-\d\d-\d\dT")


def test_every_time_of_the_report_is_written_in_the_one_way(document: Document) -> None:
    for chapter in document.chapters:
        for block in chapter.blocks:
            assert not STAMP.search(repr(block)), chapter.card.title


def test_a_simulated_federation_has_no_section_on_where_it_came_from(document: Document) -> None:
    assert document.result.imported is None
    assert "Where it came from" not in [c.card.title for c in document.chapters]
    scope = next(c for c in document.chapters if c.card.title == "What was audited")
    assert "simulated by fedaudit" in repr(scope.blocks)


def test_no_interval_is_written_in_brackets() -> None:
    assert fmt.points(0.012, (0.003, 0.02)) == "1.2 (0.3 to 2.0)" and fmt.points(-0.5, None) == "-50.0"
    assert fmt.points_less(0.012, (-0.003, 0.02)) == "1.2 points less (-0.3 to 2.0)"
    assert fmt.points_less(-0.094, (-0.12, 0.003)) == "9.4 points more (-0.3 to 12.0)"
    assert fmt.points_less(-0.0001, None) == "0.0 points less"
    sources = [
        p for folder in ("reports", "audit") for p in Path(folder).rglob("*.py") if "reproduce" not in p.parts
    ]
    bracketed = re.compile(r"\[\{[^}]*\}, \{[^}]*\}\]")
    assert [str(p) for p in sources if bracketed.search(p.read_text())] == []


def test_the_appendix_has_what_becomes_of_every_harm() -> None:
    audited = crowded(risks=5, options=1)
    (folded,) = [b for b in Protections().build(audited) if isinstance(b, Folded) and "every harm" in b.title]
    (table,) = folded.blocks
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["stopped", "left, low", "open", "stopped", "left, low", NEW]
