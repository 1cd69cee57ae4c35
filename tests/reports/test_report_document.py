"""Composition: order, the sections of others, and that nothing is dropped in silence."""

import base64

import pytest

from fedaudit.attacks.evidence import Series
from fedaudit.reports.document import ReportError, compose
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.renderers.html import Html
from fedaudit.reports.renderers.pdf import Pdf
from fedaudit.reports.result import AuditResult, Figure
from fedaudit.reports.section import Block, Card, Chart, Paragraph, Pictures, Section, Table
from fedaudit.reports.sections.decision import Decision
from fedaudit.reports.sections.limits import Limits
from tests.reports.sample import result
from tests.reports.sample_figures import png


def section_of(*blocks: Block) -> Section:
    class Own(Section):
        card = Card(title="A section of my own", order=15)

        def build(self, result: AuditResult) -> list[Block]:
            return list(blocks)

    return Own()


class Broken(Section):
    card = Card(title="Broken by design", order=12)

    def build(self, result: AuditResult) -> list[Block]:
        raise KeyError("weights")


def figure(**changes: object) -> Figure:
    series = Series(name="a", x=[1, 2], y=[3, 4])
    fields = {"id": "f", "title": "t", "caption": "c", "alt": "a", "x_label": "x", "y_label": "y"}
    return Figure(**{**fields, "series": [series], **changes})


def gallery(rows: dict[str, list[str]], columns: tuple[str, ...] = ()) -> Gallery:
    return Gallery(finding="upcnn", title="g", caption="c", alt="a", rows=rows, columns=list(columns))


def test_sections_come_in_the_order_of_their_cards_however_they_are_passed():
    own = section_of(Paragraph("mine"))
    titles = [c.card.title for c in compose(result(), [Limits, own, Decision()]).chapters]
    assert titles == ["Decision", "A section of my own", "Limits of this audit"]


def test_a_section_that_raises_fails_the_whole_report_and_is_named():
    with pytest.raises(ReportError, match="Broken by design") as caught:
        compose(result(), [Decision(), Broken()])
    assert "Broken" in str(caught.value) and "KeyError: 'weights'" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_section_with_nothing_to_tell_is_left_out_and_a_report_of_none_is_refused():
    titles = [c.card.title for c in compose(result(), [Limits, section_of()]).chapters]
    assert titles == ["Limits of this audit"]
    with pytest.raises(ReportError, match="no section has anything to say"):
        compose(result(), [section_of()])


def test_the_pages_to_decide_by_come_first_whatever_the_order_of_an_appendix():
    class Early(Section):
        card = Card(title="Early", order=0)

        def build(self, result: AuditResult) -> list[Block]:
            return [Paragraph("first?")]

    document = compose(result(), [Early, Decision])
    assert [c.card.title for c in document.front] == ["Decision"]
    assert [c.card.title for c in document.chapters] == ["Decision", "Early"]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (Table(header=["a", "b"], rows=[["1"]], caption="c"), "2 cells"),
        (Table(header=["a"], rows=[["1"]], caption="c", align="x"), "align"),
        (Table(header=["a"], rows=[["1"]], caption="c", widths=[1, 2]), "2 widths"),
        (Chart(figure(series=[])), "no series"),
        (Chart(figure(series=[Series(name="s", x=[1, 2], y=[1])])), "2 x but 1 y"),
        (Chart(figure(series=[Series(name="s", x=[1], y=[1], low=[0])])), "both low and high"),
        (Pictures(gallery({"a": [png(1)], "b": []})), "equal, nonzero"),
        (Pictures(gallery({"a": [png(1)]}, columns=("x", "y"))), "2 column labels"),
        (Pictures(gallery({"a": ["<svg onload=alert(1)>"]})), "not a PNG"),
        (Pictures(gallery({"a": [base64.b64encode(b"GIF89a").decode()]})), "not a PNG"),
        ("just text", "str is not a block"),
    ],
)
def test_a_block_that_no_renderer_could_print_is_refused_with_its_section(block, message):
    with pytest.raises(ReportError, match="A section of my own") as caught:
        compose(result(), [section_of(block)])
    assert message in str(caught.value)


def test_a_damaged_image_fails_the_pdf_instead_of_vanishing():
    cut = base64.b64encode(base64.b64decode(png(1))[:60]).decode()
    document = compose(result(), [section_of(Pictures(gallery({"a": [cut]})))])
    with pytest.raises(ReportError, match="cannot be read as PNG"):
        Pdf().render(document)


def test_a_gallery_or_figure_of_no_finding_is_refused():
    changed = result()
    changed.galleries[0].finding = "ghost"
    with pytest.raises(ReportError, match="no finding 'ghost'"):
        compose(changed, [Decision()])
    changed = result()
    changed.figures[0].finding = "ghost"
    with pytest.raises(ReportError, match="no finding 'ghost'"):
        compose(changed, [Decision()])


def test_a_creation_time_that_is_none_is_refused():
    changed = result()
    changed.created = "yesterday"
    with pytest.raises(ReportError, match="ISO 8601 time, got 'yesterday'"):
        compose(changed, [Decision()])


def test_a_report_without_sections_is_refused():
    with pytest.raises(ReportError, match="at least one section"):
        compose(result(), [])


def test_a_section_of_ones_own_needs_no_change_to_a_renderer():
    extra = result()
    extra.extra["answer"] = 42

    class Answer(Section):
        card = Card(title="My answer", order=15)

        def build(self, result: AuditResult) -> list[Block]:
            return [Paragraph(f"It is *{result.extra['answer']}*.")]

    document = compose(extra, [Decision(), Answer()])
    assert b"It is <em>42</em>." in Html().render(document)
    assert Pdf().render(document).startswith(b"%PDF")


def test_an_audit_with_nothing_in_it_says_so_and_prints_no_empty_chapter():
    from tests.reports.conftest import sections

    bare = result()
    for name in (
        "exposures",
        "questions",
        "rule_questions",
        "findings",
        "figures",
        "galleries",
        "bounds",
        "history",
        "limits",
    ):
        setattr(bare, name, [])
    bare.summary_metrics = {}
    bare.scope.counts, bare.scope.protections, bare.scope.threats = [], [], []
    bare.reproduction.hashes, bare.reproduction.config = {}, ""
    page = Html().render(compose(bare, sections())).decode()
    for chapter in ("Galleries", "Attacks on the model", "Empirical audits", "Claims of privacy"):
        assert chapter not in page
    for text in (
        "No message was recorded",
        "nothing was asked",
        "No accountant was run",
        "nothing was found or ruled out",
        "recorded no limits",
        "No round was measured",
    ):
        assert text in page
