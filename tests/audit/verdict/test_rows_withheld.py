"""Rows that an attack claims: a row as a row in the report, and no value of it where it is withheld."""

import dataclasses
import io

import numpy as np
import pytest
from pypdf import PdfReader

from fedaudit.attacks.evidence import RowExhibit
from fedaudit.attacks.modality.table import write_pair
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.disclosure import withhold
from fedaudit.audit.verdict.findings import list_rows, list_texts
from fedaudit.fl.data.columns import Column, Columns
from fedaudit.reports.document import compose
from fedaudit.reports.result import AuditResult
from tests.reports.sample import result

COLUMNS = Columns(
    columns=(
        Column(name="systolic", unit="mmHg", step=1, low=80, high=220),
        Column(name="ward", kind="category", levels=("oncology", "surgery"), missing=True),
    )
)


@pytest.fixture
def shown() -> AuditResult:
    pairs = [
        write_pair("client 3, best", np.array([163.0, 0]), np.array([163.2, 0]), COLUMNS),
        write_pair("client 5, worst", np.array([187.0, 1]), np.array([194.0, np.nan]), COLUMNS),
    ]
    exhibit = RowExhibit(title="Rows read from updates", caption="The nearest and the farthest.", pairs=pairs)
    found = result()
    file = {"name": found.findings[0].id, "rows": [dataclasses.asdict(exhibit)]}
    assert not list_texts(file)
    return found.model_copy(update={"rows": list_rows(file)})


def render(found: AuditResult, kind: str) -> str:
    document = compose(found, [catalog.load("sections", "row_pairs")])
    made: bytes = catalog.load("renderers", kind)().render(document)
    if kind == "html":
        return made.decode()
    return " ".join("".join(page.extract_text() for page in PdfReader(io.BytesIO(made)).pages).split())


@pytest.mark.parametrize("kind", ["html", "pdf"])
def test_a_claimed_row_stands_beside_the_original_column_by_column(shown: AuditResult, kind: str) -> None:
    page = render(shown, kind)
    for text in ("187 mmHg", "194 mmHg", "oncology", "missing", "systolic", "Rows read from updates"):
        assert text in page
    assert "Client 5, worst: 2 of 2 columns differ, by 0.525 over all" in page
    assert "Client 3, best: 1 of 2 columns differ, by 0.000714 over all" in page


@pytest.mark.parametrize("show", ["redacted", "reconstructions"])
def test_no_value_of_a_withheld_row_is_in_any_file_and_how_far_it_is_off_is(
    shown: AuditResult, show: str
) -> None:
    hidden = withhold(shown, show, {})  # type: ignore[arg-type]
    for text in (hidden.model_dump_json(), render(hidden, "html"), render(hidden, "pdf")):
        assert not [value for value in ("mmHg", "oncology", "surgery") if value in text]
        assert "[value]" in text
    assert "2 of 2 columns differ, by 0.525 over all" in render(hidden, "pdf")
    assert withhold(shown, "full", {}).rows == shown.rows


def test_an_audit_without_rows_has_no_such_chapter() -> None:
    assert not catalog.load("sections", "row_pairs")().build(result())
