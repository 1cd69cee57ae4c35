"""Text with nothing hidden in it: signs of control, without a width, or that turn the direction of writing."""

import re
from typing import Any

# C0 but tab and line feed, C1, separators of lines, overrides of direction, halves of surrogate pairs, and what
# Unicode calls ignorable by default: no width, no ink. Selectors of a variant stay, which change how a sign is
# drawn, and in texts joiners, which words of Persian and Hindi need, and pictures of people.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_IN_TEXT, _IN_LINE, _IN_NAME = (re.compile(f"[{more}{_HIDDEN}]") for more in ("", "\n", "\t\n\u200c\u200d"))


def visible(value: Any) -> Any:
    """Every text in it with such a sign as [U+202E]: it could overwrite a terminal, or show another text."""
    match value:
        case str():
            return _IN_TEXT.sub(_code_point, value)
        case dict():
            return {visible(k): visible(v) for k, v in value.items()}
        case list() | tuple():
            return type(value)(visible(v) for v in value)
        case _:
            return value


def visible_line(text: str) -> str:
    """A text as one line, whatever somebody wrote into it: a line feed is named too."""
    return _IN_LINE.sub(_code_point, text)


def visible_name(name: str) -> str:
    """A name of a file, a node or an array, with every such sign named; equal to it where it has none."""
    return _IN_NAME.sub(_code_point, name)


def _code_point(sign: re.Match[str]) -> str:
    return f"[U+{ord(sign[0]):04X}]"
