"""Inversions of one gradient beside their authors' programs: python -m benchmarks.peers.gradient_inversion

The same replayed updates of one image (benchmarks/strength/gradients.py: from first weights, and from those
of nine rounds) go to `inverting_gradients` and to the reconstructor of its authors' program, with the 4,800
iterations of their paper and with as many as ours takes; and to `analytic` and the analytic attacker of breaching
(the same authors' later program). All are measured alike; ours reads the labels off the last layer for both.

Neither is a dependency of this project. PYTHONPATH names a clone of JonasGeiping/invertinggradients; breaching
0.1.2 lies in the environment whose Python runs this (pip install --no-deps breaching hydra-core omegaconf
antlr4-python3-runtime==4.9.3).
"""

import argparse
import contextlib
import copy
import importlib
import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fedaudit.fl.runtime.vision  # noqa: F401 - both programs import torchvision, which needs what is declared there
from benchmarks.strength.bench import pick, tried
from benchmarks.strength.gradients import federation
from fedaudit.attacks.attack import Attack, Claim, Floats, Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Update, labels
from fedaudit.attacks.evaluation.update_inversion import UpdateInversion
from fedaudit.attacks.updates.analytic import Analytic, read_layer
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients
from fedaudit.fl.runtime import workers
from fedaudit.fl.runtime.errors import UserError

PAPER = {"cost_fn": "sim", "signed": True, "boxed": True, "lr": 0.1, "total_variation": 0.1, "optim": "adam"}
HEADER = f"{'model':9}{'attack':42}{'SSIM [95 %]':24}{'rank-1':>8}{'layer input':>13}{'seconds':>9}"


def program(name: str, hint: str) -> Any:
    """A module of theirs; UserError where it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{name} cannot be imported ({error}): there is nothing to compare with", hint=hint
        ) from error


class Theirs(UpdateInversion):
    """Their reconstructor in the place of ours; labels and what is measured stay."""

    card, Config = InvertingGradients.card, InvertingGradients.Config

    def __init__(self, settings: InvertingGradients.Config, tool: Any) -> None:
        super().__init__(settings)
        self.tool = tool

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        known, own = labels(update, knowledge, number), Imitation(update, knowledge)
        y = rng.integers(knowledge.classes, size=number) if known is None else known
        model, channels = copy.deepcopy(own.module).requires_grad_(True), knowledge.shape[0]
        scale = torch.zeros(1, channels, 1, 1), torch.ones(1, channels, 1, 1)  # pixels are 0 to 1 already
        c = self.config
        settings = {
            **PAPER,
            "restarts": c.restarts,
            "max_iterations": c.iterations,
            "total_variation": c.smoothness,
        }
        with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(io.StringIO()):
            torch.manual_seed(int(rng.integers(2**62)))
            worker = self.tool.GradientReconstructor(model, scale, settings, num_images=number)
            found, _ = worker.reconstruct(own.target, torch.from_numpy(y), img_shape=knowledge.shape)
        return found.numpy(), y


class TheirAnalytic(Analytic):
    """Their division in the place of ours."""

    def __init__(self, settings: Analytic.Config, tool: Any) -> None:
        super().__init__(settings)
        self.tool = tool

    def make_claim(self, chosen: Sequence[Update], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        claim, made = super().make_claim(chosen, knowledge, rng), {u.artifact: u for u in chosen}
        inputs = np.empty(len(claim["artifact"]), object)
        for i, artifact in enumerate(claim["artifact"]):
            found = read_layer(Imitation(made[str(artifact)], knowledge), knowledge.shape)
            assert found is not None, "the model has a dense layer, and all of it is sent"
            weight, bias = (torch.from_numpy(g) for g in found.gradient)
            inputs[i] = self.tool.AnalyticAttacker.invert_fc_layer(None, weight, bias, [0]).numpy()
        return {**claim, "inputs": inputs}


def rivals(images: int) -> list[tuple[str, Attack]]:
    peer = program("inversefed", "PYTHONPATH=FOLDER, a clone of JonasGeiping/invertinggradients")
    later = program("breaching.attacks.analytic_attack", "pip install --no-deps breaching hydra-core omegaconf")
    first = InvertingGradients.Config(per_size=images, recorded=0)
    long = replace(first, iterations=4800, restarts=1)
    divided = Analytic.Config(per_size=images, recorded=0)
    return [
        ("inverting_gradients", InvertingGradients(first)),
        ("authors' program, 4,800 iterations", Theirs(replace(long, smoothness=0.1), peer)),
        ("authors' program, 4,800, our smoothness", Theirs(long, peer)),
        ("authors' program, 4 x 300, our smoothness", Theirs(first, peer)),
        ("analytic", Analytic(divided)),
        ("breaching, analytic", TheirAnalytic(divided, later)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=8, help="updates of one image each; 8")
    parser.add_argument("--models", nargs="*", default=["fresh", "trained"])
    parser.add_argument("--out", type=Path, default=Path("runs/strength"), help="where the federations lie")
    given = parser.parse_args()
    try:
        every = rivals(given.images)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(HEADER)
    for model in given.models:
        for name, attack in every:
            with workers.one_thread():
                replay = {"updates": [[1, 1, given.images]], "clients": 10}
                found = tried(federation(given.out, model), attack, replay)
            ssim, rank1 = pick(found.evidence, "ssim"), pick(found.evidence, "rank1")
            low, high = ssim.interval or (0.0, 1.0)
            errors = [e for e in found.evidence if e.measure == "layer_input_relative_error"]
            apart = f"{errors[0].value:.1e}" if errors else ""
            span = f"{ssim.value:.3f} [{low:.3f}, {high:.3f}]"
            print(f"{model:9}{name:42}{span:24}{rank1.value:8.0%}{apart:>13}{found.seconds:9.0f}", flush=True)


if __name__ == "__main__":
    main()
