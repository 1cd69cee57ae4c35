"""On a CUDA device the stacked executor agrees with the serial CPU loop. Skipped where there is none."""

import pytest
import torch

from fedaudit.fl.method import RoundMethod
from fedaudit.fl.runtime import plugin
from tests.fl.worlds import close, data, parts, run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("name", plugin.names("fedaudit.fl.methods"))
def test_stacked_clients_on_cuda_agree_with_the_cpu(name: str) -> None:
    def method() -> RoundMethod:
        found = plugin.load("fedaudit.fl.methods", name, RoundMethod)
        settings = {"rounds": 3, "local_epochs": 1, "batch_size": 8, "lr": 0.05}
        made: RoundMethod = plugin.configure(found, settings, "method")
        return made

    world = {"d": data(n=100), "index": parts(data(n=80), sizes=(7, 7, 7, 0, 7))}
    alone = run(method(), **world)  # type: ignore[arg-type]
    stacked = run(method(), workers="batched", device="cuda", **world)  # type: ignore[arg-type]
    assert close(alone, stacked, tolerance=1e-3)
