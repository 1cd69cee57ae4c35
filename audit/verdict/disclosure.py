"""What an audit may show of the people whose data it is about: applied to the whole result, before it is written.

A report goes further than the data it is about. So pictures and names stay out of it, out of audit.json and of
every export, unless everybody has the data already. What is withheld is counted and named by its digest.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fedaudit.audit.case.digests import of_value
from fedaudit.reports.exhibits import Gallery, MarkedWord, RowTables, TextLines, Texts
from fedaudit.reports.result import AuditResult, Withheld

# Rows that an attack drew. All others are examples, or were made of them, whatever an attack calls them
DRAWN = frozenset(
    {"reconstruction", "condensed", "generated", "found in the generator", "found in the reference"}
)
HIDDEN = "[value]"  # in the place of an entry of a row
Show = Literal["redacted", "reconstructions", "full"]
SHORTEST = 6  # digits of a number that is taken for a name; shorter ones are counts as well


def withhold(result: AuditResult, show: Show, names: Mapping[str, str]) -> AuditResult:
    """The result without what `show` does not admit.

    Args:
        result: The whole result. It is not changed.
        show: "full", "reconstructions" (no example of a client, no name) or "redacted" (no picture, no word of
            a text and no value of a row at all).
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
    texts, tables = [_redact(t) for t in result.texts], [_redact_rows(r) for r in result.rows]
    scope = result.scope.model_copy(update={"class_names": []})  # a class may be a person
    changed = {"galleries": kept, "texts": texts, "rows": tables, "withheld": withheld}
    changed |= {"robustness": robustness, "scope": scope}
    return _hide_names(result.model_copy(update=changed), names)


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


def _redact_rows(tables: RowTables) -> RowTables:
    """The same without values: how far each guess is off can be seen, and neither what it is nor what is true."""
    pairs = [
        pair.model_copy(
            update={"original": [HIDDEN] * len(pair.columns), "claimed": [HIDDEN] * len(pair.columns)}
        )
        for pair in tables.pairs
    ]
    return tables.model_copy(update={"pairs": pairs, "redacted": True})


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


def _hide_names(result: AuditResult, names: Mapping[str, str]) -> AuditResult:
    """The result with names replaced in what others wrote: title, system and the record of the import.

    Nothing else has a name in it: attacks and checks know clients by their numbers. Our own sentences, ids and
    numbers stay as they are, since whoever records a federation chooses what its nodes are called.
    """
    known = [n for n in sorted(names, key=len, reverse=True) if not n.isdecimal() or len(n) >= SHORTEST]
    if not known:
        return result
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, known)) + r")(?!\w)")

    def hide(text: str) -> str:
        return pattern.sub(lambda match: names[match[0]], text)

    system = {key: hide(value) for key, value in result.system.model_dump().items()}
    changed: dict[str, Any] = {"title": hide(result.title), "system": result.system.model_copy(update=system)}
    if result.imported is not None:
        told = result.imported
        changed["imported"] = told.model_copy(
            update={
                "nodes": {party: names.get(node, hide(node)) for party, node in told.nodes.items()},
                **{key: list(map(hide, getattr(told, key))) for key in ("errors", "changes")},
                "unread": [
                    u.model_copy(update={"message": hide(u.message), "why": hide(u.why)}) for u in told.unread
                ],
                "checks": [
                    c.model_copy(update={"text": hide(c.text)}) if c.status == "declared" else c
                    for c in told.checks
                ],
            }
        )
    return result.model_copy(update=changed)
