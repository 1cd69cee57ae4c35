"""JSON that says one thing: a key that stands twice is refused, since readers differ in which they take."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError for text that is no JSON, holds a key twice in one object or is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_build_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r:.60} stands twice")
    return found
