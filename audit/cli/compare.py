"""Comparing finished runs: what came out, and the settings that differ, side by side.

Of two runs the last column says whether the intervals of an estimate overlap or lie apart.

Every folder is judged here (audit/cli/gate.py), by its own policy; its audit.json is not believed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.measure import find_measure
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.gate import Reviewer, judge_folder
from fedaudit.audit.evidence.phase import phases, read_phases
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports import format as fmt
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.evidence_table import telling
from fedaudit.reports.result import AuditResult, Finding, Outcome

Row = list[str]
ABSENT = "-"
MOST_MEASURES = 2  # of one attack
INNER, APART = "  ", "apart"
MOST_ROWS, WIDEST = 18, 40  # of a screen


def compare(
    folders: Sequence[Path], data: Sequence[str] | None = None, *, trust: bool = False
) -> tuple[Row, list[Row]]:
    """Header and rows: a column a run and one for intervals; verdicts first, settings that differ last.

    Each is judged by its own policy. `data` names copies of what their configs read elsewhere, as NAME=PATH;
    `trust` runs code that they name.

    Raises UserError for fewer than two folders and for one that holds no finished run.
    """
    if len(folders) < 2:
        raise UserError(
            f"compare needs at least two run folders, got {len(folders)}",
            hint="fedaudit compare runs/first runs/second",
        )
    runs = [_open_finished_run(folder) for folder in folders]
    reviewer = Reviewer(trust=trust, data=tuple(data or ()))
    results = [judge_folder(run.path, reviewer).result for run in runs]
    rows = _overall(results) + _attacks(results) + _bounds(results)
    rows += _settings([flat(_read_config(run.inside("config.yaml"))) for run in runs])
    return ["", *_names(folders), "intervals"], [[*row, *[""] * (len(runs) + 2 - len(row))] for row in rows]


def select_differences(header: Row, rows: Sequence[Row]) -> tuple[Row, list[Row]]:
    """Of a comparison the verdict and what is not alike in all runs: one screen, without intervals.

    Of what an attack measured only estimates whose intervals lie apart.
    """
    kept = [
        row[:-1]
        for i, row in enumerate(rows)
        if not i or (row[-1] == APART if row[0].startswith(INNER) else len(set(row[1:-1])) > 1)
    ]
    return header[:-1], [[fmt.shorten(cell, WIDEST) for cell in row] for row in kept[:MOST_ROWS]]


def _open_finished_run(folder: Path) -> RunDir:
    run = RunDir.open(folder)
    record = read_phases(run.path)
    case = "recorded" if "subject" in _read_config(run.inside("config.yaml")) else "simulated"
    for name in (p.name for p in phases(case) if p.name != "report"):
        if (record.get(name) or {}).get("seconds") is None:
            raise UserError(
                f"{folder} is not a finished run: its {name} phase did not end",
                hint=f"fedaudit run CONFIG --out {folder}",
            )
    return run


def _read_config(path: Path) -> Mapping[str, Any]:
    found = read_yaml(path)
    return found if isinstance(found, Mapping) else {}


def _names(folders: Sequence[Path]) -> Row:
    """The folders' own names, or as given where two have the same."""
    short = [f.resolve().name for f in folders]
    return short if len(set(short)) == len(short) else [str(f) for f in folders]


def flat(value: Any, key: str = "") -> dict[str, str]:
    """Nested settings as dotted keys with their values as text."""
    if isinstance(value, Mapping) and value:
        parts = [(f"{key}.{k}" if key else str(k), v) for k, v in value.items()]
    elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
        parts = [(f"{key}[{i}]", v) for i, v in enumerate(value)]
    else:
        return {key: str(value)}
    return {k: v for name, inner in parts for k, v in flat(inner, name).items()}


def _settings(configs: Sequence[Mapping[str, str]]) -> list[Row]:
    keys = dict.fromkeys(k for c in configs for k in c if not k.startswith("variants"))
    rows = [[key, *(c.get(key, ABSENT) for c in configs)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _overall(results: Sequence[AuditResult]) -> list[Row]:
    rows = [["verdict", *(r.decision.word.words if r.decision else ABSENT for r in results)]]
    rows += [
        ["policy", *(f"{r.policy.name} {r.policy.version}, SHA-256 {r.policy.sha256[:12]}" for r in results)]
    ]
    rows += [["worst finding", *(_severity(r) for r in results)]]
    for name in ("accuracy_final", "bytes_up"):
        values = [r.summary_metrics.get(name) for r in results]
        if any(v is not None for v in values):
            rows.append([name.replace("_", " "), *(_metric(name, v) for v in values)])
    asked = [r.cells for r in results]
    rows.append(["questions answered", *(f"{sum(q.is_answered for q in qs)} of {len(qs)}" for qs in asked)])
    return rows


def _severity(result: AuditResult) -> str:
    return fmt.SEVERITIES[result.headline.severity]


def _metric(name: str, value: float | None) -> str:
    if value is None:
        return ABSENT
    return fmt.volume(int(value)) if name == "bytes_up" else fmt.percent(value)


def _attacks(results: Sequence[AuditResult]) -> list[Row]:
    """Per attack its verdict in each run, then its telling measures where the first run has them."""
    found = [{f.id: f for f in r.findings if f.source == "attack"} for r in results]
    rows = []
    for name in dict.fromkeys(i for f in found for i in f):
        here = [f.get(name) for f in found]
        rows.append([name, *(_verdict(f) for f in here)])
        cells: dict[str, dict[int, Evidence]] = {}
        for column, finding in enumerate(here):
            for e in (
                telling([e for e in finding.evidence if e.control == "none"])[:MOST_MEASURES] if finding else ()
            ):
                where = f" ({e.place})" if e.condition else ""
                cells.setdefault(f"{INNER}{find_measure(e.measure).words}{where}", {})[column] = e
        for words, estimates in cells.items():
            texts = {i: fmt.estimate(e.value, e.interval, e.unit) for i, e in estimates.items()}
            rows.append([words, *(texts.get(i, ABSENT) for i in range(len(found))), _meet(estimates, len(found))])
    return rows


def _meet(estimates: Mapping[int, Evidence], runs: int) -> str:
    """Whether the intervals of two runs' estimates overlap; empty where there are none, or more runs."""
    intervals = [e.interval for e in estimates.values() if e.interval is not None]
    if runs != 2 or len(intervals) != 2:
        return ""
    (low, high), (other_low, other_high) = intervals
    return "overlap" if low <= other_high and other_low <= high else APART


def _verdict(finding: Finding | None) -> str:
    if finding is None:
        return ABSENT
    if finding.outcome is Outcome.RAN:
        return fmt.SEVERITIES[finding.severity]
    return fmt.OUTCOMES[finding.outcome]


def _bounds(results: Sequence[AuditResult]) -> list[Row]:
    found = [
        {f"epsilon, {b.observer}, {b.unit}": f"{label_bound(b)}, delta {fmt.number(b.delta)}" for b in r.bounds}
        for r in results
    ]
    keys = dict.fromkeys(k for f in found for k in f)
    return [[k, *(f.get(k, ABSENT) for f in found)] for k in keys]
