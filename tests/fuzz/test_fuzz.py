"""Changed folders, configs, claims and data files: a sentence and an exit code, never a traceback or a hang.

The same cases every time; the long run draws others (`make fuzz`). What once failed is kept in corpus/.
"""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedaudit.audit.cli.app import app
from tests.fuzz import cases
from tests.fuzz.child import command, ended, guarded

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.yaml"))
ALL = list(HealthCheck)


def fixed(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=ALL,
    )


@fixed(12)
@given(cases.folders)
def test_a_changed_folder_ends_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@pytest.mark.nightly
@fixed(10)
@given(cases.inboxes)
def test_a_changed_inbox_ends_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@fixed(8)
@given(cases.configs)
def test_a_changed_config_ends_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@fixed(8)
@given(cases.data | cases.claims | cases.terms)
def test_changed_data_claims_and_terms_end_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@pytest.mark.nightly
@fixed(200)
@given(cases.folders)
def test_200_changed_folders_end_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@pytest.mark.nightly
@fixed(150)
@given(cases.inboxes)
def test_150_changed_inboxes_end_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@pytest.mark.nightly
@fixed(100)
@given(cases.configs | cases.claims | cases.terms | cases.data)
def test_100_changed_configs_claims_terms_and_data_end_with_a_sentence(case: dict[str, object]) -> None:
    assert cases.play(case) == ""


@pytest.mark.dear("kept3")
@pytest.mark.parametrize("kept", [(p.name, i) for p in CORPUS for i in range(len(cases.readable(p)))])
def test_what_once_failed_ends_with_a_sentence(kept: tuple[str, int]) -> None:
    name, number = kept
    assert cases.play(cases.readable(Path(__file__).parent / "corpus" / name)[number]) == ""


@pytest.mark.dear("<lambda>-MiB")
@pytest.mark.parametrize(
    ("act", "phrase"),
    [
        (lambda: print("error: unexpected KeyError"), "it says 'unexpected KeyError'"),
        (lambda: 1 / 0, "it says 'Traceback'"),
        (lambda: os._exit(7), "exit code 7"),
        (lambda: os.abort(), "exit code -6"),
        (lambda: print("\x1b[2J"), "it says '\\x1b'"),
        (lambda: socket.getaddrinfo("localhost", 1), "it says 'unexpected Network'"),
        (
            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", 9)),
            "it says 'unexpected Network'",
        ),
        (lambda: Path("../beside").write_text(""), "it says 'unexpected Write'"),
        (lambda: Path("inside").write_text(""), ""),
        (lambda: bytearray(b"1") * (9 << 28), "MiB"),
    ],
)
def test_the_harness_sees_what_must_not_happen(act: object, phrase: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    fault = ended(act, tmp_path / "here").fault()  # type: ignore[arg-type]
    assert phrase in fault if phrase else not fault


def test_the_harness_sees_what_is_written_outside(tmp_path: Path) -> None:
    with guarded(tmp_path, "target") as outside:
        ended(lambda: Path("mine.txt").write_text("yours") and None, tmp_path)
    assert outside == [str(tmp_path / "mine.txt")]


def test_an_unchanged_folder_is_decided(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(cases._bases() / "folder", tmp_path / "target")
    assert app is not None and ended(command("check", "target"), tmp_path).code in (0, 1, 3)


def test_strategies_draw_every_kind_of_change() -> None:
    drawn: set[str] = set()

    @fixed(300)
    @given(st.one_of(cases.folders))
    def look(case: dict[str, object]) -> None:
        drawn.update(c[0] for c in case["changes"])  # type: ignore[attr-defined]

    look()
    assert drawn == set(cases.CHANGES)
