"""Four sites in NVFlare, three rounds, recorded as the server receives and sends.

    job.sh WORK [WORKFLOW]               # makes the environment, the data and the recorder, and runs this file
    python job.py INBOX DATA WORK        # in an environment with nvflare 2.7 or newer

DATA holds what each site owns, SITE.npz with x [n, 1, 8, 8] and y [n]. The sites send changes of the model
through NVFlare's PercentilePrivacy, in its simulator. A fourth argument is `poc`, the same with a provisioned
server and sites, each a process of its own, or another workflow than the recipe's: `gather`, NVFlare's
ScatterAndGather with whole models, or `scaffold`, whose controls are sent as well.
tests/audit/importing/nvflare/run is what the recipe left with 2.9.0.
"""

import sys
from typing import Any

import numpy as np
from data import SITES
from fedaudit_recorder import Tap
from nvflare.apis.dxo import DataKind
from nvflare.app_common.aggregators import InTimeAccumulateWeightedAggregator
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.app_common.shareablegenerators import FullModelShareableGenerator
from nvflare.app_common.workflows.scaffold import Scaffold
from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.defs import FilterType
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.recipe.poc_env import PocEnv
from nvflare.recipe.sim_env import SimEnv

ROUNDS, TRAIN = 3, ["train"]
SCRIPT, FIRST = "train_site.py", np.zeros((10, 65), np.float32).tolist()


def run_recipe(inbox: str, data: str, work: str, is_deployed: bool) -> None:
    recipe = NumpyFedAvgRecipe(
        name="digits",
        model=FIRST,
        min_clients=len(SITES),
        num_rounds=ROUNDS,
        train_script=SCRIPT,
        train_args=data,
        params_transfer_type="DIFF",
    )
    recipe.add_client_output_filter(PercentilePrivacy(percentile=50, gamma=0.5), tasks=TRAIN)
    recipe.add_server_input_filter(Tap(inbox))  # these two lines record
    recipe.add_server_output_filter(Tap(inbox))
    if not is_deployed:
        recipe.execute(SimEnv(clients=[*SITES], num_threads=2, workspace_root=work))
        return
    run = recipe.execute(PocEnv(clients=[*SITES], num_clients=len(SITES)))
    if not run.get_result(timeout=300, clean_up=False):
        sys.exit(f"the deployed job ended with {run.get_status()}")


def run_workflow(inbox: str, data: str, work: str, workflow: str) -> None:
    """A job without a recipe: the workflow and its parts by hand."""
    job = FedJob(name=workflow, min_clients=len(SITES))
    job.to_server(NPModelPersistor(model=FIRST), id="persistor")
    controller: Any
    if workflow == "scaffold":
        controller = Scaffold(num_clients=len(SITES), num_rounds=ROUNDS, persistor_id="persistor")
    else:
        job.to_server(FullModelShareableGenerator(), id="shareable_generator")
        job.to_server(InTimeAccumulateWeightedAggregator(expected_data_kind=DataKind.WEIGHTS), id="aggregator")
        controller = ScatterAndGather(
            min_clients=len(SITES),
            num_rounds=ROUNDS,
            wait_time_after_min_received=0,
            aggregator_id="aggregator",
            persistor_id="persistor",
            shareable_generator_id="shareable_generator",
        )
    job.to_server(controller)
    job.to_server(Tap(inbox), filter_type=FilterType.TASK_RESULT)  # these two lines record
    job.to_server(Tap(inbox), filter_type=FilterType.TASK_DATA)
    arguments = f"{data} {workflow}"
    job.to_clients(ScriptRunner(script=SCRIPT, script_args=arguments, framework=FrameworkType.NUMPY), tasks=TRAIN)
    job.simulator_run(work, clients=[*SITES], threads=2)


def main(inbox: str, data: str, work: str, workflow: str = "recipe") -> None:
    if workflow in ("recipe", "poc"):
        run_recipe(inbox, data, work, workflow == "poc")
    else:
        run_workflow(inbox, data, work, workflow)


if __name__ == "__main__":
    main(*sys.argv[1:])
