"""Every attack, adversary, lint and other source of findings has a row in the table of catalogues."""

import re
from typing import get_args

import pytest

from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.audit.robustness.table import describe_adversary
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.taxonomy import (
    EDITIONS,
    EXCEPTIONS,
    ROWS,
    SORTS,
    SOURCES,
    in_words,
    place_finding,
    sort_of,
    taxa,
)
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.result import Finding, Outcome, Severity

OURS = {*catalog.names("attacks"), *catalog.names("adversaries")}
FORMS = {  # as the editions write their ids
    "NIST AI 100-2": r"NISTAML\.\d{2,3}",
    "MITRE ATLAS": r"AML\.T\d{4}(\.\d{3})?",
    "OWASP ML Top 10": r"ML(0[1-9]|10):2023",
}


def test_exceptions_are_plugins_of_ours() -> None:
    assert EXCEPTIONS.keys() <= OURS


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_plugin_has_a_row_that_fits_its_aim(name: str) -> None:
    kind = "attacks" if name in catalog.names("attacks") else "adversaries"
    loaded = catalog.load(kind, name)
    sort = sort_of(name, loaded.card.aim)
    assert sort in ROWS
    if kind == "attacks":
        assert loaded.card.aim.is_against_people
    else:
        assert describe_adversary({"name": name}).taxonomy == taxa(sort)
        assert not issubclass(loaded, Backdoors) or sort in ("backdoor", "label poisoning")


def test_every_row_is_of_a_pinned_edition_and_its_ids_have_that_editions_form() -> None:
    assert {*SORTS.values(), *EXCEPTIONS.values(), *SOURCES.values()} <= ROWS.keys()
    for row in ROWS.values():
        assert row and row.keys() <= EDITIONS.keys()
        for catalogue, form in FORMS.items():
            assert all(re.fullmatch(form, i) for i in row.get(catalogue, ()))
    assert SORTS.keys() == set(Aim)


def test_every_source_of_findings_is_placed() -> None:
    sources = get_args(Finding.model_fields["source"].annotation)
    assert {*SOURCES, "attack"} == set(sources)
    for source in SOURCES:
        found = Finding(
            id="x", title="x", source=source, outcome=Outcome.FAILED, severity=Severity.NONE, summary=""
        )
        assert place_finding(found)


def test_atlas_has_no_id_for_federated_learning_and_is_only_nearest() -> None:
    words = in_words(taxa("membership"))
    assert "MITRE ATLAS 5.6.0, nearest AML.T0024.000" in words and "NIST AI 100-2 E2025 NISTAML.033" in words
