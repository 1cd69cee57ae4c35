"""Rules around a rule: what they share is the rule inside, by its name and its settings."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from fedaudit.fl.aggregation.aggregator import RowRule
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError

Inner = Annotated[
    str | dict[str, Any],
    Field(description="the rule inside, as a config writes one; it takes this f where it needs one and has none"),
]


def build_inner(given: str | Mapping[str, Any], f: float | None = None) -> RowRule:
    """The rule inside; raises UserError for one that holds no rows, or that is not a file of fl/aggregators/."""
    settings: dict[str, Any] = {"name": given} if isinstance(given, str) else dict(given)
    name = str(settings.pop("name", ""))
    # Never code of a user's own: that is named on top
    plugin.find_module(["fedaudit.fl.aggregators"], name, "aggregator.rule")
    cls = plugin.load("fedaudit.fl.aggregators", name, RowRule, "aggregator.rule") if name != "mean" else None
    if cls is None:
        raise UserError(
            "aggregator.rule must work on rows, and mean does not",
            hint="use trimmed_mean with f: 0, which is the plain mean",
            key="aggregator.rule",
        )
    if "too_few" in settings:
        raise UserError(
            f"aggregator.rule has too_few: {settings['too_few']!r}, and the rule around it says what happens",
            hint="write too_few beside rule",
            key="aggregator.rule",
        )
    if f is not None and "f" not in settings and any(x.name == "f" for x in dataclasses.fields(cls.Config)):
        settings["f"] = f
    made: RowRule = plugin.configure(cls, settings, "aggregator.rule")
    return made
