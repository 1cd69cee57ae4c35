"""Folders that this version does not derive again: digests and seal hold for ever, the word is of who judged.

They have an earlier form, or other code judged them: that had a setting, an attack or a number which this one has
not, or had not a check that is made here. Nothing of them is read in a form of today but the seal, whose form is
that of in-toto.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.audit.attestation.chain import FORM, is_of_this_code, read_chain
from fedaudit.audit.attestation.record import SEAL, digest_record
from fedaudit.audit.attestation.seal import Statement, find_changed, require_digests
from fedaudit.audit.case.digests import of_file, of_value
from fedaudit.audit.case.reading import plain_json
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.fl.recording.recorder import MANIFEST
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.decision import Word

HINT = "do not decide from this folder; ask for the one that the run left"


@dataclass(frozen=True, kw_only=True)
class EarlierAudit:
    """What an earlier version judged, in its own words."""

    word: Word
    sentence: str
    tool: str
    content: str  # digests of the folder (audit/attestation/record.py)
    record: str

    @property
    def line(self) -> str:
        """The verdict in one line."""
        return f"{self.word.words}. {self.sentence}"


def is_earlier(folder: Path) -> bool:
    """Whether a folder has the form of an earlier version; raises UserError where it has that of a later one."""
    run = RunDir(folder)
    chain = run.read_json(run.chain) if run.chain.exists() else None
    form = chain.get("form", 0) if isinstance(chain, Mapping) and chain.get("links") else FORM
    if not isinstance(form, int) or form > FORM:
        raise UserError(f"{folder} was made by a later version of fedaudit", hint="install that version")
    return form < FORM


def is_of_other_code(folder: Path) -> bool:
    """Whether other code than is installed here made a folder's verdict, by the folder's own word."""
    try:
        chain = read_chain(folder)
    except UserError:
        return False
    return "score" in chain.links and not is_of_this_code(chain)


def read_earlier(folder: Path, statement: Statement | None) -> EarlierAudit:
    """The word of a folder of an earlier form, whose digests hold, and its seal where `statement` is of it.

    Raises UserError that names the first file that is not as it was left or sealed.
    """
    run = RunDir(folder)
    try:
        links = run.read_json(run.chain)["links"]
        for problem in _find_changes(folder, links):
            raise UserError(problem, hint=HINT)
        content = of_value({name: _digest(link) for name, link in links.items() if name != "report"})
        decision = run.read_json(run.audit)["decision"]
        word, sentence = Word(decision["word"]), str(decision["sentence"])
        tool = str(links["score"]["versions"]["fedaudit"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder} is no audit of an earlier version: {error!s:.200}", hint=HINT) from error
    record = digest_record(folder)
    if statement is not None:
        for problem in find_changed(folder, statement):
            raise UserError(problem, hint=HINT)
        require_digests(folder, statement, content, record)
    return EarlierAudit(word=word, sentence=sentence, tool=tool, content=content, record=record)


def _find_changes(folder: Path, links: Mapping[str, Any]) -> Iterator[str]:
    """Files that are not those that a phase or the manifest names, and phases that read others, as sentences."""
    run = RunDir(folder)
    for name, link in links.items():
        for file, digest in link["wrote"].items():
            if not run.inside(file).is_file():
                yield f"{run.path / file} is missing, and {name} wrote it"
            elif of_file(run.inside(file), file) != digest:
                yield f"{run.path / file} is not what {name} wrote: its SHA-256 differs"
        for other in link["read"].keys() & links.keys():
            if link["read"][other] != _digest(links[other]):
                yield f"{run.path}: {name} read another {other} than the folder holds"
    if "audit.json" not in links["score"]["wrote"]:
        yield f"{run.chain} does not say what score left"
    for number, line in enumerate((run.artifacts / MANIFEST).read_bytes().splitlines(), start=1):
        entry = plain_json(line, f"{run.artifacts / MANIFEST} line {number}")
        if "message" in entry:
            name = f"artifacts/{entry['message']}.safetensors"
            if not run.inside(name).is_file() or of_file(run.inside(name), name) != entry["sha256"]:
                yield f"{run.path / name} is not the one that was recorded: its SHA-256 differs"


def _digest(link: Mapping[str, Any]) -> str:
    return of_value({key: value for key, value in link.items() if key != "aside"})


def describe_earlier(found: EarlierAudit, why: str, *, is_signed: bool) -> Iterator[str]:
    """The word, by whom, why it is not derived again, and what holds of the folder, as lines."""
    yield found.line
    yield f"judged by fedaudit {found.tool}, not derived again: {why}"
    if is_signed:
        yield "every byte is what the signer sealed, and the word counts as theirs"
    else:
        yield f"files fit their digests, no more: the word counts with --key PUBLIC, by the signer of {SEAL}"
    yield f"content: SHA-256 {found.content}"
    yield f"record: SHA-256 {found.record}"
