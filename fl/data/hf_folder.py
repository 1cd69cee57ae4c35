"""A local folder in the format of Hugging Face's transformers: config.json, *.safetensors, tokenizer.json.

Everything in it is read as data: numbers, names and lists. No code of a folder's is run, nothing is unpickled and
nothing is downloaded. The libraries `transformers` and `tokenizers` build networks and cut texts; they are an
extra (`pip install fedaudit[transformers]`), and are imported where a folder is named.

Here the id 0 is padding. In a folder any id may be, or none; then the end of a text is padding too, as in most
programs that train such models. So the id of padding and 0 change places: in the list of pieces, and in the rows
of the embedding and of the head. All other ids are the folder's.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.data.tokenizer import Tokenizer
from fedaudit.fl.data.tokens import Tokens
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.special_files import refuse_special
from fedaudit.fl.runtime.strict_json import parse_json

ARCHITECTURES = ("gpt2", "gpt_neox", "llama", "mistral", "opt", "qwen2", "qwen3")  # causal, from token to token
TOKENS = ("tokenizer.json", "tokenizer_config.json")
CODE = ("auto_map", "custom_pipelines")  # keys that name code of a folder's own
SPACES = ("\u2581", "\u0120")  # what begins a word, of SentencePiece and of pieces of bytes


@dataclass(frozen=True)
class HFFolder:
    """What a folder says of its model; `open_folder` has checked it."""

    path: Path
    config: Mapping[str, Any]
    ends: Mapping[str, Any]  # of tokenizer_config.json: tokens by their role

    @property
    def kind(self) -> str:
        return str(self.config["model_type"])

    @property
    def rows(self) -> int:
        """Ids that the network knows."""
        return int(self.config["vocab_size"])

    @cached_property
    def tokenizer(self) -> Any:
        return _read_tokenizer_file(self.path / "tokenizer.json")

    @cached_property
    def end(self) -> int:
        """The folder's id of what ends a text."""
        found = self._find_id("eos_token")
        if found is None:
            raise UserError(
                f"{self.path} does not say which token ends a text",
                hint="eos_token of tokenizer_config.json, or eos_token_id of config.json",
            )
        return found

    @cached_property
    def padding(self) -> int:
        """The folder's id of what stands behind a text: the end's, where it names none."""
        found = self._find_id("pad_token")
        return self.end if found is None else found

    def _find_id(self, role: str) -> int | None:
        token = self.ends.get(role)
        token = token.get("content") if isinstance(token, Mapping) else token
        found = self.tokenizer.token_to_id(token) if isinstance(token, str) else self.config.get(f"{role}_id")
        found = found[0] if isinstance(found, list) and found else found
        return found if isinstance(found, int) and 0 <= found < self.rows else None

    def swap(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids of the folder's as ours, or ours as the folder's: padding and 0 change places."""
        return np.where(ids == 0, self.padding, np.where(ids == self.padding, 0, ids))

    def list_pieces(self) -> tuple[str, ...]:
        """A piece for each row of the embedding, by our ids; ## begins those that go on a word."""
        words = self.tokenizer.get_vocab(with_added_tokens=True)
        special = {t.content for t in self.tokenizer.get_added_tokens_decoder().values()}
        pieces = [f"<unused {i}>" for i in range(self.rows)]
        for word, i in words.items():
            if i >= self.rows:
                raise UserError(
                    f"{self.path}: tokenizer.json has the id {i}, and the network {self.rows} rows",
                    hint="tokenizer.json and config.json are of two models",
                )
            pieces[i] = word if word in special else _write_piece(word)
        return tuple(pieces[i] for i in self.swap(np.arange(self.rows)).tolist())


@dataclass(frozen=True)
class FolderTokenizer(Tokenizer):
    """Cuts texts as the folder's own tokenizer does, without a beginning."""

    folder: HFFolder

    def cut(self, text: str) -> list[int]:
        ids = self.folder.tokenizer.encode(text, add_special_tokens=False).ids
        return [int(i) for i in self.folder.swap(np.array(ids, np.int64))]


def open_folder(path: str) -> HFFolder:
    """A folder whose config.json is of an architecture that is read; raises UserError for any other."""
    folder = Path(path).expanduser()
    refuse_special(folder)
    return _open_folder(path, folder, tuple(_read_time(folder / n) for n in ("config.json", *TOKENS)))


def _read_time(file: Path) -> int:
    """When a file last changed; 0 where there is none."""
    return file.stat().st_mtime_ns if file.is_file() else 0


@cache
def _open_folder(path: str, folder: Path, changed: tuple[int, ...]) -> HFFolder:  # noqa: ARG001
    config = _read_json(folder / "config.json", path)
    if config is None:
        raise UserError(f"{path} holds no config.json", hint="the folder that save_pretrained() wrote")
    ends = _read_json(folder / "tokenizer_config.json", path) or {}
    if key := next((k for k in CODE if k in config or k in ends), ""):
        raise UserError(
            f"{path} brings code of its own ({key}), which is not run",
            hint="write the network as a class of yours, and name it module:Class",
        )
    if config.get("model_type") not in ARCHITECTURES:
        raise UserError(
            f"{path} holds a {config.get('model_type')!r:.60}, which is not read",
            hint=f"read are {', '.join(ARCHITECTURES)}; write another as a class of yours, module:Class",
        )
    if "quantization_config" in config:
        raise UserError(f"{path} holds rounded weights, which are not read", hint="give the weights as trained")
    if not isinstance(config.get("vocab_size"), int) or config["vocab_size"] < 2:
        raise UserError(f"{path}: config.json has no vocab_size", hint="the folder that save_pretrained() wrote")
    return HFFolder(folder, config, ends)


def read_folder_tokenizer(path: str) -> FolderTokenizer:
    """The tokenizer of a folder; raises UserError where it has none that can be read."""
    folder = open_folder(path)
    end = int(folder.swap(np.array(folder.end)))
    origin = "the model's own tokenizer"
    return FolderTokenizer(Tokens(pieces=folder.list_pieces(), origin=origin, end=end, folder=path), folder)


def open_tokenizer(tokens: Tokens) -> Tokenizer:
    """What cuts texts into these pieces."""
    return read_folder_tokenizer(tokens.folder) if tokens.folder else Tokenizer(tokens)


def import_extra(name: str) -> Any:
    """`transformers` or `tokenizers`, which never reach for a network; raises UserError where it is absent."""
    for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[key] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads do not survive the fork of a worker
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"folders of Hugging Face's format are read by {name}, which is not installed",
            hint="pip install 'fedaudit[transformers]'",
        ) from error


