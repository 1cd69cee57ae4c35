"""The options on page 1: what each does to every harm, what it costs, and which one is recommended."""

import re
from collections.abc import Sequence

from fedaudit.reports import format as fmt
from fedaudit.reports.decision import Word
from fedaudit.reports.page import Mark, PageHarm, PageOption, People
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Severity

MOST_OPTIONS = 3  # measured ones
LONGEST_NAME, LONGEST_DOING = 24, 58  # signs that a row holds


def drop_marks(text: str) -> str:
    """Without marks and underscores, which are names of settings, kinds and attacks."""
    return text.replace("`", "").replace("_", " ")


def list_options(result: AuditResult, word: Word, harms: Sequence[PageHarm], people: People) -> list[PageOption]:
    """The run as it is, then what was measured of options, the best first; else remedies that nobody measured."""
    measured = result.alternatives
    base = measured[0] if measured else None
    rows = [
        PageOption(
            letter="0",
            name="As it is",
            what=_cut_option(base.protections if base else result.scope.protections) or "no protection",
            marks=[Mark(state="left", severity=h.severity) for h in harms],
            word=word.words.lower(),
            **people.model_dump(),
            accuracy=_describe_accuracy(base, result),
            traffic=_describe_traffic(base),
        )
    ]
    ranked = rank_options(measured)[:MOST_OPTIONS]
    for letter, option in zip("ABC", ranked, strict=False):
        new = max((e.severity for e in option.effects if e.state == "new"), key=lambda s: s.rank, default=None)
        rows.append(
            PageOption(
                letter=letter,
                name=_name_option(option),
                what=_cut_option([*option.protections, *option.settings], _name_option(option)),
                marks=[_mark(h, option.effects) for h in harms],
                new=new.value if new else "",
                word=option.word.words.lower() if option.word and option.finished else "",
                at_least=option.surely_hit,
                at_most=option.limit,
                of=option.people,
                accuracy=_describe_change(option),
                traffic=_describe_traffic(option),
                recommended=option.recommended,
            )
        )
    if not ranked:
        for letter, remedy in zip("AB", _list_remedies(result), strict=False):
            marks = [Mark(state="untested") for _ in harms]
            rows.append(PageOption(letter=letter, name="Not measured", what=remedy, marks=marks))
    if word in (Word.NOT_READY, Word.CANNOT_TELL):
        rows.append(PageOption(letter="–", name="Do not deploy", what="as this audit stands"))
    return rows


def rank_options(rows: Sequence[Alternative]) -> list[Alternative]:
    """The options without the audited run, the best first."""
    return sorted(rows[1:], key=lambda r: r.place)


def _mark(harm: PageHarm, effects: Sequence[HarmEffect]) -> Mark:
    """What an option does to a harm: it is stopped only where every question that shows it is clear."""
    effect = next((e for e in effects if e.what == harm.what and e.state != "new"), None)
    if effect is None or effect.state == "open":
        return Mark(state="untested")
    if effect.state == "stopped":
        return Mark(state="stopped")
    change = effect.severity.rank - Severity(harm.severity).rank
    state = "reduced" if change < 0 else "worse" if change > 0 else "left"
    return Mark(state=state, severity=effect.severity)  # type: ignore[arg-type]


def _name_option(option: Alternative) -> str:
    name = fmt.sentence_case(option.name.replace("-", " ").replace("_", " "))
    return fmt.shorten(re.sub(r"\bDp\b", "DP", name), LONGEST_NAME)


def _cut_option(parts: Sequence[str], name: str = "") -> str:
    """What an option is, in as many whole clauses as a row holds; its name stands above."""
    text = drop_marks("; ".join(parts))
    if name and text.lower().startswith(f"{name.lower()}: "):
        text = text[len(name) + 2 :]
    clauses = re.split(r"(?=[;,] | and | of | by )", text)
    fitting = ["".join(clauses[:n]) for n in range(len(clauses), 0, -1)]
    return next((t for t in fitting if len(t) <= LONGEST_DOING), fmt.shorten(text, LONGEST_DOING))


