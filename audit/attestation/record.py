"""The two digests of a run folder, both SHA-256.

The *content* is what a second run of the same config has as well: the links of chain.json without times, threads
and the commit. The *record* is everything that is printed as fact: every byte of every file, with registrations,
times, commit, hardware and reports. A seal signs the record; what stands in the record alone is stated by the
owner until somebody signed it.
"""

from pathlib import Path

from fedaudit.audit.case.digests import of_value
from fedaudit.audit.case.run_folder import sha256

SEAL, TOKEN = "seal.json", "seal.tsr"  # they come after the record, and are about it
LOCK = ".lock"


def digest_record(folder: Path) -> str:
    """Of every file of the folder with its name, but for the seal and locks."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return of_value(
        {n: sha256(p) for n, p in files.items() if n not in (SEAL, TOKEN) and n.rpartition("/")[2] != LOCK}
    )
