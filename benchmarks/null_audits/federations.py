"""Whole audits of federations of which it is known what leaks: is "ready" within reach, and never said of a leak?

python -m benchmarks.null_audits.federations --only sums_only --out DIR

federations.yaml has the systems: clean ones, the same with one leak each, and leaks of 1, 5 and 20 % of all
people at few clients. Each is audited with `attacks: auto` under a budget, in a folder of its own, which leaves a
file; the same command continues where it was stopped. One line a system: the word, questions answered, how many
people the worst question could expose, what was demonstrated, seconds, and how that fits what is known.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import PHASES
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError

TABLE = Path(__file__).with_suffix(".yaml")
READY = ("ready", "ready_with_conditions")
NO_KEYS = ("like", "why", "found", "shares", "tolerable")  # of a row, which are not of its config
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an audit that answers everything says is exposed."""

    harm: str
    observer: str
    people: int  # at least so many


@dataclass(frozen=True, kw_only=True)
class System:
    """A federation, and what is known of it."""

    name: str
    part: str  # clean, twins or leaking
    why: str
    config: Row
    ready: bool  # whether that may be said of it
    found: tuple[Found, ...] = field(default=())

    def made(self, minutes: float) -> Config:
        """Its config; budgets are of one core, by the attacks' cards."""
        return Config.model_validate({"title": self.name, **self.config, "budget": minutes})


def over(below: Row, above: Row) -> dict[str, Any]:
    """The keys of `above` over those of `below`, group by group; settings of another partition go with it."""
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        if key == "partition" and isinstance(old, Mapping) and value.get("name", old["name"]) != old["name"]:
            out[key] = dict(value)
        else:
            out[key] = over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return out


def systems() -> list[System]:
    """All rows of the table."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    rows = table["parts"] | table["clean"] | table["twins"]

    def config(row: Row, like: str | None = None) -> dict[str, Any]:
        below = like or row.get("like")
        return over(config(rows[below]) if below else {}, {k: v for k, v in row.items() if k not in NO_KEYS})

    made = []
    for part in ("clean", "twins"):
        for name, row in table[part].items():
            found = tuple(Found(**f) for f in row.get("found", ()))
            made.append(
                System(
                    name=name, part=part, why=row["why"], config=config(row), ready=part == "clean", found=found
                )
            )
    for name, row in table["leaking"].items():
        for share, like in row["shares"].items():
            own = config(row, like)
            if isinstance(share, int):
                own["method"]["share"] = share / 100
            people = round(own["method"]["share"] * own["method"]["everybody"])
            found = (Found(**{"people": people, **row["found"]}),)
            allowed = share in row.get("tolerable", ())
            made.append(
                System(
                    name=f"{name}-{share}", part="leaking", why=row["why"], config=own, ready=allowed, found=found
                )
            )
    return made


def audited(system: System, folder: Path, minutes: float) -> dict[str, Any]:
    """What the audit of one system said; one that left its file is not audited again."""
    done = folder / "summary.json"
    if done.exists():
        summary: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return summary
    config, started = system.made(minutes), time.monotonic()
    run = RunDir.create(folder / "run")
    try:
        names = [p.name for p in PHASES if p.name != "report"]
        execute(run, config, names, lambda *_: None, skip_finished=True, workers=0)
    except UserError as error:
        return {"word": "error", "why": str(error.args[0])}
    audit = json.loads(run.audit.read_text(encoding="utf-8"))
    summary = summed_up(audit) | {"seconds": round(time.monotonic() - started)}
    durable.write(done, json.dumps(summary, indent=1).encode())
    return summary


def summed_up(audit: Row) -> dict[str, Any]:
    """What is printed of an audit.json, and the questions behind it."""
    questions = audit.get("questions", [])
    against = [q for q in questions if q["required"]]
    bounds = [q["at_most"] for q in against]
    people = audit.get("people")
    shown = [f for f in audit["findings"] if f["source"] == "attack" and f["severity"] != "none"]
    return {
        "word": (audit.get("decision") or {}).get("word", "none"),
        "answered": sum(q["state"] != "open" for q in against),
        "asked": len(against),
        "at_most": None if not bounds or None in bounds else max(bounds),
        "of": max((q["people"] for q in against), default=0),
        "exposed": None if people is None else [people["expected"], *people["interval"], people["people"]],
        "findings": {f["id"]: f["severity"] for f in shown},
        "exposed_to": sorted({(q["harm"], q["observer"]) for q in questions if q["state"] == "exposed"}),
        "open": sorted(q["id"] for q in against if q["state"] == "open"),
    }


def fits(system: System, summary: Row) -> str:
    """How an audit fits what is known."""
    word = summary["word"]
    if word == "error":
        return f"ERROR: {summary['why']}"
    shown = {tuple(d) for d in summary["exposed_to"]}
    missed = [f for f in system.found if (f.harm, f.observer) not in shown]
    if word in READY and not system.ready:
        return "WRONG: said to be ready"
    if system.part == "clean":
        verdict = {"not_ready": "WRONG: nothing leaks", "cannot_tell": "undecided"}
        return verdict.get(word, "right")
    if missed:
        named = ", ".join(f"{f.harm} by the {f.observer} of {f.people}" for f in missed)
        return f"not found: {named}"
    return "right"


def line(system: System, summary: Row) -> str:
    if summary["word"] == "error":
        return f"{system.name:32}{fits(system, summary)}"
    bound = "-" if summary["at_most"] is None else summary["at_most"]
    findings = ", ".join(f"{k} {v}" for k, v in summary["findings"].items()) or "none"
    answered = f"{summary['answered']}/{summary['asked']}"
    return (
        f"{system.name:32}{summary['word']:22}{answered:>8}  <= {bound} of {summary['of']}  {findings}  "
        f"{summary['seconds']} s  {fits(system, summary)}"
    )


def chosen(names: Sequence[str]) -> Iterator[System]:
    """The systems of these names, parts of the table, or families; all of them without."""
    for system in systems():
        if not names or {system.name, system.part, system.name.rpartition("-")[0]} & set(names):
            yield system


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", action="append", default=[], help="a name, a family, or clean, twins or leaking"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/federations"), help="folder of the audits")
    parser.add_argument("--minutes", type=float, default=1.0, help="of attacks to plan for each audit; 1")
    parser.add_argument("--list", action="store_true", help="print what is known of each, and audit none")
    given = parser.parse_args()
    found = list(chosen(given.only))
    if not found:
        parser.error(f"no system {', '.join(given.only)}")
    wrong = False
    for system in found:
        if given.list:
            known = "; ".join(f"{f.harm} by the {f.observer}, {f.people} or more" for f in system.found)
            may = "ready is allowed" if system.ready else "never ready"
            print(f"{system.name:32}{may:18}{known or 'nothing'}\n    {system.why}")
            continue
        summary = audited(system, given.out / system.name, given.minutes)
        print(line(system, summary), flush=True)
        wrong |= fits(system, summary).startswith(("WRONG", "ERROR"))
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
