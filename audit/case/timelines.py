"""Pictures of a run's rounds: over simulated time, by device, and which clients failed when."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.attacks.evidence import Series
from fedaudit.audit.case.clock import by_device, by_time, last_round, list_ends
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.reports.result import Figure

# as fl/families/relay.py names its events
_NAMES = {
    "late": "late",
    "silent": "no heartbeat",
    "failed": "failed for once",
    "holder_down": "holder down",
    "rollback": "rolled back",
    "restart": "started again",
}
_MENDED = {"holder_down", "rollback", "restart"}  # which only mediators of relays do


def plot_rounds(history: Sequence[Mapping[str, Any]], clock: TimeModel | None, artifacts: Path) -> list[Figure]:
    """All of them; by device only where there was a simulated clock."""
    figures = [*timelines(history), *by_time(history)]
    if clock is None:
        return figures
    times = read(artifacts, kinds=(Kind.TASK_TIME,), wanted=lambda line: Kind.TASK_TIME in line["kinds"])
    return [*figures, *by_device(history, clock), *last_round(times, history, clock)]


def timelines(history: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """How many faults each round had, and one round fault by fault; none where nothing failed.

    `history`: the run's metrics, of which rounds in which clients can fail hold `events`.
    """
    failing = [(at, r) for at, r in zip(list_ends(history), history, strict=True) if r.get("events")]
    if not failing:
        return []
    ends, rounds = zip(*failing, strict=True)
    shown = max(rounds, key=lambda r: len({e["event"] for e in r["events"]}))  # the first of the richest
    names = [n for n in _NAMES if any(e["event"] == n for r in rounds for e in r["events"])]
    counts = [
        Series(name=_NAMES[name], x=list(ends), y=[sum(e["event"] == name for e in r["events"]) for r in rounds])
        for name in names
    ]
    points = [
        Series(name=_NAMES[name], x=[e["time"] for e in found], y=[e["client"] for e in found])
        for name in names
        if (found := [e for e in shown["events"] if e["event"] == name])
    ]
    total = sum(len(r["events"]) for r in rounds)
    mended, rolled = ".", ""
    if _MENDED & {*names}:
        mended = (
            "; the mediator rolls back to the newest result that a client still holds, or starts again from its "
            "own copy."
        )
        rolled = " A mark for a rollback stands at the client whose earlier result was taken."
    return [
        Figure(
            id="faults-by-time",
            title="Faults over simulated time",
            caption=f"Events in each of the {len(rounds)} rounds in which a client failed, {total:,} in all, at "
            f"the simulated time of the round's end. Late results are ignored{mended}",
            alt=f"Line chart: number of events of {len(counts)} kinds over simulated time",
            x_label="simulated time",
            y_label="events in the round",
            series=counts,
        ),
        Figure(
            id="faults-of-a-round",
            kind="points",
            title=f"Time-line of round {shown['round']}",
            caption=f"Round {shown['round']}, in which most kinds of fault occurred: which client failed and "
            f"when.{rolled}",
            alt=f"Points: {len(shown['events'])} events in simulated time, by client",
            x_label="simulated time in the round",
            y_label="client",
            series=points,
        ),
    ]
