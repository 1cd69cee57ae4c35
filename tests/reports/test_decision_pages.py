"""The pages to decide by and the annexes: what a person who signs reads."""

import pytest

from reports.decision import Word
from reports.result import Alternative, AuditResult, Outcome, Severity, Trade
from reports.section import Banner, Block, Cell, Heading, Table, words
from reports.sections.annexes import Annexes
from reports.sections.behind import Behind
from reports.sections.decision import Decision
from tests.reports.sample import result


def options(audited: AuditResult) -> list[list[str]]:
    blocks = Decision().build(audited)
    at = blocks.index(Heading("What must be decided"))
    table = blocks[at + 1]
    assert isinstance(table, Table)
    return [[words(c) for c in row] for row in table.rows]


@pytest.mark.parametrize("word", Word)
def test_every_word_has_a_banner_of_its_own_and_none_says_safe(word: Word) -> None:
    audited = result()
    assert audited.decision is not None
    audited.decision.word = word
    (banner,) = [b for b in Decision().build(audited) if isinstance(b, Banner)]
    assert word.replace("_", " ") in banner.title.lower() and "safe" not in banner.title.lower()


def test_options_have_what_was_measured_of_the_variants_and_accepting_the_risk_is_the_last() -> None:
    audited = result()
    worst = audited.findings[0]
    trade = Trade(finding=worst.id, measure="rank1", place="n = 1", unit="fraction", value=0.784)
    audited.alternatives = [
        Alternative(name="as audited", protections=[], accuracy=0.93, severity=Severity.CRITICAL, trades=[trade]),
        Alternative(
            name="noise",
            protections=["Gaussian noise"],
            accuracy=0.9,
            severity=Severity.LOW,
            inconclusive=1,
            epsilon=4.0,
            unit="client",
            trades=[trade.model_copy(update={"value": 0.1})],
        ),
        Alternative(name="stopped", protections=[], finished=False),
    ]
    first, second, last = options(audited)
    assert first[0] == "A. noise: Gaussian noise" and first[2].replace("\u00a0", " ") == "93 % \u2192 90 %"
    said = first[1].replace("\u00a0", " ")
    assert said.startswith("critical \u2192 low") and "78.4 % \u2192 10 %" in said
    assert "1 attack could not tell" in said and "epsilon 4 per client" in said
    assert second[1] == "not run to the end"
    assert last[0].startswith("C. Accept the risk until")


def test_without_variants_options_are_the_remedies_and_say_that_nothing_was_measured() -> None:
    audited = result()
    rows = options(audited)
    remedies = [f.remedy for f in audited.findings if f.outcome is Outcome.DEMONSTRATED and f.remedy]
    assert len(rows) > 1 and remedies
    assert all("not measured" in row[1] for row in rows[:-1])


def test_a_result_of_an_older_version_has_no_pages_to_decide_by() -> None:
    audited = result()
    audited.decision = None
    assert Decision().build(audited) == Behind().build(audited) == Annexes().build(audited) == []


def cells(blocks: list[Block]) -> list[list[str]]:
    return [[words(c) for c in row] for b in blocks if isinstance(b, Table) for row in b.rows]


def test_who_saw_what_names_what_nothing_attacked() -> None:
    rows = {row[0]: row for row in cells(Behind().build(result()))}
    assert "not proto counts" in rows["Server"][3] and "local prototypes" in rows["Server"][3]
    assert rows["Public"][1] == "nothing"


def test_the_annex_has_a_row_an_observer_and_never_calls_the_untested_safe() -> None:
    rows = {row[0]: row for row in cells(Annexes().build(result()))}
    server, public = rows["The server's operator"], rows["Whoever gets the model"]
    assert "upcnn" in server[1] and "78.4" in server[2] and server[4].startswith("critical")
    assert public[3] == "global prototypes" and "not known" in public[4]


def test_a_cell_says_all_it_has() -> None:
    assert words(Cell(lead="a", text="b", note="c", badge=Severity.LOW)) == "low a b c"