def _describe_accuracy(row: Alternative | None, result: AuditResult) -> str:
    value = row.accuracy if row else result.summary_metrics.get("accuracy_final")
    return "" if value is None else fmt.percent(value)


def _describe_change(row: Alternative) -> str:
    """Points of accuracy that it changes, and at worst."""
    if row.accuracy_change is None:
        return "not measured"
    around = row.accuracy_change_interval
    worst = f" ({_sign(around[0])})" if around else ""
    return f"{_sign(row.accuracy_change)}{worst}"


def _sign(change: float) -> str:
    text = f"{100 * change:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def _describe_traffic(row: Alternative | None) -> str:
    """What all parties sent, both ways; empty where that was not measured."""
    ways = [row.measures.get(f"bytes_{way}") for way in ("up", "down")] if row else [None]
    return "" if None in ways else fmt.volume(round(sum(w for w in ways if w is not None)))


def _list_remedies(result: AuditResult) -> list[str]:
    """What the demonstrated findings ask for, worst first, each once."""
    found = [f for f in result.findings if f.is_demonstrated and f.remedy]
    texts = dict.fromkeys(fmt.sentence_case(drop_marks(f.remedy.split(". ")[0].rstrip("."))) for f in found)
    return [fmt.shorten(re.split(r"[;:(,] ?", t)[0], LONGEST_DOING) for t in texts]


def recommend_option(result: AuditResult, word: Word, harms: Sequence[PageHarm]) -> str:
    """One sentence: which option, or why none."""
    ranked = rank_options(result.alternatives)[:MOST_OPTIONS]
    letters = dict(zip((r.name for r in ranked), "ABC", strict=False))
    if chosen := next((r for r in ranked if r.recommended), None):
        told = f"its own audit says {chosen.word.words.lower()}" if chosen.word else ""
        if chosen.word in (Word.NOT_READY, Word.CANNOT_TELL, None):
            told = "its limit lies below what is hit without it"
        return f"We recommend {letters[chosen.name]}: {told}."
    if not ranked:
        return "We recommend no option: none was measured."
    reasons: dict[str, list[str]] = {}
    for option in ranked:
        for reason in _explain_refusal(option, harms):
            reasons.setdefault(reason, []).append(letters[option.name])
    parts: list[str] = []
    everybody = "all of them" if len(reasons) > 1 else "all"
    for reason, who in reasons.items():
        verb, rest = reason.split(" ", 1)
        if parts:  # "of 6 harms open" is said once
            rest = re.sub(r"^(\d+) of \d+ harms open$", r"\1", rest)
        said = everybody if 1 < len(who) == len(ranked) else fmt.join_words(who)
        parts.append(f"{said} {verb if len(who) == 1 else _to_plural(verb)} {rest}")
    text = "We recommend not to deploy" if word is Word.NOT_READY else "We recommend none of these"
    return f"{text}: {', and '.join(parts)}."


def _to_plural(verb: str) -> str:
    return {"was": "were", "has": "have"}.get(verb, verb.removesuffix("s"))


def _explain_refusal(option: Alternative, harms: Sequence[PageHarm]) -> list[str]:
    """Why an option is not recommended, each reason as a verb phrase."""
    if not option.finished or option.word is None:
        return ["was not run to the end"]
    marks = [_mark(h, option.effects) for h in harms]
    found = []
    if left := sum(m.state == "untested" for m in marks):
        some = f"{left} of {fmt.plural(len(harms), 'harm')}"
        found.append(f"leaves {'every harm' if left == len(harms) else some} open")
    shown = [Severity(m.severity) for m in marks if m.severity]
    worst = max(shown, key=lambda s: s.rank, default=Severity.NONE)
    if worst.rank >= Severity.MEDIUM.rank:
        found.append(f"leaves harms rated {worst}")
    if found:
        return found
    if option.unanswered:
        return ["leaves questions open that this audit answers"]
    return ["has no gain that was shown at a tolerable cost"]
