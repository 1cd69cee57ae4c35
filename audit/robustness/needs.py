"""Needs: what each rule must read of every single client; whatever that tells the server is the rule's price."""

from collections.abc import Sequence

from fedaudit.audit.robustness.plan import Rule
from fedaudit.audit.settings import catalog
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.kinds import Kind
from fedaudit.reports.robustness import Needs

MODELS = (Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.NORMALIZED_DELTA, Kind.GRADIENT)
PROTOTYPES = (Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS)


def needs(rules: Sequence[Rule]) -> list[Needs]:
    """One for each rule, by its name; none of a client's kinds where sums are enough."""
    once = {rule.name: rule for rule in rules}
    return [
        Needs(
            rule=name,
            kinds=[
                *(MODELS if _singly(str(rule.aggregator["name"])) else ()),
                *(PROTOTYPES if _singly(str(rule.prototypes["name"])) else ()),
            ],
        )
        for name, rule in once.items()
    ]


def _singly(rule: str) -> bool:
    found: type[Aggregator] = catalog.load("aggregators", rule)
    return found.reads_single_uploads