def _read_tokenizer_file(file: Path) -> Any:
    tokenizers = import_extra("tokenizers")
    try:
        return tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises Exception itself
        raise UserError(
            f"{file} cannot be read: {error!s:.200}",
            hint="save_pretrained() of a fast tokenizer writes tokenizer.json",
        ) from error


def _read_json(file: Path, where: str) -> dict[str, Any] | None:
    """None where there is no such file."""
    try:
        content = parse_json(file.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("no object")
        return content
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{where}: {file.name} cannot be read: {error!s:.200}", hint="the folder that save_pretrained() wrote"
        ) from error


def _write_piece(word: str) -> str:
    """A piece of the library's with a space in front, or inside of a word, as ours."""
    begins = word.startswith(SPACES)
    text = _read_bytes(word[1:] if begins else word)
    shown = "".join(c if c.isprintable() and c != " " else f"<0x{ord(c):02X}>" for c in text)
    return (shown or "<0x20>") if begins else "##" + shown


def _read_bytes(word: str) -> str:
    """Text of a piece whose characters stand for bytes, as in GPT-2; other text as it is."""
    table = _list_byte_signs()
    if not all(c in table for c in word):
        return word
    return bytes(table[c] for c in word).decode("utf-8", errors="backslashreplace")


@cache
def _list_byte_signs() -> dict[str, int]:
    """The sign that GPT-2's tokenizer writes for each byte (Radford et al. 2019, encoder.py)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
