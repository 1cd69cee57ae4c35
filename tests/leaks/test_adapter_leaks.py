"""Adapters that leak do leak, and what a reviewer is told of them; `tests.leaks.adapter_runs` has the book."""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports.result import Finding
from tests.leaks.adapter_runs import CLEAN, LEAKS, accuse, clean, find, honest, leaking

OF_TEXT = ("private_vocabulary", "text_unit", "sparse_noise", "adapter_reach", "hidden_texts")
REFUSED = {"one array in clear"}  # a method whose clients use data outside of training, under dp_sgd
# no finding of medium severity names them: a full rank is no leak by itself, and planted secrets are nobody's
UNNAMED = {"full rank", "canaries sixteen times"}
PLAYED = ("untrained_adapters", "adapter_rows", "full_rank")


@cache
def _check(text: str) -> Mapping[str, Finding]:
    settings = Config.model_validate_json(text)
    with tempfile.TemporaryDirectory() as folder, sharing():
        run = RunDir.create(Path(folder) / "run")
        execute(run, settings, ("simulate",), lambda *_: None, skip_finished=True)
        case = open_case(run, settings)
        lab, checks = Lab.from_case(case), [catalog.load("checks", n)() for n in (*OF_TEXT, *PLAYED)]
        results = [r for check in checks for r in check.check(case, lab).results]
    return {r.id: r for r in results}


def check(settings: Config) -> Mapping[str, Finding]:
    """What checks of texts and adapters say of a federation that really ran, on a very small model."""
    small = settings.model_dump(mode="json")
    small["federation"]["model"] |= {"dim": 16, "layers": 1, "heads": 2}
    if small["federation"].get("base"):
        small["federation"]["base"] = 1
    rank = small["federation"]["adapters"]
    rank["rank"] = min(rank["rank"], 16)
    return _check(Config.model_validate(small).model_dump_json())


def test_there_are_eight_and_each_has_an_honest_relative_and_four_are_clean() -> None:
    assert len(LEAKS) >= 8 and len(CLEAN) >= 4
    assert all(leaking(leak) != honest(leak) for leak in LEAKS.values())
    assert all(clean(one).federation.adapters for one in CLEAN.values())


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("noise on touched rows", "sparse-noise"),
        ("text in unused numbers", "hidden-texts"),
        ("text in unused numbers", "untrained-adapters"),
        ("canaries sixteen times", "adapters-within-reach"),
    ],
)
def test_a_check_names_it_in_a_whole_run(name: str, id: str) -> None:
    assert id in check(leaking(LEAKS[name]))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("noise on touched rows", "sparse-noise"),
        ("private vocabulary", "private-vocabulary"),
        ("text in unused numbers", "hidden-texts"),
        ("full rank", "full-rank-adapters"),
        ("last round on one note", "adapter-rows"),
        ("frozen rows", "untrained-adapters"),
        ("seeded by count", "untrained-adapters"),
        ("rank by count", "untrained-adapters"),
    ],
)
def test_a_check_names_it_in_a_whole_run_and_not_beside_it(name: str, id: str) -> None:
    assert id in check(leaking(LEAKS[name]))
    assert id not in check(honest(LEAKS[name]))


def test_checks_say_nothing_of_the_honest_relative() -> None:
    assert not check(honest(LEAKS["text in unused numbers"]))


def test_steps_that_are_private_in_name_are_refused_before_they_run() -> None:
    with pytest.raises(UserError, match="its clients use their data outside of local training"):
        check(leaking(LEAKS["one array in clear"]))


@pytest.mark.nightly
def test_adapters_within_reach_are_named_in_a_whole_run_and_where_they_are_summed_nobody_is() -> None:
    assert "adapters-within-reach" in check(honest(LEAKS["canaries sixteen times"]))
    assert "adapters-within-reach" not in check(clean(CLEAN["summed over many"]))


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(CLEAN))
def test_checks_say_nothing_of_a_clean_one(name: str) -> None:
    assert not check(clean(CLEAN[name]))


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(LEAKS.keys() - REFUSED - UNNAMED))
def test_a_whole_audit_names_the_cause(name: str) -> None:
    assert find(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(CLEAN))
def test_a_whole_audit_accuses_no_clean_one(name: str) -> None:
    assert not accuse(name)
