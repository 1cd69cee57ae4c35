"""Make a golden folder: a small audit, sealed, as this version leaves it. `python -m tests.golden.make NAME`.

It is kept as it is made: tests/golden/form_N/NAME/run, for the form N of this version's folders, beside the
public key of who sealed it, whose private key is thrown away. Later versions judge it for ever
(tests/golden/test_golden.py), so none is made anew in its place; those of the newest form are until a release.
"""

import shutil
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from typer.testing import CliRunner

from fedaudit.audit.attestation import seal
from fedaudit.audit.attestation.chain import FORM
from fedaudit.audit.cli.main import app
from tests.audit.attestation.forger import make_key

HERE = Path(__file__).parent
# What golden folders have in common: small, so that every file has a few tens of kB at most
SMALL = """
title: Golden folder
federation:
  dataset: digits
  limit: [60, 20]
  clients: 2
  availability: full
  model: {name: mlp, hidden: [8]}
  holdout: {auxiliary: 0.3, reference: 0.2}
workers: 0
report: [markdown]
"""
QUIET = "noise_audit: false\nvariants: []\n"
CONFIGS = {  # name -> what its config says besides
    "counts": f"""{QUIET}
method: {{name: rebafl, rounds: 1, local_epochs: 1}}
attacks: [count_recovery]
""",
    "noise": """
method: {name: fedavg, rounds: 1, local_epochs: 1, weighting: uniform}
protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 30.0}]
attacks: [loss_threshold]
variants: []
""",
    "sums": f"""{QUIET}
method: {{name: fedavg, rounds: 2, local_epochs: 1}}
protections: [secure_aggregation]
attacks: [sum_difference]
""",
    "attackers": f"""{QUIET}
method: {{name: fedavg, rounds: 2, local_epochs: 1}}
attacks: []
matrix: {{adversaries: [sign_flip], aggregators: [median]}}
""",
    "options": """
method: {name: fedavg, rounds: 1, local_epochs: 1}
attacks: [played_message]
noise_audit: false
variants:
  - {name: clipped, protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 1.0}]}
""",
}


def make(name: str, place: Path) -> None:
    """Run, seal and keep the folder; raises AssertionError where a command ends with an error."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "c.yaml").write_text(SMALL + CONFIGS[name])
        key = make_key(work)
        seal.COUNTS = timedelta(days=3650)  # a golden folder is judged for longer than a year
        for words in (
            ("run", work / "c.yaml", "--out", work / "run"),
            ("check", work / "run", "--sign", work / "sealer.pem"),
        ):
            done = CliRunner().invoke(app, [*map(str, words)])
            assert done.exit_code in (0, 1, 3), done.output
        (work / "run" / ".lock").unlink()
        shutil.copytree(work / "run", place / "run")
        shutil.copy(key, place / "key.pub.pem")


if __name__ == "__main__":
    make(sys.argv[1], HERE / f"form_{FORM}" / sys.argv[1])
