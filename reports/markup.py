"""The only marks a paragraph may carry: `code` in backticks and *emphasis* in asterisks.

Everything else, of any markup language, prints as it stands. An asterisk opens emphasis only at
the start of a word and closes it only at the end of one, so `3 * 4` and `a*b*c` stay literal.
"""

import re
from typing import Literal, NamedTuple

_MARK = re.compile(r"`([^`\n]+)`|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?![\w*])")


class Span(NamedTuple):
    kind: Literal["text", "code", "emphasis"]
    text: str


def spans(text: str) -> list[Span]:
    """Split a paragraph at its marks; joined, the texts are the paragraph without its marks."""
    found: list[Span] = []
    position = 0
    for mark in _MARK.finditer(text):
        if mark.start() > position:
            found.append(Span("text", text[position : mark.start()]))
        found.append(Span("code", mark[1]) if mark[1] else Span("emphasis", mark[2]))
        position = mark.end()
    if position < len(text):
        found.append(Span("text", text[position:]))
    return found
