"""Replay: the attacks of a run once more, on the reviewer's machine, compared with the evidence in the folder.

On the same type of machine with the same libraries the evidence must be equal, byte for byte but for times.
Elsewhere sums are made in another order and training drifts, so a measure counts as the same where it lies in the
recorded interval, or within TOLERANCE of a value without one.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedaudit.audit.case.digests import TIMES, timeless
from fedaudit.audit.case.environment import environment
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.case.schemas import Environment
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.errors import UserError

TOLERANCE = 0.05  # of a measure without an interval
Progress = Callable[[str, int, int], None]


def replay(run: RunDir, config: Config, progress: Progress) -> str:
    """How the evidence was compared, as a sentence; raises UserError that names what differs."""
    same, why = _same_machine(run)
    with TemporaryDirectory() as name:
        again = RunDir(Path(name))
        again.artifacts = run.artifacts
        again.write(again.data, run.data.read_bytes())
        attack.run(again, config, progress)
        files = sorted(p.name for p in again.evidence.glob("[0-9]*.json"))
        for file in files:
            made, found = again.read_json(again.evidence / file), run.read_json(run.evidence / file)
            if problem := _exact(found, made) if same else _close(found, made):
                raise UserError(
                    f"{run.evidence / file} is not what its attack gives here: {problem}",
                    hint="the evidence was edited, or attacks ran with other code or data",
                )
    many = f"{len(files)} attacks ran again"
    if same:
        return f"{many} on the same type of machine: the evidence is equal, byte for byte but for times"
    return f"{many} on another machine ({why}): measures lie in their intervals or within {TOLERANCE:g}"


def _same_machine(run: RunDir) -> tuple[bool, str]:
    """Whether processor and libraries are those of the run, and the first that is not."""
    theirs, ours = run.read(run.environment, Environment).model_dump(), environment()
    for part, keys in (("hardware", ("system", "processor")), ("versions", tuple(ours["versions"]))):
        for key in keys:
            if theirs.get(part, {}).get(key) != ours[part][key]:
                return False, f"{key}: {ours[part][key]} for {theirs.get(part, {}).get(key)}"
    return True, ""


def _exact(found: Any, made: Any) -> str:
    keys = TIMES["evidence/[0-9]*.json"]
    differs = difference(timeless(found, keys), timeless(made, keys))
    return f"{differs.key} differs" if differs else ""


def _close(found: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    for key in ("name", "status", "card", "observer"):
        if found.get(key) != made.get(key):
            return f"{key} differs"
    left, right = found.get("evidence", []), made.get("evidence", [])
    if len(left) != len(right):
        return f"{len(left)} measures, and here {len(right)}"
    for a, b in zip(left, right, strict=True):
        if any(a.get(k) != b.get(k) for k in ("measure", "control", "unit", "condition")):
            return f"measure {a.get('measure')} is another one here"
        low, high = a.get("interval") or (a["value"] - TOLERANCE, a["value"] + TOLERANCE)
        if not low <= b["value"] <= high:
            return f"{a['measure']} is {a['value']:g}, and here {b['value']:g}"
    return ""
