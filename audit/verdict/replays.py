"""What replayed messages may say about a run: what an attack can do, and nothing of the run by themselves.

A replay is a message that the auditor had a client send once more. At its place (n = 1, say) it is held against
what clients really sent there, at the same n and by the same measures:

* where both agree within their intervals, and what was really sent is clear of every baseline too, the
  replays are more trials of a leak that exists, and are graded with it; what was really sent is then quoted;
* where they disagree, the attack does not model what this method sends, and finding nothing means nothing;
* everywhere else they are controls: a leak that nobody sent has no severity.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from fedaudit.attacks import stats
from fedaudit.attacks.evidence import REPLAYED, WHOLE, Evidence
from fedaudit.audit.verdict.statistics import clear


def settle_controls(found: Sequence[Evidence]) -> list[Evidence]:
    """The same evidence with every replay marked as graded ("none") or as a control ("positive")."""
    places = _group_places(found)
    return [_mark(e, places[_find_place(e)]) for e in found]


def is_replay(e: Evidence) -> bool:
    """Whether the auditor made the messages behind it, however it is marked."""
    return e.control != "negative" and _origin(e).startswith(REPLAYED)


def find_sent(e: Evidence, found: Sequence[Evidence]) -> Evidence:
    """What was measured in the same way on what clients sent, where `e` is of replays: only that may be quoted as
    what happened. The same evidence where there is none."""
    return next((own for own in _select_recorded(e, found) if own.measure == e.measure), e)


def find_replayed(e: Evidence, found: Sequence[Evidence]) -> Evidence | None:
    """What replays of the same n gave where they are graded with what clients sent, which is `e`."""
    if _origin(e) == REPLAYED:
        return None
    alike = (r for r in found if (r.measure, r.control, _origin(r)) == (e.measure, "none", REPLAYED))
    return next((r for r in alike if r.condition.get("n") == e.condition.get("n")), None)


def describe_misses(planted: Sequence[Evidence]) -> str:
    """A sentence on the kinds of planted leaks that were not found; empty where all were."""
    kinds = dict.fromkeys(_origin(e) for e in planted if _origin(e) != WHOLE)
    lost = [k for k in kinds if not any(clear(e) for e in planted if _origin(e) == k)]
    return f" It missed planted leaks of other kinds: {'; '.join(lost)}." if lost else ""


def describe_disagreement(found: Sequence[Evidence]) -> str:
    """Where recorded and replayed messages of the same n disagree, as part of a sentence; empty where nowhere."""
    places = _group_places(found)
    for e in found:
        for own in _select_recorded(e, places[_find_place(e)]):
            if e.measure == own.measure and _are_disjoint(e, own):
                return (
                    f"{e.measure} is {own.value:.3g} for what clients sent and {e.value:.3g} for what their own "
                    f"code sends when it is run again, at {own.place}"
                )
    return ""


def _group_places(found: Sequence[Evidence]) -> Mapping[Hashable, Sequence[Evidence]]:
    """What was measured at the same n and the same in all else, whoever sent it."""
    places: dict[Hashable, list[Evidence]] = {}
    for e in found:
        places.setdefault(_find_place(e), []).append(e)
    return places


def _find_place(e: Evidence) -> Hashable:
    return frozenset(_elsewhere(e).items())


def _mark(e: Evidence, found: Sequence[Evidence]) -> Evidence:
    if not is_replay(e):
        return e
    if _origin(e) == REPLAYED and _has_agreement(e, found):
        return replace(e, control="none", note=_add_note(e, "what clients sent at this n agrees"))
    return replace(e, control="positive", note=_add_note(e, "made by the auditor, sets no severity"))


def _add_note(e: Evidence, words: str) -> str:
    return e.note if words in e.note else f"{e.note}; {words}".removeprefix("; ")


def _has_agreement(e: Evidence, found: Sequence[Evidence]) -> bool:
    """Whether clients sent something of that n that leaks as well, and none of it is apart from the replays."""
    here = [r for r in found if is_replay(r) and r.condition == e.condition]
    both = [(own, r) for own in _select_recorded(e, found) for r in here if r.measure == own.measure]
    both = [(own, r) for own, r in both if _comparable(own) and _comparable(r)]
    return any(_leaks_too(own, r) for own, r in both) and not any(_are_disjoint(own, r) for own, r in both)


def _leaks_too(own: Evidence, r: Evidence) -> bool:
    """Clear of the baselines of the replays, which had more trials; corrected for no other looks.

    The replays' own intervals are corrected for all looks; this one question is only asked where they are high.
    The interval is drawn in as a normal one would be.
    """
    assert own.interval is not None
    narrow = stats.normal_reach(1 - own.confidence) / stats.normal_reach(
        stats.correct_alpha(1 - own.confidence, own.looks)
    )
    low, high = (own.value + (end - own.value) * narrow for end in own.interval)
    return clear(replace(own, interval=(low, high), baselines=r.baselines))


def _select_recorded(e: Evidence, found: Sequence[Evidence]) -> list[Evidence]:
    """What was measured at the same n, and the same in all else, on what clients sent."""
    if _origin(e) not in (REPLAYED, WHOLE) or "n" not in e.condition or not is_replay(e):
        return []
    return [own for own in found if own.control == "none" and _elsewhere(own) == _elsewhere(e) and _is_sent(own)]


def _is_sent(e: Evidence) -> bool:
    return _origin(e) == "recorded"


def _elsewhere(e: Evidence) -> Mapping[str, int | float | str]:
    return {k: v for k, v in e.condition.items() if k != "origin"}


def _comparable(e: Evidence) -> bool:
    """Likeness of images varies with the images, at any n; shares of right answers are compared."""
    return e.unit == "fraction" and e.higher_is_worse and e.interval is not None


def _are_disjoint(a: Evidence, b: Evidence) -> bool:
    """Whether the intervals, each corrected for its looks, have no value in common."""
    if not (_comparable(a) and _comparable(b)) or a.interval is None or b.interval is None:
        return False
    return a.interval[1] < b.interval[0] or b.interval[1] < a.interval[0]


def _origin(e: Evidence) -> str:
    return str(e.condition.get("origin", "recorded"))
