"""Where a config is wrong: the file's name and the line, before the sentence of fl/runtime/settings.py."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import check_settings, fields
from fedaudit.fl.runtime.yaml import line_of

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], data: Any, where: Path | str) -> M:
    """`data` as a `model`; raises UserError for the first thing wrong. `where`: the file, or whose data it is."""
    if not isinstance(data, Mapping):
        text = repr(data)
        shown = text if len(text) <= 60 else text[:57] + "..."
        found = "is empty" if data is None else f"holds {shown}, not keys with values"
        keys = fields(_choose_variant(model, {}))
        raise UserError(f"{where} {found}", hint=f"begin with one of: {', '.join(keys)}")
    with locate_errors(where):
        return check_settings(_choose_variant(model, data), data)


def _choose_variant(model: type[M], data: Mapping[str, Any]) -> type[M]:
    """The class of those that a model stands for that has these keys, where it stands for several."""
    choose: Callable[[Mapping[str, Any]], type[M]] | None = getattr(model, "choose_variant", None)
    return choose(data) if choose else model


@contextmanager
def locate_errors(where: Path | str | None) -> Iterator[None]:
    """Errors about a key of a file name the file and the key's line."""
    try:
        yield
    except UserError as error:
        line = line_of(where, error.key) if isinstance(where, Path) and error.key else None
        if where is None:
            raise
        if error.sentence.startswith(str(where)):  # located already
            raise
        place = f"{where}:{line}" if line else str(where)
        error.args, error.key = (f"{place}: {error.sentence}",), ""
        raise
