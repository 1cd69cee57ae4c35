"""What enters the linear maps of a published network: found by running it, so that no architecture is named here.

A matrix reads its module's input where it has as many columns as that input is wide: the weight of a linear
layer, and A of an adapter wrapped around one. Maps that are given the very same tensor read one input together,
such as query, key and value of a block; their changes are stacked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor, nn

Arrays = Mapping[str, NDArray[Any]]
Values = NDArray[np.float64]
TOKENS = 20_000  # run through the network at once


class _Enough(Exception):
    """What was wanted has been caught."""


@dataclass(frozen=True, kw_only=True)
class InputSite:
    """Matrices that read one input: their names in messages, and the modules that are given it."""

    names: tuple[str, ...]
    modules: tuple[str, ...]


def name_parameters(module: "nn.Module", payload: Iterable[str]) -> dict[str, str]:
    """Name of each parameter in the network -> its name in messages; those that messages do not have are left
    out.
    """
    sent = {*payload}
    found = {}
    for name, _ in module.named_parameters(remove_duplicate=False):
        parts = name.split(".")
        tails = (".".join(parts[i:]) for i in range(len(parts)))
        if key := next((tail for tail in tails if tail in sent), ""):
            found[name] = key
    return found


def find_token_embedding(module: "nn.Module", length: int) -> tuple[str, bool]:
    """The weight that holds a row for each token, by the network's name for it, and whether the head shares it.

    "" where no embedding is given the tokens themselves.
    """
    import torch
    from torch import nn

    probe = torch.ones((1, length), dtype=torch.int64, device=_find_device(module))
    found: list[str] = []
    hooks = [
        m.register_forward_pre_hook(_catch_equal(name, probe, found))
        for name, m in module.named_modules()
        if isinstance(m, nn.Embedding)
    ]
    try:
        with torch.no_grad():
            module(probe)
    finally:
        for hook in hooks:
            hook.remove()
    tables: dict[str, Tensor] = {name: module.get_submodule(name).weight for name in found}  # type: ignore[misc]
    if not tables:
        return "", False
    # positions may be looked up by ones too: the largest table is the vocabulary's
    name = max(tables, key=lambda n: len(tables[n]))
    weight = tables[name].requires_grad_(True)
    with torch.enable_grad():
        (moved,) = torch.autograd.grad(module(probe).logsumexp(-1).sum(), [weight])
    weight.requires_grad_(False)
    return f"{name}.weight", bool(moved[2:].any())  # rows of tokens that the probe does not have


def _catch_equal(name: str, probe: "Tensor", found: list[str]) -> Any:
    def hook(_: Any, args: tuple[Any, ...]) -> None:
        import torch

        if args and torch.is_tensor(args[0]) and args[0].shape == probe.shape and bool((args[0] == probe).all()):
            found.append(name)

    return hook


def find_sites(module: "nn.Module", length: int, changed: Mapping[str, NDArray[Any]]) -> list[InputSite]:
    """The sites of the network in the order in which they are run, of matrices among `changed` (name in
    messages).

    `length`: tokens of one text.
    """
    import torch

    keys = name_parameters(module, changed)
    owners: dict[str, list[tuple[str, int]]] = {}
    for name, key in keys.items():
        if np.ndim(changed[key]) == 2:
            owners.setdefault(name.rpartition(".")[0], []).append((key, int(np.shape(changed[key])[1])))
    calls: list[tuple[str, Tensor]] = []
    probe = torch.ones((1, length), dtype=torch.int64, device=_find_device(module))

    def watch(name: str) -> Any:
        return lambda _, args: calls.append((name, args[0])) if args else None

    hooks = [module.get_submodule(name).register_forward_pre_hook(watch(name)) for name in owners]
    try:
        with torch.no_grad():
            module(probe)
    finally:
        for hook in hooks:
            hook.remove()
    sites: list[tuple[Tensor, list[str], list[str]]] = []
    for name, given in calls:
        own = [key for key, width in owners[name] if given.is_floating_point() and given.shape[-1] == width]
        if not own:
            continue
        for known, names, modules in sites:
            if known.shape == given.shape and torch.equal(known, given):
                names += [key for key in own if key not in names]
                modules.append(name)
                break
        else:
            sites.append((given, own, [name]))
    return [InputSite(names=tuple(names), modules=tuple(modules)) for _, names, modules in sites]


def compute_inputs(module: "nn.Module", site: InputSite, texts: NDArray[np.int64]) -> NDArray[np.float32]:
    """What enters a site for texts [N, L] without padding: [N, L, d]."""
    import torch

    module, place = module.eval(), _find_device(module)
    caught: list[Tensor] = []

    def hook(_: Any, args: tuple[Any, ...]) -> None:
        caught.append(args[0])
        raise _Enough

    handle = module.get_submodule(site.modules[0]).register_forward_pre_hook(hook)
    try:
        with torch.no_grad():
            for batch in torch.split(torch.from_numpy(texts).to(place), max(1, TOKENS // texts.shape[1])):
                try:
                    module(batch)
                except _Enough:
                    continue
    finally:
        handle.remove()
    return np.asarray(torch.cat(caught).float().cpu().numpy())


def reads_only_tokens(module: "nn.Module", site: InputSite, length: int, vocabulary: int) -> bool:
    """Whether what enters a site at a position depends on the token there and on no other."""
    half = max(1, length // 2)
    rng = np.random.default_rng(0)
    one, two = (rng.integers(1, vocabulary, (1, length)) for _ in range(2))
    two[:, half:] = one[:, half:]
    first, second = (compute_inputs(module, site, x)[:, half:] for x in (one, two))
    third = compute_inputs(module, site, np.concatenate([one[:, :half], two[:, ::-1][:, half:]], axis=1))[
        :, :half
    ]
    return bool(np.allclose(first, second, atol=1e-6)) and bool(
        np.allclose(third, compute_inputs(module, site, one)[:, :half], atol=1e-6)
    )


def list_first_inputs(
    module: "nn.Module", site: InputSite, vocabulary: int, length: int
) -> Iterable[tuple[slice, NDArray[np.float32]]]:
    """Inputs [v, length, d] of every token at every position, a slice of the vocabulary at a time."""
    step = max(1, TOKENS // length)
    for low in range(0, vocabulary, step):
        tokens = np.arange(low, min(vocabulary, low + step))
        tokens = np.maximum(tokens, 1)  # padding is masked; its row is never claimed
        yield (
            slice(low, low + len(tokens)),
            compute_inputs(module, site, np.repeat(tokens[:, None], length, axis=1)),
        )


def _find_device(module: "nn.Module") -> Any:
    return next(module.parameters()).device
