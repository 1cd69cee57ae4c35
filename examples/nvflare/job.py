"""Four sites in NVFlare's simulator, three rounds, recorded as the server receives and sends.

    fedaudit tools recorder nvflare --out fedaudit_recorder.py
    python job.py INBOX DATA WORK        # in an environment with nvflare 2.7 or newer

DATA holds what each site owns, site-1.npz to site-4.npz with x [n, 1, 8, 8] and y [n]. The sites send changes of
the model through NVFlare's PercentilePrivacy. tests/audit/importing/nvflare/run is what it left with 2.9.0.
"""

import sys

import numpy as np
from fedaudit_recorder import Tap
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe.sim_env import SimEnv

SITES, TRAIN = 4, ["train"]


def main(inbox: str, data: str, work: str) -> None:
    recipe = NumpyFedAvgRecipe(
        name="digits",
        model=np.zeros((10, 65), np.float32).tolist(),
        min_clients=SITES,
        num_rounds=3,
        train_script="train_site.py",
        train_args=data,
        params_transfer_type="DIFF",
    )
    recipe.add_client_output_filter(PercentilePrivacy(percentile=50, gamma=0.5), tasks=TRAIN)
    recipe.add_server_input_filter(Tap(inbox), tasks=TRAIN)  # these two lines record
    recipe.add_server_output_filter(Tap(inbox), tasks=TRAIN)
    recipe.execute(SimEnv(num_clients=SITES, num_threads=2, workspace_root=work))


if __name__ == "__main__":
    main(*sys.argv[1:])
