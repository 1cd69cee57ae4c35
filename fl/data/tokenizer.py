"""From text to token ids: words, and below them pieces of two characters, so that every name can be written.

The list of pieces is public knowledge: whoever has the model has it. It must therefore be chosen by public text
alone; one chosen by clients' text tells which words they use. A user's `tokenizer.json` is read as data: lists
and numbers, of which nothing is executed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.data.tokens import Tokens
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

PADDING, END = "<pad>", "<eos>"
CHUNK = re.compile(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]")  # words, digits one by one, signs one by one
PRINTABLE = [chr(i) for i in range(33, 127)]
BYTES = [f"<0x{i:02X}>" for i in range(128, 256)]  # of characters beyond ASCII, in UTF-8
LEAST = 2 + 2 * len(PRINTABLE) + 2 * len(BYTES)  # pieces that every vocabulary has
MOST_KNOWN = 50_000  # words of which a tokenizer keeps the ids
PAIRS = 0.4  # of the rest, the share of pieces of two letters; words have what is left


@dataclass(frozen=True)
class Tokenizer:
    """Cuts text into the pieces of a vocabulary, the longest first; a piece inside of a word begins with ##."""

    tokens: Tokens

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.tokens.pieces)}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.tokens.pieces))

    @cached_property
    def _word_ids(self) -> dict[str, list[int]]:
        """Ids of words that were cut before: a text has few words, and those again and again."""
        return {}

    def cut(self, text: str) -> list[int]:
        """Ids of a text, without an end; spaces only part words."""
        out: list[int] = []
        for run in text.split():
            for i, chunk in enumerate(CHUNK.findall(run)):
                mark = "##" if i else ""
                ids = self._word_ids.get(mark + chunk)
                if ids is None:
                    ids = self._cut_chunk(chunk, mark)
                    if len(self._word_ids) < MOST_KNOWN:
                        self._word_ids[mark + chunk] = ids
                out += ids
        return out

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int64]:
        """[N, length] ids of texts, each with an end, cut off or padded to `length`."""
        x = np.full((len(texts), length), self.tokens.padding, np.int64)
        for row, text in zip(x, texts, strict=True):
            ids = [*self.cut(text)[: length - 1], self.tokens.end]
            row[: len(ids)] = ids
        return x

    def _cut_chunk(self, chunk: str, mark: str) -> list[int]:
        out: list[int] = []
        at = 0
        while at < len(chunk):
            for n in range(min(len(chunk) - at, self._longest), 0, -1):
                found = self._ids.get(mark + chunk[at : at + n])
                if found is not None:
                    out.append(found)
                    break
            else:
                n = 1
                parts = [f"<0x{b:02X}>" for b in chunk[at].encode()]
                signs = [mark + parts[0], *("##" + p for p in parts[1:])]
                if self.tokens.unknown is not None and not self._ids.keys() >= {*signs}:
                    return [self.tokens.unknown]
                out += [self._ids[p] for p in signs]
            at, mark = at + n, "##"
        return out


def learn_tokenizer(texts: Iterable[str], size: int, origin: str, private: bool = False) -> Tokenizer:
    """A tokenizer of `size` pieces: single characters, then the most frequent pairs and words of some text.

    Ties are broken by the alphabet, so that the same text gives the same pieces.
    """
    if size < LEAST:
        raise UserError(f"a vocabulary has at least {LEAST} pieces, got {size}", hint="4000 suits small models")
    words, pairs = Counter[str](), Counter[str]()
    for text in texts:
        words.update(w for w in CHUNK.findall(text) if len(w) > 2)
    for word, n in words.items():
        for i in range(0, len(word) - 1, 2):
            pairs[("##" if i else "") + word[i : i + 2]] += n
    pieces = [PADDING, END, *PRINTABLE, *("##" + c for c in PRINTABLE), *BYTES, *("##" + b for b in BYTES)]
    pieces += _list_first(pairs, int(PAIRS * (size - LEAST)))
    pieces += _list_first(words, size - len(pieces))
    return Tokenizer(Tokens(pieces=tuple(pieces), origin=origin, private=private))


def _list_first(counted: Counter[str], most: int) -> list[str]:
    return sorted(counted, key=lambda word: (-counted[word], word))[:most]


def read_tokenizer(path: str) -> Tokenizer:
    """A user's `tokenizer.json` with a WordPiece or word-level vocabulary; raises UserError for another.

    Only its list of pieces is used: text is cut as by ours, the longest piece first.
    """
    file = Path(path).expanduser()
    try:
        content: Any = parse_json(file.read_bytes())
        model = content["model"]
        kind, vocabulary = str(model.get("type", "WordPiece")), dict(model["vocab"])
        numbered = sorted(vocabulary, key=lambda piece: int(vocabulary[piece]))
        if [int(vocabulary[p]) for p in numbered] != list(range(len(numbered))):
            raise ValueError("ids are not 0, 1, 2, ...")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is no tokenizer.json: {error!r:.200}", hint='it has "model": {"vocab": {piece: id}}'
        ) from error
    if kind not in ("WordPiece", "WordLevel"):
        raise UserError(
            f"{path} holds a tokenizer of type {kind!r:.40}, expected WordPiece or WordLevel",
            hint="others are read of the folder that holds a model's config.json too: name the folder",
        )
    end = next((n for n in ("[SEP]", "</s>", "<eos>", "<|endoftext|>") if n in vocabulary), None)
    padding = next((n for n in ("[PAD]", "<pad>") if n in vocabulary), None)
    if end is None or padding is None or vocabulary[padding] != 0:
        raise UserError(
            f"{path} has no piece that ends a text, or its id 0 is no padding",
            hint="[PAD] or <pad> with id 0, and [SEP], </s> or <eos>",
        )
    missing = [c for c in (*PRINTABLE, *BYTES) if c not in vocabulary or "##" + c not in vocabulary]
    unknown = next((int(vocabulary[n]) for n in ("[UNK]", "<unk>") if n in vocabulary), None)
    if unknown is None and missing:
        raise UserError(
            f"{path} has neither {missing[0]!r} nor a piece for what is unknown", hint="add [UNK] or <unk>"
        )
    return Tokenizer(
        Tokens(
            pieces=tuple(numbered), origin=f"the user's {file.name}", end=int(vocabulary[end]), unknown=unknown
        )
    )
