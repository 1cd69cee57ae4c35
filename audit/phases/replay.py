"""Replay: the attacks and accounts of a run once more, on the reviewer's machine, and the verdict they lead to.

The verdict is derived from the replayed evidence; the evidence of the folder is compared with it, field by field.
Equal but for times is one answer. Any other is said to be another one, and then every number must lie as near as
the replay's own intervals allow: on another machine sums are made in another order and training drifts. Nothing
that the owner wrote decides how the comparison is made.
"""

import base64
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from fedaudit.audit.attestation.chain import WRITES
from fedaudit.audit.case.digests import TIMES, timeless
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.phases import account, attack
from fedaudit.audit.phases.score import derive
from fedaudit.audit.phases.variants import config_of, folder_of, results
from fedaudit.audit.settings.config import Config
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult

TOLERANCE = 0.05  # of what has no interval: as a share of the replayed number, and of the range of grey levels
SMALLEST = 1e-6  # difference of two numbers that is one
REPLAYED = tuple(p.removeprefix("evidence/") for phase in ("attack", "account") for p in WRITES[phase])
TAKEN = ("matrix.json", "absence.json")  # whose cells would have to be trained again
NUMBER = re.compile(r"\d+(?:\.\d+)?")
HINT = "the evidence was edited, or attacks ran with other code or data"
Progress = Callable[[str, int, int], None]


class Again(RunDir):
    """A run folder with evidence of its own, in another place; the rest is the owner's, and is not written to."""

    def __init__(self, run: RunDir, evidence: Path) -> None:
        super().__init__(run.path)
        self.evidence = evidence.resolve()

    def inside(self, relative: str | Path) -> Path:
        path = Path(relative)
        if path.is_absolute() and path.resolve().is_relative_to(self.evidence):
            return path.resolve()
        return super().inside(relative)

    def write(self, path: Path, data: bytes) -> None:
        if not path.resolve().is_relative_to(self.evidence):
            raise RuntimeError(f"a replay must not write {path}")
        super().write(path, data)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What follows from the replayed evidence, and how the folder's evidence compares, as lines."""

    result: AuditResult
    lines: tuple[str, ...]

    def confirm(self, theirs: AuditResult) -> None:
        """Raises UserError where the verdict of the folder's evidence is another than that of the replay.

        Both under the same policy and terms; outcomes and severities of findings count, and the word.
        """
        ours = _summarise(self.result)
        if found := difference(_summarise(theirs), ours):
            raise UserError(
                f"the verdict of the folder is not that of a replay: {found.key} is {found.left!r}, and here "
                f"{found.right!r}",
                hint=HINT,
            )


def replay_run(run: RunDir, config: Config, policy: GradingPolicy, progress: Progress) -> Replayed:
    """Run the attacks and the accounts again, of the variants too, and derive the verdict.

    Raises UserError that names what differs.
    """
    ran = _replay(run, config, policy, progress)
    rounds = [(run, ran)]
    for variant, audited in results(run, config):
        if audited is not None:
            folder, own = folder_of(run, variant), config_of(run, config, variant)
            rounds.append((folder, _replay(folder, own, policy, progress)))
            Replayed(result=rounds[-1][1].result, lines=()).confirm(derive(folder, own, policy))
    return Replayed(result=ran.result, lines=tuple(_describe(run, rounds)))


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """One folder's attacks and accounts, once more."""

    result: AuditResult
    attacks: int
    drift: list[str]  # places where the folder's evidence is not equal
    taken: list[str]  # files that were not made again


def _replay(run: RunDir, config: Config, policy: GradingPolicy, progress: Progress) -> _Ran:
    with TemporaryDirectory() as name:
        again = Again(run, Path(name))
        attack.run(again, config, progress)
        account.run(again, config, progress)
        taken = [file for file in TAKEN if (run.evidence / file).is_file()]
        for file in taken:
            again.write(again.evidence / file, (run.evidence / file).read_bytes())
        drift = list(_compare_folders(run, again))
        result = derive(again, config, policy)
        count = len(list(again.evidence.glob("[0-9]*.json")))
    return _Ran(result=result, attacks=count, drift=drift, taken=taken)


def _describe(run: RunDir, rounds: list[tuple[RunDir, _Ran]]) -> Iterator[str]:
    places = [
        (folder.path.resolve().relative_to(run.path.resolve()).as_posix().removeprefix("."), r)
        for folder, r in rounds
    ]
    drift = [f"{where}/{text}".lstrip("/") for where, r in places for text in r.drift]
    taken = [f"{where}/evidence/{file}".lstrip("/") for where, r in places for file in r.taken]
    count = sum(r.attacks for _, r in places)
    of = f", of {fmt.plural(len(rounds) - 1, 'variant')} too," if len(rounds) > 1 else ""
    ran = f"{count} attacks and the accounts{of} ran again here, and the verdict is of what they gave"
    if drift:
        yield (
            f"{ran}: the evidence of the folder is not equal to it in {len(drift)} places, each as near as the "
            f"replay's own intervals allow; the first: {drift[0]}"
        )
    else:
        yield f"{ran}: the evidence of the folder is equal to it, byte for byte but for times"
    for file in taken:
        yield f"not replayed, and taken from the folder: {file}, whose runs would have to train again"


