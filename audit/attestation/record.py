"""The two digests of a run folder, both SHA-256.

The *content* is what a second run of the same config has as well: the links of chain.json without times, threads
and the commit. The *record* is everything that is printed as fact: every byte of every file, with registrations,
times, commit, hardware and reports. A seal signs the record; what stands in the record alone is stated by the
owner until somebody signed it.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from fedaudit.audit.attestation.chain import WRITES
from fedaudit.audit.case.digests import of_value
from fedaudit.audit.case.run_folder import sha256

SEAL, TOKEN = "seal.json", "seal.tsr"  # they come after the record, and are about it
LOCK = ".lock"
CELLS = ("variants", "matrix", "absence")  # folders of run folders
FOLDERS = ("artifacts", "evidence", "checkpoint")  # folders of a run folder
OWN = ("config.yaml", "phases.json", "chain.json", SEAL, TOKEN, LOCK, "checkpoint/*", "artifacts/*.safetensors")


def name_in_run(name: str) -> str:
    """The name of a file in the run folder, inside of this one, that it belongs to; cells lie at any depth."""
    parts = name.split("/")
    if parts[0] not in CELLS or len(parts) < 3:
        return name
    start = next((i for i, part in enumerate(parts[2:-1], start=2) if part in FOLDERS), len(parts) - 1)
    return "/".join(parts[start:])


def is_of_run(name: str, phases: Iterable[str]) -> bool:
    """Whether one of these phases, of the run, of its variants or of its cells, leaves a file of this name."""
    own = name_in_run(name)
    known = [*OWN, "artifacts/*/*.safetensors", *(p for phase in phases for p in WRITES[phase])]
    return any(own.count("/") == p.count("/") and fnmatchcase(own, p) for p in known)


def digest_record(folder: Path) -> str:
    """Of every file of the folder with its name, but for the seal and locks."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return of_value(
        {n: sha256(p) for n, p in files.items() if n not in (SEAL, TOKEN) and n.rpartition("/")[2] != LOCK}
    )
