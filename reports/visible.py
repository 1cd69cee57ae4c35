"""Text with nothing hidden in it: control signs and those that turn the direction of writing are named."""

import re
from typing import Any

# C0 but tab and line feed, C1, marks and overrides of direction, line separators, tags, halves of surrogate pairs
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(value: Any) -> Any:
    """Every text in it with such a sign as [U+202E]: it could overwrite a terminal, or show another text."""
    match value:
        case str():
            return _HIDDEN.sub(_code_point, value)
        case dict():
            return {visible(k): visible(v) for k, v in value.items()}
        case list() | tuple():
            return type(value)(visible(v) for v in value)
        case _:
            return value


def _code_point(sign: re.Match[str]) -> str:
    return f"[U+{ord(sign[0]):04X}]"
