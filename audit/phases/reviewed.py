"""Reviews, and which of them this machine has made before.

A review is a function of the bytes of a folder, of the files that its config names, and of our code. `run`
reviews what it made, so `check` and `explain` need not play the clients once more: the index keeps the digest of
the record with the state of those files, and the verdict is read from the audit.json that this digest covers. A
folder from elsewhere, one that changed by a byte, or one whose data or rules were touched, is reviewed whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedaudit.audit.attestation.record import digest_record
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.result_file import read_result
from fedaudit.audit.settings import index
from fedaudit.audit.settings.resolve import keep, resolve
from fedaudit.reports.result import AuditResult


@dataclass(frozen=True, kw_only=True)
class Review:
    """What the reviewer's own machine makes of a folder."""

    result: AuditResult  # under the reviewer's policy
    content: str  # digests of the folder (audit/attestation/record.py)
    record: str
    scored_by: str  # the policy of the folder's own verdict, in words; empty: the reviewer's
    reports: tuple[str, ...]  # names of the folder's reports
    is_rendered: bool  # whether they were rendered here once more, to the same bytes
    strangers: tuple[str, ...]  # files that no phase wrote
    variants: Mapping[str, "Review"] = field(default_factory=dict)  # by name, where they were reviewed with it


def keep_review(folder: Path, made: Review, files: str) -> None:
    """Note that a record, and that of each variant, was reviewed here under the run's own policy.

    `files` is what `digest_files` said before anything was read.
    """
    run = RunDir(folder)
    config = run.load_config()
    kept = {name: value for name, value in vars(made).items() if name not in ("result", "variants")}
    keep(config.model_dump(), resolve(config))  # light commands ask for it
    index.keep("reviewed", made.record, kept | {"policy": made.result.policy.sha256, "files": files})
    for name, part in made.variants.items():
        keep_review(run.inside(f"variants/{name}"), part, files)


def recall_review(folder: Path, digest: Callable[[], str], policy: str = "") -> Review | None:
    """The review of a folder with these very bytes and files, made here by this code; None where there was none.

    `digest` gives what `digest_files` says now, and is asked only where a review was kept: a received config may
    name files that it may not open. `policy` is the digest of the reviewer's, by default the folder's own.
    """
    kept = index.recall("reviewed", digest_record(folder))
    if not isinstance(kept, dict):
        return None
    own, files = kept.pop("policy"), kept.pop("files")
    if (policy and policy != own) or files != digest():
        return None
    return Review(result=read_result(folder), **kept | {k: tuple(kept[k]) for k in ("reports", "strangers")})
