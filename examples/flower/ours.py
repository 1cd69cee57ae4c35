"""What side_by_side.sh needs: digits without normalisation, and the split of a simulation for the app in Flower.

    python ours.py simulated.yaml RUN FOLDER

writes split.npz (who holds what, and the auditor's own), initial.npz (the first weights) of a finished run, and
settings.yaml, the simulation's attacks for the import.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.settings.config import load
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.datasets.digits import Digits


class Plain(Digits):
    """The model sees values from 0 to 1, as in the app."""

    def load(self) -> Data:
        return replace(super().load(), mean=(0.0,), std=(1.0,))


def main(config: Path, run: Path, folder: Path) -> None:
    settings = load(config)
    settings.bring_code([config.parent])
    case = open_case(RunDir.open(run), settings)
    train = case.data.train
    own = np.concatenate([case.examples.auxiliary, case.examples.reference])
    arrays = {"own_x": train.x[own], "own_y": train.y[own]}
    for k, rows in case.examples.parts.items():
        arrays |= {f"x{k}": train.x[rows], f"y{k}": train.y[rows]}
    np.savez(folder / "split.npz", **arrays)
    np.savez(folder / "initial.npz", **{k: v.numpy() for k, v in case.network.initial().items()})
    (folder / "settings.yaml").write_text(
        yaml.safe_dump({"attacks": yaml.safe_load(config.read_text())["attacks"]})
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
