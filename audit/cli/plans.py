"""What `fedaudit plan` prints, kept: where all that a plan follows from is the same, nothing is planned twice.

That is the config, our code and what is installed, files of data and rules, and how long attacks took here. Files
count by size and times: a data set of gigabytes is known again at once, and one that was changed, replaced or put
where none was is planned anew.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedaudit.audit.case.digests import of_value
from fedaudit.audit.cli.plan_lines import Rows
from fedaudit.audit.planning.efforts import recall_errors
from fedaudit.audit.settings import index
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.audit.settings.resolve import digest_files, resolve
from fedaudit.fl.runtime.machine import choose_device
from fedaudit.fl.runtime.sharing import sharing


@contextmanager
def _without_collector() -> Iterator[None]:
    """Modules live as long as the process: looking for garbage among them takes a sixth of a plan's time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@sharing()
@_without_collector()
def plan_audit(config: Config) -> Sequence[str | Rows]:
    """The plan, sentences and lists; raises UserError for what `run` would refuse."""
    simulated, key = config.require_simulated(), ""
    if simulated.device == "cuda":  # which the machine may have had when a plan was kept
        with locate_errors(simulated.file):
            choose_device(simulated.device)
    if files := digest_files(simulated):
        key = of_value([resolve(config), files, recall_errors()])
    kept = index.recall("plans", key) if key else None
    if isinstance(kept, list):
        return kept
    from fedaudit.audit.cli.preflight import Forecast

    lines = list(Forecast(simulated).describe())
    if key:
        index.keep("plans", key, lines)
    return lines
