"""What is stated of rounds, clients and readers, and a list of all that nothing recorded can tell."""

from collections.abc import Sequence
from pathlib import Path

from fedaudit.audit.case.case import Split
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.fl.recording.recorder import is_from_client, manifest
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import READERS, CheckedStatement


def rounds(subject: RecordedSubject, artifacts: Path) -> list[CheckedStatement]:
    """The stated number of rounds against those in which clients sent something."""
    settings = subject.method.settings if subject.method else {}
    said = settings.get("rounds")
    seen = {x["round"] for x in manifest(artifacts) if is_from_client(x)}
    if not isinstance(said, int) or not seen:
        return []
    most = max(seen) + 1
    text = f"Stated: {fmt.plural(said, 'round')}; clients sent something in {fmt.plural(len(seen), 'round')}"
    if said < most:
        return [_check("contradicted", f"{text}, the last of which is number {most}.")]
    more = "" if len(seen) == said else f"; what {said - len(seen):,} others sent is not in this audit"
    return [_check("holds" if not more else "open", f"{text}{more}.")]


def list_readers(subject: RecordedSubject) -> list[CheckedStatement]:
    """Who is stated to read a channel: no message of a recorder that calls itself a client's tells of others."""
    if not subject.sees:
        return []
    who = "; ".join(f"{channel}: {', '.join(readers) or 'nobody'}" for channel, readers in subject.sees.items())
    text = f"Who could read these is stated by its operator, and no message of the record confirms it: {who}."
    return [CheckedStatement(id=READERS, title="Who could read a channel", status="declared", text=text)]


def check_statements(
    subject: RecordedSubject, examples: Split, checks: Sequence[CheckedStatement], heard: int
) -> CheckedStatement:
    """The statements that are repeated and were not checked, in one sentence each."""
    s = subject
    items = [f"the names of the {len(s.examples.classes)} classes and their order"] if s.examples.classes else []
    if s.model is not None and s.examples.task != "classify":
        items.append(f"that the network is trained on the task {s.examples.task}")
    if s.clients is not None and s.clients > heard:
        items.append(f"that there are {s.clients:,} clients, of which {heard:,} were heard")
    if s.method and any(c.id == "training" and c.status == "open" for c in checks):
        items.append("the settings of clients' training, and the normalisation")
    if examples.parts:
        items.append("that what was given as truth is all that these clients trained on")
    if len(examples.auxiliary):
        items.append("that the auditor's own examples are of no client and of their kind")
    text = f"Its operator states, and no message of the record confirms: {'; '.join(items)}."
    return CheckedStatement(id="declared", title="Stated and not checked", status="declared", text=text)


def _check(status: str, text: str) -> CheckedStatement:
    return CheckedStatement.model_validate({"id": "rounds", "title": "Rounds", "status": status, "text": text})
