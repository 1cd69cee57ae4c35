"""One word: of whatever folder, every command, export, page and exit code says what one function decided.

Nothing here reads audit.json to know what is right: the word is that of `check`, and of a folder that is broken
no command says any word.
"""

import html
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pypdf
import pytest
import yaml
from typer.testing import CliRunner, Result

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.decision import Word
from tests.audit.attestation.ways_below import CELLS, WITH_A_VARIANT
from tests.audit.importing import theirs
from tests.audit.test_ready import CLEAN, HIDDEN
from tests.audit.tiny import TEXT

RUNNER = CliRunner()
FORMATS = ["json", "html", "pdf", "sarif", "junit", "markdown"]
LIGHT = {"workers": 0, "noise_audit": False, "record": "all"}


def simulated(text: str | Mapping[str, Any], **changes: Any) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        settings = dict(yaml.safe_load(text) if isinstance(text, str) else text) | changes
        (place / "c.yaml").write_text(yaml.safe_dump(settings | {"report": FORMATS}))
        return finished(RunDir.create(place / "run"), load(place / "c.yaml"))

    return make


def recorded(**changes: Any) -> Callable[[Path], Path]:
    """A federation that ran in Flower; `changes` of the config."""

    def make(place: Path) -> Path:
        subject = read_yaml(theirs.EXAMPLE / "subject.yaml") | {"method": None}
        stated = {**theirs.ATTACKS, "subject": subject, "report": FORMATS, **changes}
        config, run = validate(Config, stated, "test"), RunDir.create(place / "run")
        inbox, about = theirs.FLOWER / "inbox", theirs.EXAMPLE / "subject.yaml"
        bring(
            run.path,
            config.set_origin(Origin(trust=True)),
            ImportSources(inbox=inbox, subject=about, truth=theirs.TRUTH),
            quiet,
        )
        return finished(run, config)

    return make


def quiet(*_: Any) -> None:
    """Progress that nobody follows."""


def finished(run: RunDir, config: Config) -> Path:
    names = [p.name for p in phases(config.case) if p.name != "import"]
    WholeAudit(run, config).execute(names, quiet)
    return run.path


def broken(change: Callable[[Path], Any], make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def made(place: Path) -> Path:
        folder = make(place)
        change(folder)
        return folder

    return made


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(json.dumps(change(json.loads((folder / name).read_text()))))


CANNOT_TELL = simulated(TEXT, attacks=["example_numbers"], **LIGHT)
LEAKING = simulated(
    CLEAN,
    protections=[],
    method={**CLEAN["method"], "name": "tests.leaks.methods:ImageInBias"},
    federation={**CLEAN["federation"], "model": "small_cnn"},
)
# A kind of folder, how it is made, and the word that it must have; none: it is broken
FOLDERS: dict[str, tuple[Callable[[Path], Path], Word | None]] = {
    "simulated and clean": (simulated(CLEAN, **HIDDEN), Word.READY),
    "simulated and leaking": (LEAKING, Word.NOT_READY),
    "simulated, hardly attacked": (CANNOT_TELL, Word.CANNOT_TELL),
    "simulated, with an option": (simulated(WITH_A_VARIANT), Word.CANNOT_TELL),
    "simulated, with a matrix and absent clients": (simulated(CELLS), Word.CANNOT_TELL),
    "imported": (recorded(), Word.CANNOT_TELL),
    "imported, with no attack": (recorded(attacks=[]), Word.CANNOT_TELL),
    "simulated, evidence edited": (
        broken(edit("evidence/00-example_numbers.json", lambda e: {**e, "reason": "none"}), CANNOT_TELL),
        None,
    ),
    "simulated, its attacks did not end": (
        broken(edit("phases.json", lambda r: {**r, "attack": {**r["attack"], "seconds": None}}), CANNOT_TELL),
        None,
    ),
    "imported, a message is missing": (
        broken(lambda f: next((f / "artifacts").rglob("*.safetensors")).unlink(), recorded(attacks=[])),
        None,
    ),
}


def call(*words: object) -> Result:
    return RUNNER.invoke(app, [*map(str, words), "--trust-plugins"])


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    finding = json.loads((folder / "audit.json").read_text())["findings"]
    explained = finding[0]["id"] if finding else "membership.server"
    return {
        "run": ("run", str(folder)),
        "check": ("check", str(folder)),
        "verify": ("verify", str(folder)),
        "explain": ("explain", explained, "--run", str(folder)),
        "compare": ("compare", str(folder), str(folder)),
    }


def list_printed(folder: Path) -> Iterator[tuple[str, str, int | None]]:
    """(what speaks, the word that it says, its exit code where that is the word's) of every surface."""
    line = re.compile(rf"\b({'|'.join(sorted((w.words for w in Word), key=len, reverse=True))})\b", re.I)

    def first(text: str) -> str:
        """The terminal writes it in capitals."""
        found = line.search(text)
        return found[0].capitalize() if found else f"no word in {text[:300]!r}"

    for name, words in commands(folder).items():
        done = call(*words)
        assert done.exit_code in (0, 1, 3), (name, done.output)
        yield name, first(done.stdout), None if name in ("explain", "compare") else done.exit_code
    yield (
        "JSON of a check",
        Word(json.loads(call("check", folder, "--format", "json").stdout)["decision"]["word"]).words,
        None,
    )
    for made, sarif in (
        ("SARIF of a check", call("check", folder, "--format", "sarif").stdout),
        ("report.sarif", (folder / "report.sarif").read_text()),
    ):
        ended = json.loads(sarif)["runs"][0]["invocations"][0]
        yield made, first(ended["exitCodeDescription"]), ended["exitCode"]
    for made, junit in (
        ("JUnit of a check", call("check", folder, "--format", "junit").stdout),
        ("report.junit.xml", next(folder.glob("report.*xml")).read_text()),
    ):
        (case,) = ET.fromstring(junit).findall("testsuite/testcase[@classname='fedaudit.verdict']")
        yield made, str(case.get("name")), {(): 0, ("failure",): 1, ("error",): 3}[tuple(e.tag for e in case)]
    yield "Markdown of a check", first(call("check", folder, "--format", "markdown").stdout), None
    page = pypdf.PdfReader(io.BytesIO((folder / "report.pdf").read_bytes())).pages[0].extract_text()
    yield "page 1", first(page), None
    text = html.unescape(
        re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", (folder / "report.html").read_text(), flags=re.S)
    )
    yield "HTML", first(text), None


@pytest.mark.dear(
    *("simulated and clean", "simulated and leaking", "simulated, with an option", "imported"),
    "simulated, with a matrix and absent clients",
)
@pytest.mark.parametrize("kind", FOLDERS)
def test_every_surface_speaks_one_word(kind: str, tmp_path: Path) -> None:
    make, word = FOLDERS[kind]
    folder = make(tmp_path)
    if word is None:
        for name, words in commands(folder).items():
            if name == "run" and "did not end" in kind:  # `run` goes on where it stopped
                continue
            done = call(*words)
            assert done.exit_code == 2, (name, done.output)
            assert not any(w.words.lower() in done.stdout.lower() for w in Word), (name, done.output)
        return
    said = list(list_printed(folder))
    assert {name: text for name, text, _ in said if text != word.words} == {}
    assert {name: code for name, _, code in said if code not in (None, word.exit_code)} == {}