def _summarise(result: AuditResult) -> dict[str, Any]:
    findings = sorted(result.findings, key=lambda f: (f.id, f.severity, f.outcome))
    return {
        "findings": [{"id": f.id, "outcome": f.outcome.value, "severity": f.severity.value} for f in findings],
        "questions": {q.id: q.state.value for q in result.questions},
        "word": result.verdict.word.value,
        "rule": result.verdict.rule,
    }


def _compare_folders(run: RunDir, again: Again) -> Iterator[str]:
    """Every place where the evidence of the folder is not equal to the replay's.

    Raises UserError for a place that is further away than the replay's own intervals allow.
    """
    ours = {p.name for pattern in REPLAYED for p in again.evidence.glob(pattern)}
    theirs = {p.name for pattern in REPLAYED for p in run.evidence.glob(pattern)}
    if alone := sorted(ours ^ theirs):
        where = "here alone" if alone[0] in ours else "in the folder alone"
        raise UserError(f"{run.evidence / alone[0]} is {where}: a replay leaves other files", hint=HINT)
    for name in sorted(ours):
        keys = TIMES["evidence/[0-9]*.json"] if name[0].isdigit() else ()
        left, right = (timeless(r.read_json(r.evidence / name), keys) for r in (run, again))
        for place in compare_values(left, right):
            if place.far:
                raise UserError(
                    f"{run.evidence / name} is not what its attack gives here: {place.text}", hint=HINT
                )
            yield f"{name}: {place.text}"


@dataclass(frozen=True)
class ValuePlace:
    """Where two values differ, and whether by more than is tolerated."""

    text: str
    far: bool  # further away than tolerated


def compare_values(theirs: Any, ours: Any, key: str = "", reach: float | None = None) -> Iterator[ValuePlace]:
    """Every place where two plain values differ; `reach`: how far numbers may lie apart, by the replay's
    interval.
    """
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        reach = _reach(ours, reach)
        for name in [*ours, *(k for k in theirs if k not in ours)]:
            at = f"{key}.{name}" if key else str(name)
            if name not in ours or name not in theirs:
                yield ValuePlace(f"{at} is on one side alone", True)
            else:
                yield from compare_values(theirs[name], ours[name], at, reach)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield ValuePlace(f"{key} has {len(theirs)} entries, and here {len(ours)}", True)
            return
        for i, (left, right) in enumerate(zip(theirs, ours, strict=True)):
            yield from compare_values(left, right, f"{key}[{i}]", reach)
    elif type(theirs) is not type(ours) and not _are_numbers(theirs, ours):
        yield ValuePlace(f"{key} is {_short(theirs)}, and here {_short(ours)}", True)
    elif theirs != ours and not (theirs is not ours and _are_nan(theirs, ours)):
        yield ValuePlace(f"{key} is {_short(theirs)}, and here {_short(ours)}", not _is_near(theirs, ours, reach))


def _reach(ours: Mapping[str, Any], above: float | None) -> float | None:
    """How far the numbers of one measurement may lie apart: the width of the replay's own interval of it."""
    interval = ours.get("interval")
    if isinstance(interval, list) and len(interval) == 2 and all(isinstance(i, int | float) for i in interval):
        return float(abs(interval[1] - interval[0]))
    return above


def _are_numbers(theirs: Any, ours: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in (theirs, ours))


def _are_nan(theirs: Any, ours: Any) -> bool:
    return _are_numbers(theirs, ours) and math.isnan(theirs) and math.isnan(ours)


def _is_near(theirs: Any, ours: Any, reach: float | None) -> bool:
    """Whether two values are as near as tolerated: whole numbers (trials, sizes) and words must be equal."""
    if isinstance(ours, float) and _are_numbers(theirs, ours):
        reach = TOLERANCE * abs(ours) if reach is None else reach
        return bool(abs(theirs - ours) <= max(reach, SMALLEST))
    if not (isinstance(theirs, str) and isinstance(ours, str)):
        return False
    left, right = _pixels(theirs), _pixels(ours)
    if left is not None and right is not None:  # images may differ a little in every pixel
        return left.shape == right.shape and bool(np.abs(left - right).mean() <= TOLERANCE * 255)
    if NUMBER.sub("#", theirs) != NUMBER.sub("#", ours):
        return False
    pairs = zip(NUMBER.findall(theirs), NUMBER.findall(ours), strict=True)
    return all(a == b or ("." in b and _is_near(float(a), float(b), reach)) for a, b in pairs)


def _pixels(text: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Grey levels of a PNG in base64; None where it is none."""
    if not text.startswith("iVBORw0KGgo"):
        return None
    try:
        with Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=("PNG",)) as image:
            return np.asarray(image.convert("RGB"), dtype=np.float64)
    except (ValueError, OSError, SyntaxError, Image.DecompressionBombError):
        return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
