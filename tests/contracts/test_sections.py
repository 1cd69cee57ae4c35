"""Every section and protection: unique places in a report, descriptions in plain words."""

import pytest

from fedaudit.audit.settings import catalog
from tests.contracts.words import odd


def test_no_two_sections_have_one_place() -> None:
    orders = [catalog.load("sections", name).card.order for name in catalog.names("sections")]
    assert len(orders) == len(set(orders)) > 5


@pytest.mark.parametrize("name", catalog.names("sections"))
def test_a_section_has_a_heading_in_plain_words(name: str) -> None:
    title = catalog.load("sections", name).card.title
    assert title and not odd(title)


@pytest.mark.parametrize("name", catalog.names("protections"))
def test_a_protection_says_what_it_is_and_where_from(name: str) -> None:
    cls = catalog.load("protections", name)
    assert cls.title and not odd(cls.title) and cls.source


@pytest.mark.parametrize("name", catalog.names("accountants"))
def test_an_accountant_has_a_card_and_nothing_released_is_no_bound(name: str) -> None:
    cls = catalog.load("accountants", name)
    assert cls.card.title and cls.card.source and cls.card.adjacency
    assert cls().epsilon([], 1e-5).epsilon == float("inf")
