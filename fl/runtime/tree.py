"""Nested dictionaries of tensors and plain values, as one safetensors file and back.

Server state, client memory and checkpoints are such trees. Nothing is pickled. What is read back has its keys
in the order in which they were, so that a run that goes on adds, iterates and writes as one that never stopped.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

Tree = dict[str, Any]  # values: Tensor, Tree, or what JSON holds
SEPARATOR = "\x1f"  # a character no parameter name contains
_ORDER = SEPARATOR  # which is no path


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; empty dictionaries are leaves too, so that they come back."""
    for key, value in tree.items():
        path = f"{prefix}{SEPARATOR}{key}" if prefix else key
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def save(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree so that the file is either the old one or the whole new one, also after a power cut."""
    flat = list(leaves(tree))
    tensors = {k: v.detach().cpu().contiguous() for k, v in flat if isinstance(v, Tensor)}
    plain = {k: v for k, v in flat if not isinstance(v, Tensor)}
    # safetensors sorts its keys, and writes more than one entry of metadata in any order
    metadata = {"plain": json.dumps(plain | {_ORDER: [k for k, _ in flat]})}
    durable.write(path, _serialize(tensors, metadata))


def _serialize(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Iterator[bytes | memoryview]:
    """The bytes of safetensors' own `save`, piece by piece, so that nobody holds it whole."""
    none = to_bytes({k: v.new_empty(0) for k, v in tensors.items()}, metadata=metadata)
    head, end = parse_json(none[8:]), 0  # the order and the names of types are the library's
    order = [name for name in head if name in tensors]
    for name in order:
        begin, end = end, end + tensors[name].nbytes
        head[name] |= {"shape": list(tensors[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield tensors[name].flatten().view(torch.uint8).numpy().data


def load(path: Path) -> Tree:
    """Read a tree; raises UserError where the file is damaged."""
    tree: Tree = {}
    try:
        with safe_open(path, framework="pt") as file:
            plain = parse_json((file.metadata() or {}).get("plain", "{}"))
            order = plain.pop(_ORDER, ())
            flat = {k: file.get_tensor(k) for k in file.keys()} | plain  # noqa: SIM118
            flat = {k: flat[k] for k in order if k in flat} | flat
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be read: {error}", hint="delete it to start the simulation again"
        ) from error
    for key, value in flat.items():
        *folders, name = key.split(SEPARATOR)
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[name] = value
    return tree


def to_numpy(payload: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Copies of the tensors as arrays."""
    return {k: v.detach().cpu().numpy().copy() for k, v in payload.items()}


def finite(payload: Mapping[str, Tensor], counted: str = "") -> bool:
    """True where no array holds an infinity or NaN, and that named `counted` counts something, none below 0."""
    counts = payload.get(counted)
    if counts is not None and counts.numel() and (bool((counts < 0).any()) or not bool(counts.any())):
        return False
    # From their ends, which are NaN where anything is: isfinite of each number takes six times as long
    some = (v for v in payload.values() if v.is_floating_point() and v.numel())
    ends = [end.double() for v in some for end in torch.aminmax(v)]
    return not ends or bool(torch.stack(ends).isfinite().all())


def size_bytes(payload: Mapping[str, Tensor]) -> int:
    return sum(v.numel() * v.element_size() for v in payload.values())
