"""Lone cells: people who are alone in a bin of the histograms that a client sends.

Federated statistics send a histogram of each column, or counts between quantiles. A bin of one person says that
somebody has a value there. With 20 bins of 10 columns most people of a site of 40 are alone in some bin, a few of
a site of 400, and with 5 bins nobody.

Reads counts [bins] or [columns, bins] beside edges with one number more, whatever they are called; histograms are
of the columns in their order.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Effort, Examples
from fedaudit.attacks.summaries._lone_values import Cell, LoneValues, Payload, Values
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

BINS = 20


class LoneCells(LoneValues):
    card = Card(
        title="People alone in a bin of a histogram",
        source="counts, as sent",
        aim=Aim.ATTRIBUTE,
        needs=("rows",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(),
        also_reads=(Kind.LABEL_COUNTS,),
        any_numbers=True,
        rounds="all",
        learns="in which bins of a column one person is alone",
        does_not_show="whose value it is, and what several histograms together say of one person",
        control="",  # planted in measure()
        remedy="send fewer bins, no bin below a least count, or counts with calibrated noise",
        effort=Effort(seconds=0.5, grows=("clients",)),
    )
    found_in = "a histogram: counts beside edges with one number more"

    def list_cells(self, payload: Payload, width: int) -> list[Cell]:
        return [
            Cell(column, float(low), float(high), int(count))
            for column, (counts, edges) in enumerate(_list_histograms(payload))
            if column < width
            for low, high, count in zip(
                edges[:-1], [*edges[1:-1], np.nextafter(edges[-1], np.inf)], counts, strict=True
            )
        ]

    def summarise(self, people: Examples, public: Examples) -> Payload:
        x, low, high = (np.asarray(v, np.float64) for v in (people.x, public.x.min(axis=0), public.x.max(axis=0)))
        edges = np.stack([np.linspace(a, max(b, a + 1e-9), BINS + 1) for a, b in zip(low, high, strict=True)])
        counts = np.stack([np.histogram(v, e)[0] for v, e in zip(x.T, edges, strict=True)])
        return {"counts": counts, "edges": edges}

    def read_values(self, people: Examples) -> Values:
        return np.asarray(people.x, np.float64)


def _list_histograms(payload: Payload) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Counts [bins] and edges [bins + 1], one after the other."""
    arrays = [np.atleast_2d(np.asarray(v, np.float64)) for v in payload.values() if v.ndim in (1, 2) and v.size]
    for counts in arrays:
        if not (np.isfinite(counts).all() and (counts >= 0).all() and (counts == counts.round()).all()):
            continue
        for edges in arrays:
            fits = edges.shape == (counts.shape[0], counts.shape[1] + 1)
            if fits and np.isfinite(edges).all() and (np.diff(edges, axis=1) > 0).all():
                yield from zip(counts, edges, strict=True)
