"""What `fedaudit dp budget` prints: a run's spending, or a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaudit.audit.accounting.planner import NoiseQuestion, answers, bound_plan
from fedaudit.audit.accounting.spending import Spent, spent
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.fl.ledger import read
from fedaudit.reports.bound import Status
from fedaudit.reports.bound_text import describe_bound, label_bound
from fedaudit.reports.format import number


@dataclass(frozen=True, kw_only=True)
class Text:
    """A table, and sentences below it."""

    header: list[str]
    rows: list[list[str]]
    lines: list[str]


def spending(path: Path, data: Sequence[str] | None = None, *, trust: bool = False) -> Text:
    """What a finished run spent, towards each observer, over its rounds.

    `data` are copies, NAME=PATH, of what the folder's config reads elsewhere. Raises UserError, for code to which
    the user has not agreed as well.
    """
    run = RunDir.open(path)
    from fedaudit.audit.accounting.verify import DECLARED, verify
    from fedaudit.audit.case.open import open_case
    from fedaudit.audit.evidence.account import bind_status, describe_population
    from fedaudit.audit.evidence.files import EvidenceFolder
    from fedaudit.audit.planning.load import load_config
    from fedaudit.fl.recording.recorder import MANIFEST, manifest

    releases, config = read(run.ledger), load_config(path, data, trust_plugins=trust)
    case = open_case(run, config)
    population = describe_population(case.clients, case.examples, case.data, case.participation)
    verified = DECLARED  # where nothing says what crossed the wire
    if (run.artifacts / MANIFEST).is_file():
        verified = verify(case, releases, manifest(run.artifacts))
    bound_releases = bind_status(EvidenceFolder(path), verified, population, config.delta)
    found = spent(releases, bound_releases)
    if not found:
        return Text(
            header=["observer"], rows=[], lines=["The ledger is empty: nothing was released, or nothing ran."]
        )
    points = found[0].rounds
    spoiled = any(s.last.clear_kinds for s in found)
    noised = spent([r for r in releases if r.noise_multiplier], bound_releases) if spoiled else []
    return Text(
        header=["observer", "unit", "adjacency", "computed by", *(f"after {r:,}" for r in points)],
        rows=[*_rows(found, ""), *_rows(noised, ", noised releases alone")],
        lines=[
            f"epsilon at delta {number(config.delta)}, after so many rounds, with its status",
            *_colluding(found),
            *dict.fromkeys(
                f"towards {s.observer}, the draw of clients is not credited: {s.last.uncredited}"
                for s in found
                if s.last.uncredited
            ),
            *dict.fromkeys(
                f"towards {s.observer}, per {s.unit}: {describe_bound(s.last)}"
                for s in found
                if s.last.status is not Status.VERIFIED
            ),
        ],
    )


def _colluding(found: Sequence[Spent]) -> list[str]:
    """Of noise that clients make together: by how many, and how many of them collude, for each observer."""
    parts = [(s.observer, p) for s in found for p in s.last.assumes.split("; ") if "colluder" in p]
    return [f"towards {observer}: {part}" for observer, part in dict.fromkeys(parts)]


def _rows(found: Sequence[Spent], what: str) -> list[list[str]]:
    return [
        [
            s.observer + what,
            s.unit,
            s.last.adjacency.replace("_", " "),
            s.last.accountant,
            *map(label_bound, s.bounds),
        ]
        for s in found
    ]


def plan(question: NoiseQuestion) -> Text:
    """The noise that keeps a budget."""
    found = answers(question)
    planned = [list(bound_plan(question, a).values()) for a in found]
    whole, points = planned[0][-1], list(found[0].curve)
    return Text(
        header=["towards", "noise / clip norm", "counting", "computed by", *(f"after {r:,}" for r in points)],
        rows=[
            [a.observer, f"{a.noise:.5g}", a.counted, a.engine, *map(label_bound, bounds)]
            for a, bounds in zip(found, planned, strict=True)
        ],
        lines=[
            f"planned, which is declared until it runs: ({number(question.epsilon)}, {number(question.delta)})"
            f"-DP per {whole.unit}, {whole.adjacency.replace('_', ' ')}, of {whole.population}, "
            f"over {question.rounds:,} rounds: "
            "Gaussian noise of that standard deviation per coordinate, relative to the norm that the whole "
            "release is clipped to"
        ]
        + (
            [
                "noise that each client adds to its own upload counts as in the first row, for every observer",
                "under secure_aggregation clients know who is drawn with them: towards them it costs more",
            ]
            if question.rate < 1
            else []
        ),
    )
