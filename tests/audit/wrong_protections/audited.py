"""A tiny audit of one plugin, in this process: what verifier, lints, replay and tests of noise say."""

from pathlib import Path
from typing import NamedTuple

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load
from fedaudit.reports.result import AuditResult

HERE = "tests.audit.wrong_protections"
TEXT = """
seed: SEED
federation:
  dataset: digits
  limit: [240, 20]
  clients: 6
  availability: full
  model: logreg
method: {name: fedavg, rounds: 4, local_epochs: 1, lr: 0.2, weighting: uniform}
protections: [PLUGIN]
workers: 0
record: all
attacks: []
report: [json]
accountants: []
"""
FLOATING = {"L16", "L17"}  # what holds of all noise that a plugin draws itself
PHASES = ["simulate", "attack", "account", "score"]


class Seen(NamedTuple):
    """What was found, by who found it: ledger checks, lints, replay and tests of noise; what was not tried."""

    verifier: list[str]
    lints: list[str]
    noise: list[str]
    not_audited: list[str]
    has_own_generator: bool  # whether a lint says that noise is not of the run's own source
    verified: list[str]  # observers of bounds that the replay verified

    @property
    def named(self) -> bool:
        return bool(self.verifier or self.lints or self.noise)


def audited(plugin: str, folder: Path, replace: dict[str, str] | None = None, seed: int = 7) -> Seen:
    """`plugin` as a config's list of protections; `replace` changes other text of the config."""
    text = TEXT.replace("PLUGIN", plugin).replace("SEED", str(seed))
    for old, new in (replace or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "config.yaml").write_text(text)
    run = RunDir.create(folder / "out")
    execute(run, load(folder / "config.yaml"), PHASES, lambda *_: None, skip_finished=False)
    result = AuditResult.model_validate_json(run.audit.read_bytes())
    checks = EvidenceFolder(run.path).bound_checks
    return Seen(
        verifier=[f.id.removeprefix("ledger-") for f in result.findings if f.id.startswith("ledger-")],
        lints=[
            name
            for f in result.findings
            if f.id.startswith("lint-") and (name := f.id.removeprefix("lint-")) not in FLOATING
        ],
        noise=[c.name for a in result.noise_audits for c in a.checks if not c.passed]
        + [f"{c.place}: {c.reason}" for c in checks if c.status == "refuted"],
        not_audited=[a.not_audited for a in result.noise_audits if a.not_audited],
        has_own_generator=any(f.id == "lint-L17" for f in result.findings),
        verified=[c.observer for c in checks if c.status == "verified"],
    )
