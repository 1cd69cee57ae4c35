"""Every inbox of the tests, imported and audited: python -m tests.audit.importing [WORD ...] prints a table.

An inbox, what its import said, and of those whose uploads tell which classes a client holds, whether the audit
found it. With words: inboxes whose names hold one of them.
"""

import sys
import tempfile
from pathlib import Path

from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.fl.runtime.errors import UserError
from tests.audit.importing.inboxes import INBOXES, Inbox
from tests.audit.importing.test_inboxes import state, take


def describe(one: Inbox, folder: Path) -> tuple[str, str]:
    """What the import said, and whether findings are right."""
    one.write(folder)
    try:
        run, config, found = take(folder, one, state(folder, one))
    except UserError as error:
        return f"refused: {error.args[0]}".replace(f"{folder}/", ""), "left nothing" if not (
            folder / "run"
        ).exists() else "LEFT SOMETHING"
    wrong = [c.title for c in found.checks if c.status == "contradicted"]
    said = f"{found.messages} messages" + (f"; CONTRADICTED: {', '.join(wrong)}" if wrong else "")
    if not one.has_labels:
        return said, ""
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    labels = next(f for f in read_result(run.path).findings if f.id == "label_counts_from_update")
    return (said, "labels found" if labels.is_demonstrated else f"LABELS NOT FOUND: {labels.reason}")


def main(words: list[str]) -> None:
    chosen = {n: one for n, one in INBOXES.items() if not words or any(w in n for w in words)}
    refused = 0
    for name, one in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            said, right = describe(one, Path(folder))
        refused += said.startswith("refused")
        print(f"{name} | {said:.160} | {right}", flush=True)
    print(f"{len(chosen) - refused} of {len(chosen)} imported, {refused} ended in a sentence")


if __name__ == "__main__":
    main(sys.argv[1:])
