"""The case of a run folder: what every phase after the first works on."""

from fedaudit.audit.case.case import Case
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings.config import Config, RecordedConfig
from fedaudit.fl.runtime.sharing import share_result


def open_case(run: RunDir, config: Config) -> Case:
    """What is known of the federation in this folder; built on demand, so opening one costs nothing."""
    if isinstance(config, RecordedConfig):
        return RecordedCase(config, run.artifacts, *run.find_truth())
    simulated, trained_on = config.require_simulated(), run.trained_on() or {}
    key = ("case", run.artifacts, config.model_dump_json(), tuple(trained_on.items()))
    return share_result(key, lambda: SimulatedCase(simulated, run.artifacts, trained_on))
