"""What a run leaves, but for times: two runs of one config leave the same."""

import json
from pathlib import Path

from fedaudit.audit.attestation import chain as links
from fedaudit.audit.case.digests import TIMES, of_file, of_value, timeless


def left(folder: Path) -> dict[str, str]:
    """Every file with its digest; of those that hold times, of the rest."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and ".partial" not in p.name):
        name = path.relative_to(folder).as_posix()
        if path.name == "chain.json":
            chain = links.read_chain(path.parent)
            found[name] = of_value([chain.content(), *((r.policy, r.plan) for r in chain.registrations[-1:])])
        elif path.name == "phases.json":
            found[name] = of_value({k: v["settings"] for k, v in json.loads(path.read_bytes()).items()})
        elif path.name == "report.json":
            found[name] = of_value(timeless(json.loads(path.read_bytes()), TIMES["audit.json"]))
        else:
            found[name] = of_file(path, name)
    return found
