"""Curves over the number of examples: a point a place, replays of whole messages left to the tables, percent."""

import pytest

from fedaudit.attacks.evidence import REPLAYED, WHOLE, Baseline, Evidence
from fedaudit.attacks.measure import MEASURES
from fedaudit.audit.verdict.figures import by_samples

CURVES = [m.name for m in MEASURES.values() if m.curve]


def point(measure: str, n: float, origin: str, value: float, blind: float) -> Evidence:
    row = MEASURES[measure]
    return Evidence(
        measure=measure,
        value=value,
        unit=row.unit,
        higher_is_worse=row.higher_is_worse,
        interval=(value - 0.1, value + 0.1),
        trials=40,
        condition={"n": n, "origin": origin},
        baselines=(Baseline(name="chance", value=blind),),
        control="positive" if origin == WHOLE else "none",
    )


@pytest.mark.parametrize("measure", CURVES)
def test_a_line_has_one_point_a_place_and_none_of_replays_of_whole_messages(measure: str) -> None:
    found = [point(measure, n, o, 0.5, 0.2) for n in (1.0, 5.0) for o in ("recorded", REPLAYED)]
    found += [point(measure, n, WHOLE, 0.9, 0.9) for n in (1.0, 5.0, 7.0)]
    (figure,) = by_samples("f", found)
    for line in figure.series:
        assert line.x == [1.0, 5.0], line.name
    assert [s.name for s in figure.series] == ["attack (replayed)", "attack (recorded)", "chance"]


@pytest.mark.parametrize("measure", CURVES)
def test_fractions_are_drawn_in_percent_as_the_tables_have_them(measure: str) -> None:
    (figure,) = by_samples("f", [point(measure, n, REPLAYED, 0.5, 0.2) for n in (1.0, 5.0)])
    percent = MEASURES[measure].unit == "fraction"
    attack, blind = figure.series
    assert attack.y == ([50.0, 50.0] if percent else [0.5, 0.5])
    assert attack.low == pytest.approx([40.0, 40.0] if percent else [0.4, 0.4])
    assert blind.y == ([20.0, 20.0] if percent else [0.2, 0.2])
    assert figure.y_label.endswith("(%)") == percent
