"""The ledger of a recorded federation: its operator's own, or what the claimed protections would have entered.

Either way it is a declaration: nobody could see the noise being added. Without a claim every message is listed as
released in clear.
"""

from pathlib import Path

from fedaudit.audit.accounting.recompute import LedgerReplay, uploads
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError

BROUGHT = "stated-ledger.jsonl"  # the operator's own, as `fedaudit import` copied it


def derive_ledger(artifacts: Path, replay: LedgerReplay) -> list[Release]:
    """Every release that follows from the claimed protections; raises UserError where none can be derived."""
    traffic = uploads(list(manifest(artifacts)))
    rounds = {x.round for x in traffic}
    found: dict[Release, None] = {}  # lines of all clients' noise come once
    heard = replay.federation.heard
    for k in range(replay.federation.clients):
        present = {t for t in rounds if heard is None or k in heard.get(t, frozenset())}
        made = replay.list_lines([x for x in traffic if x.round in present], present, k)
        if made is None:
            raise UserError(
                "no ledger entry of the claimed protections can be derived for these messages",
                hint="check subject.protections; they must act on kinds that clients sent",
                key="subject.protections",
            )
        found |= dict.fromkeys(made)
    return sorted(found, key=lambda r: r.round)
