"""Gamma-similarity: sorted by label, dealt out, and clients that hold random examples."""

import numpy as np
import pytest

from fedaudit.fl.data.partition import OwnedLabels, histogram, overlaps
from fedaudit.fl.partitions.gamma_similarity import GammaSimilarity
from fedaudit.fl.runtime.errors import UserError

LABELS = np.arange(1000) % 10


def split(clients: int = 10, **settings: object) -> list[np.ndarray]:
    rule = GammaSimilarity(GammaSimilarity.Config(**settings))  # type: ignore[arg-type]
    return rule.split(OwnedLabels(LABELS, 10), clients, np.random.default_rng(1))


def test_without_similarity_each_of_ten_clients_holds_one_class() -> None:
    assert (histogram(LABELS, split(), 10) == 100 * np.eye(10, dtype=int)).all()


def test_with_full_similarity_every_client_holds_every_class() -> None:
    assert (histogram(LABELS, split(gamma=1.0), 10) > 0).all()


def test_half_is_dealt_out_and_the_other_half_sorted() -> None:
    counts = histogram(LABELS, split(gamma=0.5), 10)
    assert (counts.sum(1) == 100).all() and (counts.max(1) >= 45).all() and (counts.max(1) <= 75).all()


def test_the_last_clients_hold_random_examples_and_all_are_as_large_and_share_none() -> None:
    parts = split(clients=20, mixed=10)
    counts = histogram(LABELS, parts, 10)
    assert (counts.sum(1) == 50).all() and overlaps(parts) == 0 and len(np.concatenate(parts)) == 1000
    assert ((counts[:10] > 0).sum(1) <= 3).all() and ((counts[10:] > 0).sum(1) >= 7).all()


def test_all_clients_mixed_is_refused() -> None:
    with pytest.raises(UserError, match="mixed must be below 10"):
        split(mixed=10)
