"""JSONL: your own texts, one JSON object a line: {"text": "...", "label": "...", "owner": "..."}.

`label` and `owner` may be left out, in all lines or in none; without labels all texts are of one class, which a
language model does not ask for. Everything is read as data.
"""

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._texts import TextConfig, make_data
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.strict_json import parse_json


class JSONL(Dataset):
    title = "Texts of your own"
    source = ""

    @settings
    class Config(TextConfig):
        path: str = Field(description="file with one JSON object a line: text, and perhaps label and owner")
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the owners, or of the texts, that is held out for testing"
        )

    def load(self) -> Data:
        lines = read_lines(Path(self.config.path).expanduser())
        labels, owners = ([line.get(key) for line in lines] for key in ("label", "owner"))
        for key, given in (("label", labels), ("owner", owners)):
            if None in given and any(v is not None for v in given):
                raise UserError(
                    f"{self.config.path}: line {given.index(None) + 1} has no {key}, and others have one",
                    hint=f"give every line a {key}, or none",
                )
        classes, y = np.unique([str(v) for v in labels], return_inverse=True)
        owner = None if None in owners else np.unique([str(v) for v in owners], return_inverse=True)[1]
        return make_data(
            self.config,
            self.title,
            [line["text"] for line in lines],
            y.astype(np.int64),
            None if owner is None else owner.astype(np.int64),
            ("text",) if None in labels else tuple(map(str, classes)),
            self.config.test_fraction,
            "The texts of a file.",
        )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, each with a text; raises UserError naming the line that has none."""
    try:
        raw = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", hint="one JSON object a line, in UTF-8") from error
    found: list[dict[str, Any]] = []
    for number, line in enumerate(raw, 1):
        if not line.strip():
            continue
        try:
            content = parse_json(line)
            if not isinstance(content["text"], str):
                raise ValueError("its text is none")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: line {number} is no object with a text: {error!r:.200}",
                hint='{"text": "...", "label": "...", "owner": "..."}',
            ) from error
        found.append(content)
    if not found:
        raise UserError(f"{path} holds no text", hint="one JSON object a line")
    return found
