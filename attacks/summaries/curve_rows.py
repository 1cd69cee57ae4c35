"""Curve rows: people whose time and event a survival curve gives away, one by one.

A Kaplan-Meier curve that is merged is sent as times with the number at risk and the number of events at each. A
time with one event is one person's, exactly. Of 30 people most are alone at their time, of 300 every second or
third.

Reads times [t], which rise, beside whole numbers [t] that are called events or, else, do not fall from time to
time as those at risk do.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Effort, Examples, Knowledge
from fedaudit.attacks.summaries._lone_values import Cell, LoneValues, Payload, Values
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.tasks.survival import Survival
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

NAMES = ("event", "obs", "death")


class CurveRows(LoneValues):
    card = Card(
        title="People alone at their time in a survival curve",
        source="Kaplan and Meier, JASA 1958, as sent",
        aim=Aim.ATTRIBUTE,
        needs=(),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(),
        also_reads=(Kind.LABEL_COUNTS,),
        any_numbers=True,
        rounds="all",
        learns="the times at which one person of a client had the event",
        does_not_show="whose time it is, and the times of people who left without the event",
        control="",  # planted in measure()
        remedy="send events by interval with a least number in each, or counts with calibrated noise",
        effort=Effort(seconds=0.5, grows=("clients",)),
    )
    found_in = "times of events with their numbers"

    def list_cells(self, payload: Payload, width: int) -> list[Cell]:
        arrays = {k: np.asarray(v, np.float64) for k, v in payload.items() if v.ndim == 1 and v.size > 1}
        for name, times in arrays.items():
            beside = {k: v for k, v in arrays.items() if k != name and len(v) == len(times)}
            events = _choose_events(beside)
            if (np.diff(times) > 0).all() and events is not None:
                ends = np.nextafter(times, np.inf)
                return [
                    Cell(0, *cell) for cell in zip(times.tolist(), ends.tolist(), events.tolist(), strict=True)
                ]
        return []

    def summarise(self, people: Examples, public: Examples) -> Payload:
        time, event = np.asarray(people.wanted, np.float64).T
        times = np.unique(time)
        events = np.array([((time == t) & (event > 0)).sum() for t in times])
        return {"times": times, "events": events, "at_risk": np.array([(time >= t).sum() for t in times])}

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not isinstance(knowledge.task, Survival):
            return "no times of events are what the network is trained on"
        return super().not_applicable(view, knowledge)

    def read_values(self, people: Examples) -> Values:
        """[n, 1] times of who had the event."""
        wanted = np.asarray(people.wanted, np.float64)
        return np.where(wanted[:, 1:] > 0, wanted[:, :1], np.nan)


def _choose_events(beside: dict[str, NDArray[np.float64]]) -> NDArray[np.int64] | None:
    """Of whole numbers beside times those called so, or the first that are not those at risk, which fall."""
    counts = {k: v for k, v in beside.items() if (v >= 0).all() and (v == v.round()).all()}
    called = [v for k, v in counts.items() if any(word in k for word in NAMES)]
    left = called or [v for v in counts.values() if not ((np.diff(v) <= 0).all() and v[0] > v[-1])]
    return left[0].astype(np.int64) if left else None
