"""Digests of the data that a run is made from, and of who holds which examples: SHA-256, in hexadecimal."""

import hashlib
from typing import Any

import numpy as np

from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.population import Population


def of_data(data: Data) -> str:
    """Every example with its label and owner, and how models see them."""
    seen = hashlib.sha256(repr((data.classes, data.mean, data.std, data.augment)).encode())
    if data.columns is not None:
        seen.update(repr(data.columns).encode())
    for part in (data.train, data.test):
        for array in (part.x, part.y, part.owner):
            _add(seen, array)
    return seen.hexdigest()


def of_population(population: Population) -> str:
    """Which examples every client holds, and which were held out for whom."""
    seen = hashlib.sha256()
    held_out = population.auxiliary, population.reference, population.server
    for index in (*population.parts, *population.own, *held_out):
        _add(seen, index)
    return seen.hexdigest()


def _add(seen: Any, array: Any) -> None:
    values = np.zeros(0) if array is None else np.ascontiguousarray(array)
    seen.update(f"{values.dtype.str} {values.shape};".encode())
    seen.update(values.data if values.size else b"")
