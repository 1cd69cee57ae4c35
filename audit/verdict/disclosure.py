"""What an audit may show of the people whose data it is about: applied to the whole result, before it is written.

A report goes further than the data it is about. So pictures and names stay out of it, out of audit.json and of
every export, unless everybody has the data already. What is withheld is counted and named by its digest;
`fedaudit phase report RUN --annex` puts it into a file of its own, for those who may see it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedaudit.audit.case.digests import of_value
from fedaudit.audit.settings.report import Show
from fedaudit.reports.result import AuditResult, Gallery, MarkedWord, TextLines, Texts, Withheld

# Rows that an attack drew. All others are examples, or were made of them, whatever an attack calls them
DRAWN = frozenset(
    {"reconstruction", "condensed", "generated", "found in the generator", "found in the reference"}
)
SHORTEST = 6  # digits of a number that is taken for a name; shorter ones are counts as well


def withhold(result: AuditResult, show: Show, names: Mapping[str, str]) -> AuditResult:
    """The result without what `show` does not admit.

    Args:
        result: The whole result. It is not changed.
        show: "full", "reconstructions" (no example of a client, no name) or "redacted" (no picture and no word of
            a text at all).
        names: Name of a person or organisation -> what is written in its place.
    """
    if show == "full":
        return result
    kept, withheld = list[Gallery](), list[Withheld]()
    for gallery in result.galleries:
        rows = {k: v for k, v in gallery.rows.items() if show == "reconstructions" and k in DRAWN}
        if rows:
            kept.append(gallery.model_copy(update={"rows": rows, "alt": f"{gallery.title}: {', '.join(rows)}"}))
        withheld += _count(
            gallery.finding, gallery.title, {k: v for k, v in gallery.rows.items() if k not in rows}
        )
    robustness = result.robustness
    if robustness is not None:
        for triggered in robustness.triggered:
            withheld += _count("", triggered.title, triggered.rows)
        robustness = robustness.model_copy(update={"triggered": []})
    texts = [_redact(t) for t in result.texts]
    changed = {"galleries": kept, "texts": texts, "withheld": withheld, "robustness": robustness}
    return AuditResult.model_validate(_rename(result.model_copy(update=changed).model_dump(), names))


def _redact(texts: Texts) -> Texts:
    """The same with what kind of word stood in each place: how much was read can be seen, and nothing of it."""
    pairs = [
        TextLines(
            name=pair.name,
            original=[_hide_word(w) for w in pair.original],
            claimed=[MarkedWord(text=_hide_word(w.text), mark=w.mark) for w in pair.claimed],
        )
        for pair in texts.pairs
    ]
    return texts.model_copy(update={"pairs": pairs, "redacted": True})


def _hide_word(word: str) -> str:
    """[number] for digits, [name] for what begins with a capital or goes on a word, else [word]."""
    bare = word.strip()
    if any(sign.isdigit() for sign in bare):
        return " [number]"
    return " [name]" if bare[:1].isupper() or not word.startswith(" ") else " [word]"


def _count(finding: str, title: str, rows: Mapping[str, Sequence[str]]) -> list[Withheld]:
    pictures = sum(map(len, rows.values()))
    return (
        [Withheld(finding=finding, title=title, pictures=pictures, sha256=of_value(dict(rows)))] if rows else []
    )


def _rename(tree: dict[str, Any], names: Mapping[str, str]) -> Any:
    """Every text of a tree, keys included, with names replaced; a longer name goes before a shorter one."""
    known = [n for n in sorted(names, key=len, reverse=True) if not n.isdecimal() or len(n) >= SHORTEST]
    if not known:
        return tree
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, known)) + r")(?!\w)")

    def replace_names(text: str) -> str:
        return pattern.sub(lambda match: names[match[0]], text)

    def rebuilt(value: Any) -> Any:
        if isinstance(value, str):
            return replace_names(value) if type(value) is str else value
        if isinstance(value, dict):
            return {replace_names(k) if type(k) is str else k: rebuilt(v) for k, v in value.items()}
        return [rebuilt(v) for v in value] if isinstance(value, list | tuple) else value

    # what the result is bound to keeps its digests and its fields' own names
    return {key: rebuilt(value) for key, value in tree.items()}
