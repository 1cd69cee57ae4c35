"""Null runs: how often an attack finds something in a federation that holds nothing to find.

python -m benchmarks.null_audits.audits --count 200 --out runs/nulls

Each run is an audit of one of the federations of benchmarks/null_audits/null_methods.py under a seed of its
own, on the quickstart's data, partition and replays, with the attacks at their own numbers of trials. An
attack's lower limits of people who are hit share a chance of 5 % to be too large, so at most in that share of
its null runs may anybody be hit. An attack is above where the lower end of the exact interval of its share
lies above that. Each run leaves one file, and the same command continues where it was stopped. Costly attacks
join only some of the runs, and have the fewer of them.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedaudit.attacks import stats
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import AttackFile
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.verdict.people import bound_people
from fedaudit.fl.runtime import durable

STATED = 0.05  # of audits in which an attack may say that it hit somebody
METHODS = "benchmarks.null_audits.null_methods"
FEDERATION = {
    "dataset": "digits",
    "clients": 10,
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "availability": {"name": "bernoulli", "p": 0.8},
    "model": "small_cnn",
    "holdout": {"auxiliary": 0.35, "reference": 0.25},
}
TRAINING = {"rounds": 2, "local_epochs": 2, "batch_size": 20, "lr": 0.05}
PROTOTYPES = ("prototype_membership", "prototype_linkage", "ridge", "lookup")
GAN = {"cycles": 2, "least_cycles": 2, "local": 1, "batch_size": 16, "width": 4, "latent": 8}


@dataclass(frozen=True, kw_only=True)
class Null:
    """A federation with nothing to find, and the attacks that look there."""

    method: str  # a class of null_methods.py
    attacks: tuple[str, ...]  # in every run
    seldom: tuple[str, ...] = ()  # costly ones: one of them in each run, by turns, every `period` runs
    period: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the method, beside TRAINING
    federation: Mapping[str, Any] = field(default_factory=dict)  # beside FEDERATION

    def names(self, number: int) -> list[str]:
        """The attacks of the run of that number."""
        turn, left = divmod(number, self.period)
        one = [self.seldom[turn % len(self.seldom)]] if self.seldom and not left else []
        return [*self.attacks, *one]

    def config(self, number: int) -> Config:
        return Config.model_validate(
            {
                "seed": 1000 + number,
                "device": "cpu",
                "workers": 0,
                "federation": {**FEDERATION, **self.federation},
                "method": {"name": f"{METHODS}:{self.method}", **TRAINING, **self.settings},
                "record": "all",
                "replay": {"sizes": [1, 2, 5, 20], "clients": 6, "groups": 150},
                "attacks": self.names(number),
                "evaluate_every": 100,
            }
        )


MODELS = ("loss_threshold", "entropy", "hidden_images")
NULLS = {
    "noise for prototypes": Null(
        method="NoisePrototypes", attacks=PROTOTYPES, seldom=("upcnn", "prototype_difference", "vae", "grnn")
    ),
    "other images": Null(
        method="ReBaFLImages",
        attacks=(*PROTOTYPES, *MODELS),
        seldom=(
            "rmia",
            "upcnn",
            "lira",
            "prototype_difference",
            "idlg",
            "analytic",
            "dlg",
            "inverting_gradients",
        ),
        period=2,
    ),
    "condensed other images": Null(
        method="FedDCImages",
        attacks=("condensed_recovery", "condensed_membership"),
        seldom=("condensed_refinement",),
        settings={"iterations": 5, "rounds": 1},
    ),
    "means of other images": Null(method="FedMixImages", attacks=("mashed_membership",)),
    "generators of other images": Null(
        method="GandalfImages",
        attacks=("generator_distance", "critic_score", "relayed_model"),
        seldom=("generator_extraction", "relayed_generator", "latent_inversion"),
        period=2,
        settings={"gan": GAN, "rounds": 1, "labeler_rounds": 1, "groups": 2, "mediators": 2},
    ),
    "other clients": Null(
        method="FedAvgClients",
        attacks=("label_counts_from_update", "example_numbers", "label_counts_from_gradient"),
    ),
    "counts of other clients": Null(method="SeolKimClients", attacks=("count_recovery",)),
    "tables of other clients": Null(method="FDClients", attacks=("class_list",)),
    "clusters of other clients": Null(
        method="IFCAClients", attacks=("majority_class",), settings={"clusters": 3}
    ),
    "losses of other clients": Null(method="PowerOfChoiceClients", attacks=("majority_class",)),
}


class Found(NamedTuple):
    """What became of one attack in one run, and how many people, or clients, it hit at least."""

    null: str
    seed: int
    attack: str
    status: str  # "ran", "failed", "not_applicable"
    at_least: int
    reason: str


def audited(name: str, number: int, folder: Path) -> list[Found]:
    """The findings of one null run, made in `folder`."""
    null = NULLS[name]
    config, run = null.config(number), RunDir.create(folder)
    execute(run, config, ("simulate", "attack"), lambda *_: None, skip_finished=True)
    return [
        Found(name, config.seed, file["name"], file["status"], _count_least(file), file["reason"])
        for file in EvidenceFolder(run.path).attacks
    ]


def _count_least(file: Mapping[str, Any]) -> int:
    """The largest lower limit of all that an attack counts, which share the stated chance to be too large."""
    counts = AttackFile.model_validate(file).people if file.get("people") else []
    return max((bound_people(c, alpha=STATED / len(counts)).at_least for c in counts), default=0)


def results(runs: Iterable[tuple[str, int]], out: Path) -> Iterator[Found]:
    """What each run (federation, number) found; one whose file is in `out` is not run again."""
    for name, number in runs:
        file = out / f"{name.replace(' ', '-')}-{number:04d}.json"
        if not file.exists():
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                made = audited(name, number, Path(folder) / "run")
            durable.write(file, json.dumps(made, indent=1).encode())
            print(f"{name} {number}: {time.monotonic() - started:.0f} s", flush=True)
        yield from (Found(*one) for one in json.loads(file.read_text(encoding="utf-8")))


def plan(count: int, names: Sequence[str] = tuple(NULLS)) -> list[tuple[str, int]]:
    """So many runs, the federations by turns: the numbers 0, 1, ... of each."""
    return [(names[i % len(names)], i // len(names)) for i in range(count)]


class Share(NamedTuple):
    attack: str
    runs: int
    findings: int
    low: float
    high: float
    failed: int

    @property
    def above(self) -> bool:
        return self.low > STATED


def shares(found: Iterable[Found]) -> list[Share]:
    """By attack, over all federations in which it ran."""
    rows = []
    of: dict[str, list[Found]] = {}
    for f in found:
        of.setdefault(f.attack, []).append(f)
    for attack, runs in sorted(of.items()):
        ran = [f for f in runs if f.status == "ran"]
        hits = sum(f.at_least > 0 for f in ran)
        low, high = stats.clopper_pearson(hits, len(ran)) if ran else (0.0, 1.0)
        rows.append(Share(attack, len(ran), hits, low, high, sum(f.status == "failed" for f in runs)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="audits; 200")
    parser.add_argument("--only", choices=list(NULLS), help="one of the federations; all")
    parser.add_argument("--out", type=Path, default=Path("runs/nulls"), help="folder of the results; runs/nulls")
    given = parser.parse_args()
    names = [given.only] if given.only else list(NULLS)
    rows = shares(results(plan(given.count, names), given.out))
    print(f"\n{'attack':28}{'runs':>5}{'findings':>9}  95 % interval of their share (stated: {STATED:.0%})")
    for row in rows:
        more = [f"{row.failed} failed"] if row.failed else []
        ends = f"{row.low:.1%} to {row.high:.1%}"
        print(f"{row.attack:28}{row.runs:5}{row.findings:9}  {ends:18}{'ABOVE  ' * row.above}{', '.join(more)}")
    raise SystemExit(any(row.above or row.failed for row in rows))


if __name__ == "__main__":
    main()
