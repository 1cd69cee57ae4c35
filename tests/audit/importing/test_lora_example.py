"""examples/flower-lora: its network in plain torch is the one that its subject states, on base and adapters."""

import importlib.util
from pathlib import Path
from types import ModuleType

import torch

from fedaudit.audit.case.networks import adapt_maker, maker
from fedaudit.audit.settings.config import RecordedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.fl.tasks.text import Text

EXAMPLE = Path(__file__).parents[3] / "examples/flower-lora"


def load_theirs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lora_net", EXAMPLE / "net.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def test_the_network_of_the_example_is_the_one_that_its_subject_states() -> None:
    theirs = load_theirs()
    config = validate(RecordedConfig, {"subject": read_yaml(EXAMPLE / "subject.yaml")}, "test")
    subject = config.subject
    assert subject.model is not None and subject.adapters is not None
    shape, classes = tuple(subject.examples.shape), len(subject.examples.classes)
    make = maker(subject.model, shape, classes, Text(), "subject.model")
    torch.manual_seed(1)
    net = theirs.GPT()
    base = {k: v.clone() for k, v in net.state_dict().items()}
    adapted = theirs.adapt(net)
    for name, value in adapted.state_dict().items():
        if "lora_B" in name:
            value.normal_()
    ours = adapt_maker(make, subject.adapters, base, folds=False, seed=0)()
    sent = {k.removeprefix(theirs.PREFIX): v for k, v in theirs.list_adapters(adapted).items()}
    assert sent.keys() == ours.state_dict().keys()
    ours.load_state_dict(sent)
    x = torch.randint(2, theirs.VOCABULARY, (3, theirs.LENGTH))
    x[1, 20:] = 0
    real = x != 0
    torch.testing.assert_close(ours.eval()(x)[real], adapted(x)[real], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.loss(x, torch.zeros(3)), theirs.compute_loss(adapted, x))
