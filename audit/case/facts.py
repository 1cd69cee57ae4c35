"""Facts of a plain value: what two versions of fedaudit say alike, whatever their sentences and pictures."""

from collections.abc import Mapping
from typing import Any

# Keys whose words are facts: ids, outcomes and words of the vocabulary. Of all else numbers alone are
WORDS = frozenset(
    {
        *(
            "id",
            "outcome",
            "severity",
            "state",
            "word",
            "rule",
            "bar",
            "status",
            "observer",
            "unit",
            "harm",
            "kind",
        ),
        *("measure", "control", "adjacency", "mechanism", "accountant", "attack"),
    }
)
MADE = frozenset({"page"})  # of the other facts, for a reader
LISTS = frozenset({"failing", "accepted", "known", "cells", "findings", "shown_by"})  # of ids


def keep_facts(value: Any, key: str = "") -> Any:
    """Ids, outcomes, severities, numbers and words of a plain value; None of what is a sentence alone."""
    if key in MADE:
        return None
    if isinstance(value, Mapping):
        if key in LISTS:
            return sorted(value)
        kept = {k: keep_facts(v, k) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None} or None
    if isinstance(value, list | tuple):
        kept_entries = [keep_facts(v, "id" if key in LISTS else key) for v in value]
        return [v for v in kept_entries if v is not None] or None
    return None if isinstance(value, str) and key not in WORDS else value
