"""One step of an optimiser whose moments are carried from batch to batch, as a state that can be kept."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedaudit.fl.model import State
from fedaudit.fl.training.local import Params, TrainingHooks, stepper

MOMENTS = "moments/"  # of an optimiser, beside the weights that it steps


def step(
    hooks: TrainingHooks,
    params: Params,
    grads: Sequence[Tensor | None],
    start: Params,
    moments: State,
    rate: float,
) -> State:
    """One step of a party's optimiser on its own weights; returns the optimiser's new moments.

    As in fl/training/local.py: the clip, then the correction, then the optimiser. `start` is what `correct` is
    given; without weights nothing moves.
    """
    if not params:
        return {}
    config = hooks.config
    optimiser = stepper(config, list(params.values()), rate)
    _load_moments(optimiser, params, moments)
    with torch.no_grad():
        of = {k: torch.zeros_like(p) if g is None else g for (k, p), g in zip(params.items(), grads, strict=True)}
        for k, p in params.items():
            p.grad = of[k]
        if config.grad_clip > 0:
            nn.utils.clip_grad_norm_(list(params.values()), config.grad_clip)
        if start:
            of = hooks.correct({k: p.grad for k, p in params.items() if p.grad is not None}, params, start, {})
            for k, p in params.items():
                p.grad = of[k]
    optimiser.step()
    if start:
        with torch.no_grad():
            for k, moved in hooks.after_step(params, {}, rate).items():
                params[k].copy_(moved)
    return {
        f"{MOMENTS}{i}/{name}": v.detach().cpu().clone()
        for i, p in enumerate(params.values())
        for name, v in optimiser.state[p].items()
        if v is not None
    }


def _load_moments(optimiser: torch.optim.Optimizer, params: Params, moments: State) -> None:
    """Give an optimiser its moments back; its own load_state_dict() would load torch.compile's front end."""
    listed = list(params.values())
    for key, value in moments.items():
        number, _, name = key.removeprefix(MOMENTS).partition("/")
        p = listed[int(number)]
        optimiser.state[p][name] = value.clone() if name == "step" else value.clone().to(p)
