"""Help pages: Python's own help texts, in windows of tokens. They come with every Python; nothing is downloaded.

The text that `help("if")` prints, which everybody has: public text to choose vocabularies by and to train base
models on. The label is the page. What the pages say changes a little from one version of Python to the next.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._texts import TextConfig, make_data, make_tokenizer, read_help_pages
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings


class HelpPages(Dataset):
    title = "Python's help pages"
    holds = "public"
    source = "pydoc_data.topics of CPython"

    @settings
    class Config(TextConfig):
        test_fraction: ProperShare = Field(default=0.1, description="share of the windows held out for testing")

    def load(self) -> Data:
        pages = read_help_pages()
        tokenizer = make_tokenizer(self.config, list(pages.values()), self.title)
        texts: list[str] = []
        labels: list[int] = []
        for label, text in enumerate(pages.values()):
            windows = _cut(text.split(), [len(tokenizer.cut(word)) for word in text.split()], self.config.length)
            texts, labels = texts + windows, labels + [label] * len(windows)
        return make_data(
            self.config,
            self.title,
            texts,
            np.array(labels, np.int64),
            None,
            tuple(pages),
            self.config.test_fraction,
            "Python's help pages, in windows of tokens.",
        )


def _cut(words: list[str], sizes: list[int], length: int) -> list[str]:
    """Windows of whole words with at most length - 1 tokens, so that none is cut off."""
    windows: list[list[str]] = [[]]
    room = length - 1
    for word, size in zip(words, sizes, strict=True):
        if size > room and windows[-1]:
            windows.append([])
            room = length - 1
        windows[-1].append(word)
        room -= size
    return [" ".join(w) for w in windows if w]
