"""From texts and labels to checked arrays of tokens, and the public text that vocabularies are chosen by."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.hf_folder import read_folder_tokenizer
from fedaudit.fl.data.tokenizer import LEAST, Tokenizer, learn_tokenizer, read_tokenizer
from fedaudit.fl.data.tokens import Canary
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

HELP = "Python's help pages"


@settings
class TextConfig:
    """Settings that all data sets of text share."""

    length: AtLeastOne = Field(default=48, description="tokens of an example; longer texts are cut off")
    vocabulary: int = Field(
        default=4000, ge=LEAST, le=1_000_000, description="pieces of the vocabulary, where no tokenizer is given"
    )
    tokenizer: str | None = Field(
        default=None,
        description="path of a tokenizer.json, or of a folder of Hugging Face's format, read as data; "
        "null: pieces chosen by text",
    )
    vocabulary_from: Literal["public", "clients"] = Field(
        default="public",
        description="the text that pieces are chosen by: Python's help pages, or the data set's own, which then "
        "tells of its people",
    )


@cache
def read_help_pages() -> dict[str, str]:
    """Title -> text of Python's help pages, as this Python has them."""
    from pydoc_data.topics import topics

    return dict(sorted(topics.items()))


def make_tokenizer(config: TextConfig, texts: Sequence[str], title: str) -> Tokenizer:
    """The tokenizer that the settings name."""
    if config.tokenizer is not None:
        is_folder = Path(config.tokenizer).expanduser().is_dir()
        return (read_folder_tokenizer if is_folder else read_tokenizer)(config.tokenizer)
    if config.vocabulary_from == "clients":
        return learn_tokenizer(texts, config.vocabulary, title, private=True)
    return _learn_from_help(config.vocabulary)


@cache
def _learn_from_help(size: int) -> Tokenizer:
    return learn_tokenizer(read_help_pages().values(), size, HELP)


def make_data(
    config: TextConfig,
    title: str,
    texts: Sequence[str],
    labels: NDArray[np.int64],
    owner: NDArray[np.int64] | None,
    classes: tuple[str, ...],
    test_fraction: float,
    about: str,
    canaries: tuple[Canary, ...] = (),
) -> Data:
    """Texts as tokens; all texts of some owners, or some texts where none are named, are the test part.

    The split belongs to the data set, so it does not depend on the run's seed. The texts of a canary's owner
    stay in the training part.
    """
    tokenizer = make_tokenizer(config, texts, title)
    everything = Arrays(x=tokenizer.encode(texts, config.length), y=labels, owner=owner)
    groups = np.arange(len(texts)) if owner is None else owner
    kept = {c.owner for c in canaries}
    choice = np.array([g for g in np.unique(groups) if g not in kept], np.int64)
    chosen = np.random.RandomState(0).permutation(choice)[: round(test_fraction * len(choice))]
    is_test = np.isin(groups, chosen)
    if not is_test.any() or is_test.all():
        raise UserError(
            f"{title}: test_fraction {test_fraction:g} of {len(choice)} people or texts leaves a part empty",
            hint="give more texts, or another test_fraction",
        )
    train, test = (everything.take(np.flatnonzero(rows)) for rows in (~is_test, is_test))
    return Data(train=train, test=test, classes=classes, about=about, schema=tokenizer.tokens, canaries=canaries)
