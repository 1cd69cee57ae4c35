"""`fedaudit tools list`: little imported, the same from the index as from importing, and readable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedaudit.audit.cli.cards import card, cards_of, set_in_columns
from fedaudit.audit.settings import catalog, index
from fedaudit.audit.settings.index import Entry
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError

KINDS = list(catalog.SHELVES)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which every kind has been listed once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        for kind in KINDS:
            index.entries(kind, lambda kind=kind: catalog.entries(kind))  # type: ignore[misc]
    return folder


def never() -> list[Entry]:
    raise AssertionError("the plugins were imported")


@pytest.mark.parametrize("kind", KINDS)
def test_cards_from_the_index_are_those_from_importing(
    kind: str, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    found = index.entries(kind, never)
    assert found == catalog.entries(kind) and [e.name for e in found] == catalog.names(kind)


def test_messages_are_listed_with_arrays_whose_data_they_tell_of_and_what_a_sum_is() -> None:
    found, whole = cards_of("messages", [*KINDS, "messages"])
    assert [e.name for e in found] == [k.value for k in Kind] and not whole
    [one], whole = cards_of("proto_counts", [*KINDS, "messages"])
    assert whole and one.title == "how many examples are behind each prototype: a label histogram"
    assert one.text == "classes [c], counts [c]"
    assert one.more == {
        "kind": "message",
        "data of": "one client's examples of one class",
        "under secure aggregation": "added up class by class",
    }
    with pytest.raises(UserError, match="nor the name of a plugin or message"):
        cards_of("proto_count", [*KINDS, "messages"])


def imported(arguments: list[str], cache: Path) -> set[str]:
    """The modules that a command imports."""
    code = (
        "import sys\nfrom fedaudit.audit.cli.main import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.fixture(scope="module")
def helping(kept: Path) -> set[str]:
    return imported(["--help"], kept)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["models", "methods", "attacks"])  # the dearest to import
def test_a_list_imports_little_more_than_help_and_nothing_heavy(kind: str, kept: Path, helping: set[str]) -> None:
    listed = imported(["tools", "list", kind], kept)
    assert not {"torch", "torchvision", "numpy", "yaml", "rich.console"} & listed
    assert len(helping) < 250 and len(listed - helping) < 150


def test_a_changed_file_makes_the_cards_anew(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(index._state.cache_clear)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(index, "ROOT", tmp_path / "ours")
    (tmp_path / "ours" / "fl").mkdir(parents=True)
    source = tmp_path / "ours" / "fl" / "a.py"
    made: list[str] = []

    def make() -> list[Entry]:
        made.append(source.read_text())
        return [Entry(name="a", title=made[-1], source="", text="t")]

    def ask() -> list[Entry]:
        index._state.cache_clear()  # as a new process does
        return index.entries("methods", make)

    for text in ("1", "1", "22"):
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        assert [e.title for e in ask()] == [text]
    assert made == ["1", "22"]
    os.utime(source, ns=(1, 1))  # another time, the same size
    assert ask() and made == ["1", "22", "22"]
    (tmp_path / "ours" / "fl" / "b.py").write_text("")
    assert ask() and len(made) == 4
    (tmp_path / "ours" / "audit" / "policy").mkdir(parents=True)
    (tmp_path / "ours" / "audit" / "policy" / "default.yaml").write_text("rules: []")
    assert ask() and len(made) == 5
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "torch-99.0.dist-info").mkdir()
    assert ask() and len(made) == 6  # another version of something
    (tmp_path / "ours" / "audit" / "configs").mkdir()
    (tmp_path / "ours" / "audit" / "configs" / "a.yaml").write_text("seed: 7")
    assert ask() and len(made) == 6  # a config is no code


@pytest.mark.parametrize("content", ["", "{", "[]", '{"state": 1}', '{"entries": [{"name": 3}]}', "null"])
def test_a_damaged_index_is_made_anew(
    content: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = [Entry(name="a", title="A", source="", text="t", more={"needs": "x"})]
    assert index.entries("methods", lambda: one) == one
    [file] = (tmp_path / "fedaudit").iterdir()
    state = json.loads(file.read_text())["state"]
    for damaged in (content, json.dumps({"state": state, "entries": [{"name": 3, "more": []}]})):
        file.write_text(damaged)
        assert index.entries("methods", lambda: one) == one
    assert index.entries("methods", never) == one


def test_no_home_and_a_home_that_cannot_be_written_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    one = [Entry(name="a", title="A", source="", text="t")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    assert index.entries("methods", lambda: one) == one
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/proc/nobody")
    assert index.entries("methods", lambda: one) == one


def test_a_plugin_that_could_not_load_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    broken = [Entry(name="a", title="", source="", text="cannot be loaded: No module named 'x'")]
    assert index.entries("methods", lambda: broken) == broken
    whole = [Entry(name="a", title="A", source="", text="t")]
    assert index.entries("methods", lambda: whole) == whole


@pytest.mark.parametrize("width", [80, 100])
def test_cards_fit_the_terminal(width: int, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    for kind in KINDS:
        for entry in index.entries(kind, never):
            lines = list(card(entry, 26, width))
            assert lines[0].startswith(entry.name) and max(map(len, lines)) <= width
            assert "".join(" ".join(lines).split()).count("".join(entry.text.split())) == 1


def test_a_card_reads_from_top_to_bottom() -> None:
    entry = Entry(name="moon", title="MOON", source="a paper", text="pulls back.", more={"sends": "local_model"})
    assert list(card(entry, 8, 40)) == [
        "moon    MOON",
        "        pulls back.",
        "        sends: local_model",
        "        source: a paper",
    ]
    assert next(iter(card(entry, 5, 40))) == "moon"  # too long for the margin: a line of its own


def test_names_stand_in_as_many_columns_as_fit() -> None:
    assert set_in_columns(["a", "bbb", "cc", "d"], 9) == ["a    cc", "bbb  d"]
    assert set_in_columns(["a", "bbb", "cc", "d"], 13) == ["a  bbb  cc  d"]
    assert set_in_columns(["a", "bbb"], 2) == ["a", "bbb"] and set_in_columns([], 80) == []
    lines = set_in_columns(catalog.names("attacks"), 80)
    assert len(lines) < 24 + 4 and max(map(len, lines)) <= 80
    assert sorted(" ".join(lines).split()) == sorted(catalog.names("attacks"))
