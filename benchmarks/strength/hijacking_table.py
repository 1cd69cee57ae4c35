"""A server of split learning that hijacks clients' layers, one that does not, and what reads either; who notices.

    python -m benchmarks.strength.hijacking_table [--datasets "digits fashion_mnist"]
    python -m benchmarks.strength.hijacking_table --part optimisers
    python -m benchmarks.strength.hijacking_table --part detectors --seeds 20

configs/split_hijacking.yaml as it stands, and with a server that never begins to hijack: small_cnn cut after its
first convolution, 5 clients, 10 rounds. Three attacks read what clients sent last: the decoder of the hijacker
(Pasquini, Ateniese, Bernaschi. CCS 2021, arXiv:2012.02670), UnSplit, which knows the architecture alone
(arXiv:2108.09033), and ridge inversion, which has the released layers. Fashion-MNIST is thinned to 1800 images in
all. Beside each number stands that of the class mean.

`optimisers`: what the hijacker reads of Fashion-MNIST by how clients train and for how many batches.
`detectors`: how both detectors score servers of many federations, hijacking and honest, with other data, first
weights and batches each. SplitGuard's p is the chance that a server which ignores labels scores as high, so a
small one clears a server; of Gradients Scrutinizer scores are compared with honest servers'.

Convolutions are needed: between dense layers the features become distributed alike, and nothing says that equal
ones come of equal images.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
import yaml

from benchmarks.strength.bench import tried, unplanted
from fedaudit.attacks.attack import Claim, Knowledge
from fedaudit.attacks.batches.hijacked_images import HijackedImages, pair_answers, read_answers
from fedaudit.attacks.evaluation.split_detectors import compute_chance, score_choices
from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.show import print_table, progress
from fedaudit.audit.experiments.cells import RunCell, combine_failures, list_cells, run_cells
from fedaudit.audit.settings.merge import merge
from fedaudit.fl.artifact import Artifact

CONFIG = Path(__file__).parents[2] / "configs" / "split_hijacking.yaml"
NEVER = 10_000  # a round that is not reached
SERVERS: Mapping[str, Mapping[str, Any]] = {"hijacking": {}, "honest": {"adversary": {"first": NEVER}}}
FASHION = {"federation": {"dataset": "fashion_mnist", "limit": [1800, 500]}}
DATASETS: Mapping[str, Mapping[str, Any]] = {"digits": {}, "fashion_mnist": FASHION}
SGD, ADAM = {"optimiser": "sgd"}, {"optimiser": "adam"}
OPTIMISERS: Mapping[str, Mapping[str, Any]] = {  # a round is 35 batches of all clients together
    "SGD 0.05, 350 batches": {**SGD, "lr": 0.05, "rounds": 10},
    "Adam 0.001, 350 batches": {**ADAM, "lr": 0.001, "rounds": 10},
    "SGD 0.2, 1,400 batches": {**SGD, "lr": 0.2, "rounds": 40},
    "Adam 0.003, 350 batches": {**ADAM, "lr": 0.003, "rounds": 10},
    "SGD 0.05, 1,400 batches": {**SGD, "lr": 0.05, "rounds": 40},
    "Adam 0.001, 1,400 batches": {**ADAM, "lr": 0.001, "rounds": 40},
}
ATTACKS = {"hijacked_images": "the hijacker's decoder", "unsplit": "UnSplit", "activation_ridge": "ridge"}
MEASURES = ("ssim", "rank1", "named", "mse")
Found = Mapping[str, Any]  # one file of evidence/


def run_layers(
    layers: Mapping[str, Mapping[str, Any]], attacks: Sequence[str], root: Path, phases: Sequence[str]
) -> list[RunCell]:
    """The config with each of these changes, in root/NAME; what is finished is not run again."""
    cells = list_cells(_read_config() | {"attacks": [*attacks]}, layers, root, tuple(phases))
    with progress() as report:
        if failures := run_cells(cells, report):
            raise combine_failures(failures, len(cells))
    return cells


def _read_config() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    return content | {"workers": 0}


def print_servers(datasets: Sequence[str], root: Path) -> None:
    """What three attacks read of a hijacking server's clients and of an honest one's."""
    layers = {f"{d}-{s}": merge(DATASETS[d], SERVERS[s]) for d in datasets for s in SERVERS}
    cells = run_layers(layers, [*ATTACKS], root, ("simulate", "attack"))
    header = ["run", "what reads", *MEASURES, "Scrutinizer", "SplitGuard", "planted, named"]
    print_table(header, [row for cell in cells for row in describe_cell(cell.name, cell.folder / "evidence")])


def print_optimisers(root: Path) -> None:
    """What the hijacker's decoder reads of Fashion-MNIST, by how clients train."""
    layers = {name: merge(FASHION, {"method": own}) for name, own in OPTIMISERS.items()}
    cells = run_layers(layers, ["hijacked_images"], root, ("simulate", "attack"))
    rows = [row for cell in cells for row in describe_cell(cell.name, cell.folder / "evidence")]
    print_table(["clients train by", "what reads", *MEASURES, "Scrutinizer", "SplitGuard", "planted"], rows)


