"""Text folder: your own texts, one folder a class: path/CLASS/anything.txt, in UTF-8."""

from pathlib import Path

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._texts import TextConfig, make_data
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings


class TextFolder(Dataset):
    title = "Texts of your own"
    source = ""

    @settings
    class Config(TextConfig):
        path: str = Field(description="folder that holds one folder of .txt files for each class")
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the texts that is held out for testing"
        )

    def load(self) -> Data:
        root = Path(self.config.path).expanduser()
        files = sorted(root.glob("*/*.txt"))
        if not files:
            raise UserError(
                f"{root} is not a folder of texts", hint="it needs one folder a class, each with .txt files"
            )
        try:
            texts = [file.read_text(encoding="utf-8") for file in files]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"a text below {root} cannot be read: {error}", hint="save it in UTF-8") from error
        classes, y = np.unique([file.parent.name for file in files], return_inverse=True)
        return make_data(
            self.config,
            self.title,
            texts,
            y.astype(np.int64),
            None,  # nobody says whose they are
            tuple(map(str, classes)),
            self.config.test_fraction,
            "The texts of a folder.",
        )
