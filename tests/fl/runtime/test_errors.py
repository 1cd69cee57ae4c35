"""Errors for users: whatever a subclass of somebody's own does, there is a sentence and a hint."""

import pickle
import re
from pathlib import Path

import pytest

from fedaudit.audit.settings.errors import locate_errors
from fedaudit.fl.runtime.errors import UserError, describe_unexpected, find_place, quote_error
from fedaudit.fl.runtime.shared_pipe import make_portable


class Wordless(UserError):
    """No clients were left."""

    def __init__(self) -> None:  # without its base's
        pass


class Bare(UserError):
    def __init__(self) -> None:
        Exception.__init__(self)


def test_an_error_is_quoted_in_one_line_and_without_its_hint() -> None:
    assert quote_error(UserError("x is 3, expected 2", hint="write 2")) == "x is 3, expected 2"
    assert quote_error(RuntimeError("shapes differ\n  at layer 2")) == "shapes differ at layer 2"


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


def raise_in(folder: Path, text: str, name: str = "somebodys") -> Exception:
    """What a file of somebody's own raises when it is run."""
    path = folder / f"{name}.py"
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), {})
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def test_the_line_that_raised_an_error_is_named_whoever_called_it(tmp_path: Path) -> None:
    own = raise_in(tmp_path, "import json\n\njson.loads('no')\n")
    assert find_place(own) == "somebodys.py, line 3"
    sentence, hint = describe_unexpected(own)
    assert "somebodys.py, line 3" in sentence and "what that line was given" in hint and "report" not in hint


def test_a_fault_of_ours_is_not_told_as_that_of_the_program_that_called_us(tmp_path: Path) -> None:
    ours = raise_in(
        tmp_path, "from fedaudit.fl.training.batches import split_into_batches\nsplit_into_batches(3, None)\n"
    )
    assert find_place(ours) == ""
    assert "please report it" in describe_unexpected(ours)[1]


def test_the_line_travels_with_the_error_to_another_process(tmp_path: Path) -> None:
    own = raise_in(tmp_path, "raise ValueError('mine')\n")
    there = pickle.loads(pickle.dumps(make_portable(own)))
    assert there.__traceback__ is None and find_place(there) == "somebodys.py, line 1"
    wild = raise_in(
        tmp_path, "class Odd(Exception):\n    pass\nraise Odd('mine')\n"
    )  # no other process has its class
    assert find_place(pickle.loads(pickle.dumps(make_portable(wild)))) == "somebodys.py, line 3"
