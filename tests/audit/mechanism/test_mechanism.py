"""Mechanisms that are wrong are named by the question that can see it; right ones are left alone."""

import json
import os
import random
import re
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

import fedaudit as fa
from fedaudit.audit.cli.main import app
from fedaudit.audit.mechanism import game
from fedaudit.audit.mechanism.answers import Outcome, Promise
from fedaudit.audit.mechanism.bounds import bound_below
from fedaudit.audit.mechanism.check import MechanismCheck, play_questions
from fedaudit.audit.mechanism.report import render
from fedaudit.audit.plays.mechanism import Player
from fedaudit.audit.plays.sources import reach_sources
from fedaudit.reports.renderers.html import Html
from fedaudit.reports.renderers.sarif import Sarif
from tests.audit.mechanism.right_mechanisms import RIGHT, UNTOLD
from tests.audit.mechanism.wrong_mechanisms import WRONG, Mechanism
from tests.test_house import ROOT

QUICK = 0.1  # of the calls


def check(m: Mechanism, *, first: int = 0, effort: float = QUICK) -> MechanismCheck:
    promise = Promise(
        clip=m.clip,
        epsilon=m.epsilon,
        delta=m.delta,
        neighbours=m.neighbours,  # type: ignore[arg-type]
        rounds=m.rounds,
    )
    with np.errstate(invalid="ignore"):
        return play_questions(Player(m.make, m.like(), first=first, effort=effort), promise)  # type: ignore[arg-type]


def list_refuted(found: MechanismCheck) -> set[str]:
    return {str(a.question) for a in found.answers if a.outcome == Outcome.REFUTED}


ONE_EACH = (
    *("no noise", "drawn once", "seed of the clock", "last layer not clipped", "each layer clipped"),
    *("layer without noise", "noise in proportion", "over root of layers", "one number for all", "momentum"),
    "replaced counted as removed",
)


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_wrong_mechanism_is_named_by_the_question_that_sees_it(name: str) -> None:
    found = check(WRONG[name])
    assert found.outcome == Outcome.REFUTED and list_refuted(found) & set(WRONG[name].questions), found


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_mechanism_is_named(name: str) -> None:
    found = check(WRONG[name], effort=1.0)
    assert found.outcome == Outcome.REFUTED and list_refuted(found) & set(WRONG[name].questions), found


@pytest.mark.parametrize("name", ["generator", "laplace", "replaced", "ten calls", "unreached"])
def test_a_right_mechanism_is_left_alone(name: str) -> None:
    found = check(RIGHT[name])
    assert found.outcome == Outcome.NOTHING and found.pairs > 0, found


@pytest.mark.parametrize("name", ["largest after", "modulus after", "integers after", *UNTOLD])
def test_of_what_comes_after_the_noise_or_is_no_plain_law_nothing_is_told(name: str) -> None:
    found = check((RIGHT | UNTOLD)[name])
    assert found.outcome == Outcome.UNTOLD, found
    assert "not judged" in found.sentence and found.by_law == 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*RIGHT, *UNTOLD])
def test_no_right_mechanism_is_accused_under_200_other_seeds(name: str) -> None:
    m = (RIGHT | UNTOLD)[name]
    accused = [i for i in range(200) if list_refuted(check(m, first=10_000_000 * (i + 1), effort=0.04))]
    assert accused == []


def test_what_is_found_of_the_noise_is_just_below_the_truth() -> None:
    assert 3.9 < check(RIGHT["generator"]).by_law < 4.0
    assert 8.7 < check(WRONG["over root of layers"]).by_law < 9.1  # half of the noise costs 9.09


def test_a_claim_is_judged_as_claims_are() -> None:
    refuted = check(WRONG["over root of layers"]).verdict
    assert re.match(
        r"Refuted: with the noise and the move that were measured, one release costs at least [89]", refuted
    )
    assert check(RIGHT["generator"]).verdict.startswith("Cannot be decided: a measurement shows at least 3.9")


def test_ten_calls_are_counted_together() -> None:
    ten = RIGHT["numpy"]  # whose noise is for one
    found = check(Mechanism(make=ten.make, rounds=10))
    assert found.outcome == Outcome.REFUTED and found.by_law > 15


def test_no_answer_says_that_a_mechanism_is_right() -> None:
    said = str(check(RIGHT["generator"])) + str(check(UNTOLD["correlated noise"]))
    assert not re.search(r"\b(correct|right|safe|private|proven|verified|holds)\b", said, re.I)


def test_noise_that_is_needed_is_never_refused_for_a_longer_move() -> None:
    """What is sent in other units, ten times as long with ten times the noise, keeps the claim."""

    def make() -> Any:
        plain = RIGHT["generator"].make()
        return lambda u: {k: 10 * v for k, v in plain(u).items()}

    found = check(Mechanism(make=make))
    assert found.outcome == Outcome.NOTHING, found
    assert any(a.question == 3 and a.outcome is None for a in found.answers)


def test_a_crash_is_a_note_and_the_rest_is_asked() -> None:
    def make() -> Any:
        plain = RIGHT["generator"].make()

        def play(u: Any) -> Any:
            if not any(v.any() for v in u.values()):
                raise ZeroDivisionError("division by zero")
            return plain(u)

        return play

    found = check(Mechanism(make=make))
    assert found.outcome == Outcome.NOTHING
    (first, *_) = found.answers
    assert first.question == 1 and first.outcome is None
    assert "ZeroDivisionError (division by zero) on: zero" in first.sentence


