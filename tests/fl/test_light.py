"""torch is put off in a light process, and nothing computes with what stands in its place."""

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = "import sys\nfrom fedaudit.fl.runtime import light\nsys.meta_path.insert(0, light.Finder())\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])


def test_modules_that_name_torch_are_imported_without_it() -> None:
    code = (
        "from fedaudit.fl.models.cnns import SmallCNN\nfrom fedaudit.fl.methods.fedavg import FedAvg\n"
        "from torch import nn\nimport torch.nn.functional as F\n"
        "assert issubclass(SmallCNN, nn.Module) and not isinstance(3, nn.Module)\n"
        "assert nn.Module is __import__('torch').nn.Module and FedAvg.card.title\n"
        "assert not light.is_torch_loaded()"
    )
    assert not (done := run(code)).returncode, done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "torch.zeros(3)",
        "torch.float32 + 1",
        "torch.ops['a']",
        "list(torch.Tensor)",
        "type('Net', (torch.nn.Module,), {})()",
        "type('Net', (torch.nn.Module,), {}).load",
        "__import__('torchvision')",
    ],
)
def test_whatever_computes_with_torch_is_refused_past_every_except(use: str) -> None:
    code = (
        f"import torch\ndef compute():\n    try:\n        {use}\n    except Exception:\n        pass\n"
        "try:\n    compute()\nexcept light.TorchNeeded:\n    print('needed')"
    )
    assert run(code).stdout == "needed\n"


@pytest.mark.nightly
def test_a_light_process_that_needs_torch_is_followed_by_its_parent_which_has_it() -> None:
    code = (
        "sys.meta_path.pop(0)\nimport os\nlight.begin()\nimport torch\n"
        "try:\n    print((lambda: float(torch.ones(3).sum()))())\nexcept light.TorchNeeded:\n    light.give_up()"
    )
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr


def test_the_exit_code_of_a_light_process_is_that_of_the_command() -> None:
    assert run("sys.meta_path.pop(0)\nlight.begin()\nsys.exit(3)").returncode == 3
