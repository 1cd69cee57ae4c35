"""Every partition: indices of examples that exist, repeatable from its stream, in plain words."""

import numpy as np
import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.contracts.words import odd

NAMES = catalog.names("partitions")
LABELS = np.arange(6000, dtype=np.int64) % 10
OWNERS = np.arange(6000, dtype=np.int64) // 300


def split(name: str, seed: int = 7, clients: int = 20) -> list[Index]:
    made: Partition = catalog.load("partitions", name)()
    clients = 2 if name == "two_halves" else clients
    return made.split(OwnedLabels(LABELS, 10, OWNERS), clients, Streams(seed).numpy("partition"))


@pytest.mark.parametrize("name", NAMES)
def test_every_client_gets_distinct_examples_that_exist(name: str) -> None:
    parts = split(name)
    assert len(parts) == (2 if name == "two_halves" else 20)
    for part in parts:
        assert part.dtype == np.int64 and len(np.unique(part)) == len(part)
        assert part.size == 0 or (part.min() >= 0 and part.max() < len(LABELS))
    assert sum(map(len, parts)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_same_stream_gives_the_same_parts(name: str) -> None:
    assert all(np.array_equal(a, b) for a, b in zip(split(name), split(name), strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_every_seed_leaves_somebody_with_data_or_is_refused(name: str, seed: int) -> None:
    try:
        parts = split(name, seed)
    except UserError as error:
        assert error.hint
    else:
        assert sum(len(p) > 0 for p in parts) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_does_in_plain_words(name: str) -> None:
    made: Partition = catalog.load("partitions", name)()
    text = made.describe()
    assert made.title and len(text.split()) >= 3 and not odd(text)