class Detectors(HijackedImages):
    """The detectors alone: no image is read."""

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        answered, batches = zip(*pair_answers(view), strict=True)
        return {"answered": np.array(answered, str), "batch": np.array(batches, str)}


def print_detectors(seeds: int, root: Path) -> None:
    """How both detectors score servers of so many federations, and what follows at 5 and at 1 %."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for name, own in SERVERS.items():
        if name == "honest":  # its pilot is never asked, and need not learn
            own = merge(own, {"adversary": {"pilot_steps": 1}})
        layers = {f"{name}-{seed}": merge(own, {"seed": seed}) for seed in range(1, seeds + 1)}
        for cell in run_layers(layers, ["hijacked_images"], root, ("simulate",)):
            where, tool = open_case(RunDir(cell.folder), cell.config), Detectors()
            found = tried(where, tool, {}, card=unplanted(tool))
            answers = read_answers(found.claim, found.truth)
            guard = score_choices(answers.means, answers.is_false, np.random.default_rng(cell.config.seed))
            scores.setdefault(name, []).append((compute_chance(guard), answers.score_scrutinizer()))
            print(
                f"{cell.name}: SplitGuard {guard[0]:.3f}, p {scores[name][-1][0]:.3f}, "
                f"Gradients Scrutinizer {scores[name][-1][1]:.3f}",
                flush=True,
            )
    honest = np.array(scores["honest"])[:, 1]
    for name, pairs in scores.items():
        chances, values = np.array(pairs).T
        cleared = ", ".join(f"{int((chances <= p).sum())} at {p:g}" for p in (0.05, 0.01))
        print(f"{name}: SplitGuard clears of {len(pairs)}: {cleared}; median p {np.median(chances):.3f}")
        low, middle, high = np.quantile(values, (0, 0.5, 1))
        below = int((values < honest.min()).sum()), int((values < 0.5).sum())
        print(
            f"  Scrutinizer {low:.3f}, {middle:.3f}, {high:.3f}; below all honest {below[0]}, below .5 {below[1]}"
        )


def describe_cell(name: str, folder: Path) -> list[list[str]]:
    """A row for each attack: value and class mean of each measure, then the scores of both detectors."""
    rows = []
    for path in sorted(folder.glob("[0-9]*.json")):
        found: Found = json.loads(path.read_text(encoding="utf-8"))
        real = [e for e in found["evidence"] if e["control"] == "none"]
        detected = [f"{e['value']:.2f}" for e in real if e["measure"] == "gradient_score"]
        rows.append([name, ATTACKS[found["name"]], *(describe_measure(real, m) for m in MEASURES), *detected])
        planted = [e for e in found["evidence"] if e["control"] == "positive" and e["measure"] == "named"]
        rows[-1] += ["", ""] * (not detected) + [", ".join(f"{e['value']:.2f}" for e in planted)]
    return rows


def describe_measure(evidence: Sequence[Found], measure: str) -> str:
    found = next(e for e in evidence if e["measure"] == measure)
    mean = next(b["value"] for b in found["baselines"] if b["name"] == CLASS_MEAN)
    return f"{found['value']:.3f} ({mean:.3f})"


def main(
    out: Annotated[Path, typer.Option(help="where run folders lie")] = Path("runs/hijacking"),
    datasets: Annotated[str, typer.Option(help="separated by spaces")] = "digits",
    part: Annotated[Literal["servers", "optimisers", "detectors"], typer.Option(help="which table")] = "servers",
    seeds: Annotated[int, typer.Option(help="federations of each server, for detectors")] = 20,
) -> None:
    """Print one of the tables above."""
    if part == "servers":
        print_servers(datasets.split(), out)
    elif part == "optimisers":
        print_optimisers(out / part)
    else:
        print_detectors(seeds, out / part)


if __name__ == "__main__":
    typer.run(main)
