"""The form of every world: what somebody brings, and by hand what must come of an audit of it.

A corpus is a mapping from the name of a world to it. The truths are written by somebody who has read the
documentation and not the checks, before the world is run. A world that once failed stays; one that is known to go
wrong says why.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import fedaudit as fa
from fedaudit.audit.cli.main import app
from fedaudit.reports.decision import EXIT_CODES, Word

# Nobody honest is told these, nor what a library says of its own
NEVER = re.compile(
    r"unexpected|Traceback|no part of fedaudit|not a file in the archive|U\+000A|\b[A-Z]\w*(Error|Exception)\b"
)
# What is no text of a page, and what no reader can do anything with
TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL)
UNDEFINED = re.compile(r"\b(nan|inf)\b")
OUT = "out"  # the run folder of a world, in its own
RUNNER = CliRunner()


class Truth(NamedTuple):
    """What must come of a world. Patterns are of words, as `words_of` reads them in an audit."""

    runs: bool  # whether it may come to its end
    naming: tuple[str, ...] = ()  # words of which a refusal has one at least; none: it must not be refused
    false: tuple[str, ...] = ()  # patterns of words that would be wrong
    says: tuple[str, ...] = ()  # patterns of each of which there must be a word
    answers: float = 0.0  # the share of required questions that can be answered; with less, much is left open


RUNS = Truth(True)
READY = "ready*"  # with conditions or without
TELLS_NOT = ("cannot_tell",)


def refused(*naming: str) -> Truth:
    """It is refused in a sentence that names one of these."""
    return Truth(False, naming)


def either(*naming: str, false: tuple[str, ...] = (), says: tuple[str, ...] = ()) -> Truth:
    """It runs, or is refused in a sentence that names one of these."""
    return Truth(True, naming, false, says)


def runs(*, false: tuple[str, ...] = (), says: tuple[str, ...] = (), answers: float = 0.0) -> Truth:
    """It runs to its end."""
    return Truth(True, (), false, says, answers)


Command = list[str]
Bring = Callable[[Path], Sequence[Command]]


@dataclass(frozen=True)
class World:
    """What somebody brings: what writes it into a folder, and gives the commands that audit it there."""

    bring: Bring
    truth: Truth
    wrong: str = ""  # why an audit of it is known to say what is false; a test of it fails once it does not


Examples = tuple[Any, Any]


def simulated(data: Callable[[], Examples] | None = None, **config: Any) -> Bring:
    """A federation that a config describes, of examples in a file of arrays where `data` gives some."""

    def bring(folder: Path) -> Sequence[Command]:
        path, given, copies = folder / "mine.yaml", dict(config), list[str]()
        if data:
            x, y = data()
            cut = len(x) * 4 // 5
            np.savez(folder / "mine.npz", x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:])
            named = {"dataset": {"name": "npz", "path": str(folder / "mine.npz")}}
            given["federation"] = {**config["federation"], **named}
            copies = ["--data", f"npz={folder / 'mine.npz'}"]
        path.write_text(yaml.safe_dump(SMALL | given))
        out = str(folder / OUT)
        return [["plan", str(path)], ["run", str(path), "--out", out], ["check", out, *copies]]

    return bring


def recorded(
    write: Callable[[Path], None], subject: Mapping[str, Any] | None = None, model: str = "", **config: Any
) -> Bring:
    """A federation that ran elsewhere: `write` leaves folder/inbox, and folder/truth where there is one.

    Its operator states `subject`, or where that is None what the import guesses, and the network `model`.
    """

    def bring(folder: Path) -> Sequence[Command]:
        write(folder)
        (folder / "audit.yaml").write_text(yaml.safe_dump(SMALL | config))
        out = str(folder / OUT)
        command, check = ["import", str(folder / "inbox"), "--out", out, "--trust-plugins"], ["check", out]
        command += ["--config", str(folder / "audit.yaml")]
        if (folder / "truth").is_dir():
            command += ["--truth", str(folder / "truth")]
        if subject is None:
            return [[*command, *(("--model", model) if model else ())], check]
        (folder / "subject.yaml").write_text(yaml.safe_dump({**subject, **({"model": model} if model else {})}))
        run = ["run", out, "--trust-plugins"]
        return [[*command, "--subject", str(folder / "subject.yaml")], run, check]

    return bring


SMALL: Mapping[str, Any] = {"seed": 7, "budget": 0.1, "variants": [], "report": ["json", "html"], "workers": 0}


class Refused(NamedTuple):
    """What a command said that did not come to its end."""

    said: str
    hint: str


def check_command(command: Command) -> Refused | None:
    """A command comes to its end, or is refused in two lines."""
    done = RUNNER.invoke(app, command)
    if done.exit_code in EXIT_CODES.values():
        assert not NEVER.search(done.output), done.output
        return None
    told = done.stderr.strip().splitlines()
    steps, lines = told[:-2], told[-2:]
    assert done.exit_code == 2 and len(lines) == 2, f"{done.exit_code}: {done.stderr or done.exception!r}"
    assert all(re.match(r"\w+: ", line) for line in steps), done.stderr
    assert lines[0].startswith("error: ") and lines[1].startswith("  hint: "), done.stderr
    return Refused(lines[0].removeprefix("error: "), lines[1].removeprefix("  hint: "))


def check_sentence(refusal: Refused, truth: Truth) -> None:
    """A refusal is one sentence that names the place, and a way on."""
    said, hint = refusal
    assert truth.naming, f"refused, and the documentation promises it: {said} / {hint}"
    assert not NEVER.search(said + hint), f"{said} / {hint}"
    assert said.count("\n") == 0 and len(hint) > 5, f"{said!r} / {hint!r}"
    words = f"{said} {hint}".lower()
    assert any(word.lower() in words for word in truth.naming), f"names none of {truth.naming}: {said} / {hint}"


def carry_out(commands: Sequence[Command], truth: Truth) -> Refused | None:
    """All commands come to their end, or one ends in a sentence as it may; `run` is asked what `plan` refuses."""
    refusal = None
    for command in commands:
        if refusal := check_command(command):
            check_sentence(refusal, truth)
            if command[0] != "plan":
                return refusal
    assert truth.runs, f"it ran to its end, and should name one of {truth.naming}"
    return None


def words_of(audit: Mapping[str, Any]) -> set[str]:
    """What an audit.json says in words that a truth may deny."""
    found = {audit["decision"]["word"]}
    for question in audit["questions"]:
        found.add(f"{question['state']} {question['id']}")
        if question["at_most"] is not None:
            found.add(f"bounded {question['id']}")
    for bound in audit["bounds"]:
        found.add(f"{bound['status']} bound of {bound['observer']}")
    for finding in audit["findings"]:
        found.add(f"{finding['outcome']} {finding['id']}")
        if finding["at_least"] or (finding["source"] != "attack" and finding["severity"] != "none"):
            found.add(f"hit {finding['id']}")
    imported = audit["imported"] or {"checks": [], "unread": []}
    found |= {f"{check['status']} {check['id']}" for check in imported["checks"]}
    return found | {f"unread {message['sender']}" for message in imported["unread"]}


def check_folder(out: Path, truth: Truth) -> float:
    """What a run folder says is not false; the share of required questions that it answers."""
    written = (out / "audit.json").read_text()
    assert not NEVER.search(written), NEVER.search(written)
    audit = json.loads(written, parse_constant=refuse_constant)
    words, decision = words_of(audit), Word(audit["decision"]["word"])
    false = sorted(w for w in words if any(fnmatchcase(w, pattern) for pattern in truth.false))
    assert not false, f"says what is false: {', '.join(false)}: {audit['decision']['sentence']}"
    missing = [p for p in truth.says if not any(fnmatchcase(w, p) for w in words)]
    assert not missing, f"does not say {', '.join(missing)}, but {', '.join(sorted(words))}"
    if (page := out / "report.html").is_file():
        text = TAGS.sub(" ", page.read_text())
        assert decision.words in text, f"page 1 does not say {decision.words!r}"
        undefined = UNDEFINED.search(text)
        assert not undefined, f"a page says {text[undefined.start() - 80 : undefined.end() + 20]!r}"
    required = [q for q in audit["questions"] if q["required"] and not q["accepted"]]
    asked = [q for q in required if q["state"] == "open"]
    assert not asked or decision is not Word.READY, f"ready, and open are {', '.join(q['id'] for q in asked)}"
    for question in audit["questions"]:
        low, high = question["at_least"], question["at_most"]
        assert high is None or low <= high, f"{question['id']}: at least {low}, and at most {high}"
        assert question["state"] != "open" or question["why"], f"{question['id']} is open without a reason"
    for name, status, reason in attacks_of(out):
        assert status != "failed", f"{name} failed: {reason}"
        assert status == "ran" or reason, f"{name}: {status} without a reason"
    return 1 - len(asked) / len(required) if required else 0.0


def refuse_constant(name: str) -> None:
    raise AssertionError(f"audit.json has the number {name}")


def attacks_of(out: Path) -> Iterator[tuple[str, str, str]]:
    """The name of each attack of a run folder, whether it ran, and why not."""
    for file in sorted((out / "evidence").glob("[0-9]*.json")):
        written = file.read_text()
        assert not NEVER.search(written), f"{file.name}: {NEVER.search(written)}"
        found = json.loads(written)
        yield found["name"], found["status"], found["reason"]


class Judged(NamedTuple):
    """right: nothing false was said; open: nor what could be answered; wrong: something false."""

    word: Literal["right", "open", "wrong"]
    why: str


def judge(world: World, folder: Path) -> Judged:
    """Audit a world in a folder."""
    try:
        if refusal := carry_out(world.bring(folder), world.truth):
            return Judged("open" if world.truth.answers else "right", f"refused: {refusal.said}")
        share = check_folder(folder / OUT, world.truth)
    except AssertionError as error:
        return Judged("wrong", str(error))
    word: Literal["right", "open"] = "right" if share >= world.truth.answers else "open"
    return Judged(word, f"{share:.0%} of required questions answered")


def check_world(world: World, folder: Path, record: Callable[[str, object], None]) -> None:
    """Nothing false is said of a world; `record` keeps how it was judged, for the summary."""
    judged = judge(world, folder)
    record("judged", tuple(judged))
    assert judged.word != "wrong", judged.why


def cases(worlds: Mapping[str, World]) -> list[Any]:
    """A case of a test for each world; those that are known to go wrong must do so."""
    known = {n: pytest.mark.xfail(strict=True, reason=w.wrong) for n, w in worlds.items() if w.wrong}
    return [pytest.param(n, marks=known.get(n, ()), id=n) for n in worlds]


def check_attack(model: Any, truth: Truth, attack: str = "loss_threshold", **given: Any) -> None:
    """An attack on a model is measured, or refused in a sentence."""
    try:
        result = fa.attack(attack, model=model, **given)
    except fa.UserError as error:
        check_sentence(Refused(error.args[0], error.hint), truth)
        return
    assert truth.runs, f"it was measured, and should name one of {truth.naming}: {result.evidence.to_dicts()[:1]}"
    assert len(result.evidence) > 0 and not NEVER.search(result._repr_html_())
