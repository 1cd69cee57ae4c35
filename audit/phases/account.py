"""Phase 3: add up what the ledger says, per observer and unit. Leaves evidence/budgets.json."""

from collections.abc import Callable

from audit.budget import budgets
from audit.config import Config
from audit.rundir import RunDir
from fl.ledger import read

Progress = Callable[[str, int, int], None]


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Bounds from every accountant the config names."""
    progress("account", 0, 1)
    bounds = budgets(read(run.ledger), config.accountants, config.delta)
    run.write_json(run.evidence / "budgets.json", [b.model_dump(mode="json") for b in bounds])
    progress("account", 1, 1)
