"""Figures of the simulated clock: accuracy against time, who was heard, and who did what in the last round.

FreezeFL, Fig. 4, counts how often clients of each capability take part, in forty groups; here a group is a class
of devices, whose clients are equally fast. The last round is drawn from what the server saw of it, its own clock
and the sizes of messages, with what is published of the devices.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedaudit.attacks.evidence import Series
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.clients.time_model import MEGABYTE, TimeModel
from fedaudit.fl.kinds import Kind
from fedaudit.reports.result import AuditResult, Figure

BY_TIME, BY_DEVICE, LAST_ROUND = "clock-accuracy", "clock-devices", "clock-last-round"
Record = Mapping[str, Any]


def list_ends(history: Sequence[Record]) -> list[float]:
    """Simulated time at the end of each round: of the clock that relays keep, or of all lengths until then."""
    lengths = (float(r.get("round_length", 0.0)) for r in history)
    return [float(r.get("clock", at)) for at, r in zip(itertools.accumulate(lengths), history, strict=True)]


def by_time(history: Sequence[Record]) -> list[Figure]:
    """Accuracy against simulated time; nothing where the time was not kept or one round was measured."""
    if not any("round_length" in r or "clock" in r for r in history):
        return []
    ends = zip(list_ends(history), history, strict=True)
    points = [(at, 100 * r["accuracy"]) for at, r in ends if r.get("accuracy") is not None]
    if len(points) < 2:
        return []
    x, y = ([p[i] for p in points] for i in (0, 1))
    return [
        Figure(
            id=BY_TIME,
            title="Accuracy against simulated time",
            caption="Share of the whole test set classified rightly, at the simulated end of a round.",
            alt=f"Line chart: test accuracy from {y[0]:.1f} % to {y[-1]:.1f} % over {x[-1]:.3g} units of time.",
            x_label="simulated time",
            y_label="test accuracy (%)",
            series=[Series(name="accuracy", x=x, y=y)],
        )
    ]


def by_device(history: Sequence[Record], times: TimeModel | None) -> list[Figure]:
    """How often a client of each class of devices was heard."""
    heard = Counter(k for r in history for k in r.get("heard", ()))
    if times is None or not heard:
        return []
    classes = np.unique(times.capability)
    turns = [[heard[k] for k in np.flatnonzero(times.capability == c).tolist()] for c in classes]
    return [
        Figure(
            id=BY_DEVICE,
            kind="bar",
            title="How often devices of each class were heard",
            caption="Mean number of rounds in which a client of that class was heard, from the slowest to "
            "the fastest. A model learns most from those that it hears most.",
            alt=f"Bar chart: mean turns of {len(classes)} classes of devices.",
            x_label="capability of the device (1: the profile's own)",
            y_label="rounds heard, a client",
            series=[
                Series(name="rounds heard", x=classes.round(2).tolist(), y=[float(np.mean(t)) for t in turns])
            ],
        )
    ]


def last_round(seen: Sequence[Artifact], history: Sequence[Record], times: TimeModel | None) -> list[Figure]:
    """Who downloaded, trained, sent and waited in the last round of which times were recorded."""
    timed = [a for a in seen if a.kind == Kind.TASK_TIME and a.sender.index is not None]
    if times is None or not timed:
        return []
    number = max(a.round for a in timed)
    answers = {a.sender.index or 0: a.payload for a in timed if a.round == number}
    end = max((float(r.get("round_length", 0.0)) for r in history if r["round"] == number), default=0.0)
    names = ("downloads", "trains", "sends", "waits")
    spans: dict[str, list[tuple[int, float, float]]] = {name: [] for name in names}
    order = sorted(answers, key=lambda k: (times.capability[k], k))
    for row, k in enumerate(order):
        pace = MEGABYTE * times.workload.bandwidth * times.capability[k]
        down, up = (float(answers[k][f"bytes_{way}"]) / pace for way in ("down", "up"))
        took = float(answers[k]["time"])
        borders = (0.0, min(down, took), max(took - up, min(down, took)), took, max(end, took))
        for name, (start, stop) in zip(names, itertools.pairwise(borders), strict=True):
            spans[name].append((row, start, stop))
    return [
        Figure(
            id=LAST_ROUND,
            kind="spans",
            title=f"Time-line of round {number}",
            caption=f"What each of the {len(order)} clients heard in round {number} did until it ended, the "
            "slowest device at the bottom. Bars end where the server heard the client; what comes after is "
            "waiting for others.",
            alt=f"Bars over {end:.3g} units of time: downloading, training, sending and waiting of "
            f"{len(order)} clients.",
            x_label="simulated time in the round",
            y_label="clients, the slowest first",
            series=[
                Series(
                    name=name,
                    x=[row for row, _, _ in found],
                    y=[stop for _, _, stop in found],
                    low=[start for _, start, _ in found],
                    high=[stop for _, _, stop in found],
                    blind=name == "waits",
                )
                for name, found in spans.items()
            ],
        )
    ]


def compare_times(results: Mapping[str, AuditResult]) -> list[Figure]:
    """The first two figures of all alternatives in one, a series each; those that more than one of them have."""
    found = []
    for id in (BY_TIME, BY_DEVICE):
        each = {name: f for name, r in results.items() for f in r.figures if f.id == id}
        if len(each) < 2:
            continue
        first = next(iter(each.values()))
        series = [replace(f.series[0], name=n) for n, f in each.items()]
        names = ", ".join(each)
        found.append(
            first.model_copy(
                update={"id": f"alternatives-{id}", "series": series, "alt": f"{first.title}, of {names}."}
            )
        )
    return found
