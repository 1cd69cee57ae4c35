"""A server of split learning that hijacks clients' layers, one that does not, and what reads either; who notices.

    python -m benchmarks.strength.hijacking_table --out runs/hijacking --datasets "digits fashion_mnist"

configs/split_hijacking.yaml as it stands, and with a server that never begins to hijack: small_cnn cut after its
first convolution, 5 clients, 10 rounds. Three attacks read what clients sent last: the decoder of the hijacker
(Pasquini, Ateniese, Bernaschi. CCS 2021, arXiv:2012.02670), UnSplit, which knows the architecture alone
(arXiv:2108.09033), and ridge inversion, which has the released layers. Fashion-MNIST is thinned to 1800 images in
all; `fashion_mnist_adam` trains clients for 40 rounds by Adam, as the authors' code, without which the hijacker
reads nothing there. Beside each number stands that of the class mean.

Convolutions are needed: between dense layers the features become distributed alike, and nothing says that equal
ones come of equal images.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.audit.cli.show import print_table, progress
from fedaudit.audit.phases.cells import cells_of, complaint, run_cells
from fedaudit.audit.settings.merge import merge

CONFIG = Path(__file__).parents[2] / "configs" / "split_hijacking.yaml"
NEVER = 10_000  # a round that is not reached
SERVERS: Mapping[str, Mapping[str, Any]] = {"hijacking": {}, "honest": {"adversary": {"first": NEVER}}}
FASHION = {"federation": {"dataset": "fashion_mnist", "train_limit": 1800, "test_limit": 500}}
DATASETS: Mapping[str, Mapping[str, Any]] = {
    "digits": {},
    "fashion_mnist": FASHION,
    "fashion_mnist_adam": FASHION | {"method": {"rounds": 40, "optimiser": "adam", "lr": 0.001}},
}
ATTACKS = {"hijacked_images": "the hijacker's decoder", "unsplit": "UnSplit", "activation_ridge": "ridge"}
MEASURES = ("ssim", "rank1", "named", "mse")
Found = Mapping[str, Any]  # one file of evidence/


def measure_cells(datasets: Sequence[str], root: Path) -> list[list[str]]:
    """The rows of the table: simulates and attacks every pair of a data set and a server below root."""
    base = yaml.safe_load(CONFIG.read_text(encoding="utf-8")) | {"attacks": [*ATTACKS]}
    layers = {f"{d}-{s}": merge(DATASETS[d], SERVERS[s]) for d in datasets for s in SERVERS}
    cells = cells_of(base, layers, root, ("simulate", "attack"))
    with progress() as report:
        if failures := run_cells(cells, report):
            raise complaint(failures, len(cells))
    return [row for cell in cells for row in describe_cell(cell.name, cell.folder / "evidence")]


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
) -> None:
    """Print what three attacks read of a hijacking server's clients and of an honest one's."""
    header = ["run", "what reads", *MEASURES, "Scrutinizer", "SplitGuard", "planted, named"]
    print_table(header, measure_cells(datasets.split(), out))


if __name__ == "__main__":
    typer.run(main)
