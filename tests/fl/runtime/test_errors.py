"""Errors for users: whatever a subclass of somebody's own does, there is a sentence and a hint."""

import pickle
import re
from pathlib import Path

import pytest

from fedaudit.audit.settings.errors import locate_errors
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.shared_pipe import make_portable


class Wordless(UserError):
    """No clients were left."""

    def __init__(self) -> None:  # without its base's
        pass


class Bare(UserError):
    def __init__(self) -> None:
        Exception.__init__(self)


@pytest.mark.parametrize("kind", [Wordless, Bare])
def test_an_error_without_words_is_named_and_travels_with_no_traceback(kind: type[UserError]) -> None:
    error = kind()  # type: ignore[call-arg]
    assert str(error) == error.sentence == kind.__name__ and error.hint == error.key == ""
    for of_another in (make_portable(error), pickle.loads(pickle.dumps(make_portable(error)))):
        assert kind.__name__ in str(of_another)
    with pytest.raises(UserError, match=f"a.yaml: {kind.__name__}"), locate_errors(Path("a.yaml")):
        raise error


def test_nobody_reads_the_words_of_an_error_by_their_place() -> None:
    """`args` may be empty: `sentence` is what it says."""
    root = Path(__file__).parents[3]
    code = [p for folder in ("fl", "audit", "attacks", "reports") for p in (root / folder).rglob("*.py")]
    lines = [(p.name, line) for p in code for line in p.read_text().splitlines()]
    found = [
        (name, line) for name, line in lines if re.search(r"(error|missing)\.args\[0\](?! if error\.args)", line)
    ]
    assert len(code) > 400 and found == []
