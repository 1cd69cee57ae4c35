"""Reviews, and which of them this machine has made before.

A review is a function of the bytes of a folder and of our code. `run` reviews what it made, so `check` and
`explain` need not play the clients once more: the index keeps the digest of the record, and the verdict is read
from the audit.json that this digest covers. A folder from elsewhere, or one that changed by a byte, is reviewed
whole.
"""

from collections.abc import Mapping
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


def keep_review(folder: Path, made: Review) -> None:
    """Note that a record, and that of each variant, was reviewed here under the run's own policy.

    For folders of which their bytes and our code decide all (`reads_elsewhere`).
    """
    run = RunDir(folder)
    config = run.load_config()
    kept = {name: value for name, value in vars(made).items() if name not in ("result", "variants")}
    keep(config.model_dump(), resolve(config))  # light commands ask for it
    index.keep("reviewed", made.record, kept | {"policy": made.result.policy.sha256})
    for name, part in made.variants.items():
        keep_review(run.inside(f"variants/{name}"), part)


def recall_review(folder: Path, policy: str = "") -> Review | None:
    """The review of a folder with these very bytes, made here by this code; None where there was none.

    `policy` is the digest of the reviewer's, by default that of the folder's own.
    """
    kept = index.recall("reviewed", digest_record(folder))
    if not isinstance(kept, dict):
        return None
    own = kept.pop("policy")
    if policy and policy != own:
        return None
    return Review(result=read_result(folder), **kept | {k: tuple(kept[k]) for k in ("reports", "strangers")})
