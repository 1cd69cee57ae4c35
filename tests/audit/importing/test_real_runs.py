"""Federations that run in Flower and NVFlare, recorded there and imported; `make frameworks` makes them.

FLOWER and NVFLARE name environments with flwr 1.42 and nvflare 2.9, which want other versions of typer, rich and
protobuf than fedaudit.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.survey import Survey
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.artifact import Channel
from fedaudit.reports.imported import ImportRecord

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.nightly


def run_example(framework: str, command: list[str], work: Path) -> None:
    """Run an example's script in its framework's environment; skip where there is none."""
    if not os.environ.get(framework):
        pytest.skip(f"{framework} names no environment: `make frameworks` makes one and runs this test")
    env = os.environ | {"FEDAUDIT": str(Path(sys.executable).with_name("fedaudit")), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode == 4:
        pytest.skip("Flower's simulation did not start within its 30 seconds: the machine is busy")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def take(work: Path, beside: Path, **stated: object) -> ImportRecord:
    """Import what was recorded with the subject that `init` writes of it."""
    subject = yaml.safe_load(write_first_subject(work / "inbox", work / "truth")) | stated
    config = validate(Config, {"subject": subject}, "test")
    sources = ImportSources(inbox=work / "inbox", subject=beside / "x", truth=work / "truth")
    return bring(
        RunDir.create(work / "run").path, config.set_origin(Origin(trust=True)), sources, lambda *_: None
    )


def statuses(found: ImportRecord) -> dict[str, str]:
    return {c.id: c.status for c in found.checks}


FLOWER = {  # app -> folder, nodes, rounds recorded, client app, statuses of its import
    "FedAvg": ("flower", 8, 4, "digits_app.client:app", {"aggregate": "holds", "fit": "holds", "who": "holds"}),
    # Nobody evaluates there, so that the last model is sent to nobody
    "FedAdam with BatchNorm": ("flower_adam", 5, 3, "app:client", {"aggregate": "open", "who": "holds"}),
}


@pytest.mark.parametrize("name", FLOWER)
def test_an_app_that_ran_in_flower_imports(name: str, tmp_path: Path) -> None:
    folder, nodes, rounds, client, expected = FLOWER[name]
    app, settings = EXAMPLES / folder, f"record-dir='{tmp_path}/inbox' truth-dir='{tmp_path}/truth'"
    script = str(EXAMPLES / "flower" / "app.sh")
    run_example("FLOWER", [script, str(app), str(tmp_path), str(nodes), client, settings], tmp_path)
    seen = Survey.from_inbox(tmp_path / "inbox")
    assert len(seen.heard) == nodes and seen.rounds == [*range(rounds)] and seen.errors == []
    found = take(tmp_path, app, model="net:Net")
    assert "contradicted" not in statuses(found).values() and expected.items() <= statuses(found).items()


NVFLARE = {  # workflow -> kinds that sites send
    "poc": {"model_delta", "num_steps"},  # provisioned, each site a process
    "recipe": {"model_delta", "num_steps"},
    "gather": {"local_model", "num_steps"},
    "scaffold": {"local_model", "num_steps", "control_delta"},
}


@pytest.mark.parametrize("workflow", NVFLARE)
def test_a_job_of_nvflare_imports(workflow: str, tmp_path: Path) -> None:
    script = str(EXAMPLES / "nvflare" / "job.sh")
    run_example("NVFLARE", [script, str(tmp_path), workflow], tmp_path)
    seen = Survey.from_inbox(tmp_path / "inbox")
    assert set(seen.sends(Channel.UPLINK)) == NVFLARE[workflow] and seen.rounds == [0, 1, 2]
    assert sorted(seen.nodes.values()) == ["dataserver", "observer-7", "site-1", "site-4"] and seen.errors == []
    assert ("clients:scaffold_c_diff" in seen.sends(Channel.DOWNLINK)) == (workflow == "scaffold")
    found = take(tmp_path, EXAMPLES / "nvflare")
    assert statuses(found)["aggregate"] == "holds" and "contradicted" not in statuses(found).values()