def test_arrays_of_whole_numbers_that_it_cannot_take_are_left_out_and_named() -> None:
    def make() -> Any:
        plain = RIGHT["generator"].make()

        def play(u: Any) -> Any:
            for v in u.values():
                v *= 0.5
            return {k: 2 * v for k, v in plain(u).items()}

        return play

    def like() -> Any:
        return {"w": np.zeros(200), "count": np.array([3])}

    found = check(Mechanism(make=make, like=like))
    assert "It is asked without count, of whole numbers." in [a.sentence for a in found.answers]


def draw_all() -> list[Any]:
    return [
        *(random.random(), np.random.normal(), np.random.default_rng().normal(), float(torch.rand(1))),
        *(os.urandom(8), secrets.token_bytes(8), random.SystemRandom().random(), time.time(), time.time_ns()),
    ]


def test_every_source_follows_the_seed_and_is_given_back() -> None:
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    undisturbed = random.random(), np.random.normal(), float(torch.rand(1))
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    with reach_sources() as plant:
        plant(1)
        one = draw_all()
        plant(1)
        again = draw_all()
        plant(2)
        other = draw_all()
    assert one == again
    assert not any(a == b for a, b in zip(one, other, strict=True))
    assert (random.random(), np.random.normal(), float(torch.rand(1))) == undisturbed
    assert os.urandom(16) != os.urandom(16)


def test_the_game_shows_what_its_counts_show() -> None:
    assert bound_below(0, 1000, 0, 1000, 0.0) == 0
    assert bound_below(500, 1000, 500, 1000, 0.0) == 0
    assert bound_below(1000, 1000, 0, 1000, 0.0) == pytest.approx(4.39, abs=0.02)
    assert bound_below(1000, 1000, 0, 1000, 0.999) == 0


def test_a_game_of_too_few_calls_is_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game, "NUMBERS", 1.0)
    found = check(RIGHT["generator"])
    (last,) = [a for a in found.answers if a.question == 7]
    assert last.outcome is None and last.sentence.startswith("Not played") and found.by_game == 0
    assert found.outcome == Outcome.NOTHING


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clip": 0.0}, "clip must be a number above 0"),
        ({"epsilon": float("nan")}, "epsilon must be a number above 0"),
        ({"delta": 1.0}, "delta must be at least 0 and below 1"),
        ({"neighbours": "swap"}, "neighbours are remove or replace"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"like": {}}, "an update of no arrays"),
        ({"make": lambda: lambda u: 3}, "takes no update like the one given"),
        ({"make": lambda: None}, "takes no update like the one given"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"make": RIGHT["numpy"].make, "like": {"w": np.zeros(9)}, "clip": 1.0, "epsilon": 1.0}
    given |= change
    with pytest.raises(fa.UserError, match=says):
        fa.check_mechanism(given.pop("make"), given.pop("like"), **given)


def test_the_same_mechanism_gets_the_same_answers_byte_by_byte() -> None:
    assert check(RIGHT["torch"]).to_record() == check(RIGHT["torch"]).to_record()


def test_the_command_names_a_wrong_filter_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_file({"w": np.zeros((4, 5), np.float32)}, "like.safetensors")
    Path("sent_as_it_is.py").write_text("def make():\n    return lambda update: update\n")
    asked = ["tools", "mechanism", "sent_as_it_is:make", "--like", "like.safetensors", "--clip", "1"]
    done = CliRunner().invoke(app, [*asked, "--epsilon", "4", "--out", "answers.json"])
    assert done.exit_code == 1, done.output
    assert "there is no noise" in done.output and '"outcome": "refuted"' in Path("answers.json").read_text()
    missing = CliRunner().invoke(app, [*asked[:4], "none.safetensors", *asked[5:], "--epsilon", "4"])
    assert missing.exit_code != 0
    for name, says in (
        ("page.pdf", b"%PDF-"),
        ("page.html", b"there is no noise"),
        ("page.md", b"there is no noise"),
    ):
        done = CliRunner().invoke(app, [*asked, "--epsilon", "4", "--out", name])
        assert done.exit_code == 1 and says in Path(name).read_bytes(), done.output
    odd = CliRunner().invoke(app, [*asked, "--epsilon", "4", "--out", "page.docx"])
    assert odd.exit_code == 2 and "ending .docx is not written" in odd.output and not Path("page.docx").exists()


def test_a_code_host_reads_what_refutes_a_filter_at_its_file() -> None:
    found = check(WRONG["no noise"])
    log = json.loads(render(found, Sarif(), "fedaudit tools mechanism mine:make", "mine.py"))
    (wrong,) = [r for r in log["runs"][0]["results"] if r["level"] != "none"]
    assert (
        wrong["level"] == "error" and wrong["kind"] == "fail" and "there is no noise" in wrong["message"]["text"]
    )
    assert wrong["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "mine.py"


def test_the_page_of_what_is_not_refuted_says_that_it_is_no_proof() -> None:
    page = render(check(RIGHT["generator"]), Html(), "fedaudit tools mechanism mine:make", "mine.py").decode()
    words = " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", page, flags=re.S).split())
    assert "This is no proof that the mechanism is right" in words
    assert "No counterexample among" in words and "policy" not in words.lower()


def test_the_recipes_of_the_page_run() -> None:
    text = (ROOT / "docs" / "own-filter.md").read_text()
    own, _, _, opacus = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    names: dict[str, Any] = {}
    exec(own.rpartition("fa.check_mechanism")[0], names)
    promise = Promise(clip=1.0, epsilon=4.0, delta=1e-5, neighbours="remove", rounds=1)
    assert play_questions(Player(names["make"], names["like"], effort=QUICK), promise).outcome == Outcome.NOTHING
    pytest.importorskip("opacus")
    exec(opacus, names)
    like = {"w": np.zeros((10, 50), np.float32)}
    assert play_questions(Player(names["make"], like, effort=QUICK), promise).outcome == Outcome.NOTHING
