"""What `fedaudit plan` says, as sentences and lists, and how it is printed: one screen, or all of it."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

SCREEN = 79  # signs of a line that a terminal shows whole


class Rows(TypedDict):
    """A list of a plan."""

    title: str
    names: list[str]  # of what is listed
    rows: dict[str, str]  # what is said of one, or of several for one reason


def write_whole(plan: Sequence[str | Rows]) -> Iterator[str]:
    """The plan with every list."""
    for part in plan:
        if isinstance(part, str):
            yield part
            continue
        yield ""
        yield f"{part['title']}:" if part["rows"] else f"{part['title']}: none"
        yield from (f"  {name}: {why}" for name, why in part["rows"].items())


def write_short(plan: Sequence[str | Rows]) -> Iterator[str]:
    """One screen: of a list how many there are, and their names where these fit beside it."""
    for part in plan:
        if isinstance(part, str):
            if part:
                yield part
            continue
        names, count = part["names"], f"{part['title']}: {len(part['names']) or 'none'}"
        listed = f"{count} ({', '.join(names)})"
        yield listed if names and len(listed) <= SCREEN else count
