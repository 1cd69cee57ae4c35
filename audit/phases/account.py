"""Phase 3: add up what the ledger says, per observer and unit, and test it on canaries.

Leaves evidence/budgets.json and evidence/dp_audits.json.
"""

from collections.abc import Callable

from audit.canaries.recorded_means import recorded_means
from audit.canaries.recorded_uploads import recorded_uploads
from audit.canaries.run import dp_audits
from audit.dp.budget import budgets
from audit.settings.config import Config
from audit.subject.rundir import RunDir
from audit.subject.simulated import World
from fl.ledger import read

Progress = Callable[[str, int, int], None]


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Bounds from every accountant the config names, and lower bounds by experiment."""
    progress("account", 0, 2)
    releases = read(run.ledger)
    bounds = budgets(releases, config.accountants, config.delta)
    run.write_json(run.evidence / "budgets.json", [b.model_dump(mode="json") for b in bounds])
    progress("account", 1, 2)
    world = World(config)
    central = any(p.central for p in world.protections)
    reads = recorded_means if central else recorded_uploads
    recorded = reads(run) if world.protections and config.dp_audit.canaries else []
    audits = dp_audits(world, releases, config.dp_audit, recorded)
    run.write_json(run.evidence / "dp_audits.json", [a.model_dump(mode="json") for a in audits])
    progress("account", 2, 2)
