"""Auto: the tightest accountant that is sound for the releases, checked by two others.

The policy is audit/accounting/accountants/_engines.py; the report names the accountant that was chosen.
"""

from collections.abc import Sequence

from pydantic import Field

from fedaudit.audit.accounting.accountant import Accountant, Bound, Card, Numerical
from fedaudit.audit.accounting.accountants._engines import cross_check, tightest
from fedaudit.audit.accounting.terms import terms
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.settings import settings


class Auto(Accountant):
    card = Card(
        title="Tightest that applies",
        source="exact, PLD or WOR-PLD",
        adjacency=("add_or_remove_one", "replace_one"),
    )

    @settings
    class Config(Numerical.Config):
        cross_check: bool = Field(
            default=True, description="whether dp-accounting's own RDP and PLD are computed as well, to compare"
        )

    def refuses(self, release: Release) -> str | None:
        return None  # what no engine can credit with sampling is counted in full

    def compose(self, releases: Sequence[Release], delta: float) -> Bound:
        counts = terms(releases)
        return tightest(counts, delta, self.config) if counts else Bound(epsilon=0.0)

    def cross_check(self, bound: Bound, releases: Sequence[Release], delta: float) -> Bound:
        if not self.config.cross_check:
            return bound
        return cross_check(bound, terms(releases), delta, self.config)
