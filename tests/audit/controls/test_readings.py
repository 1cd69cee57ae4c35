"""What clients average is read as they made it, though their images and models are their own."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from fedaudit.attacks.prototypes._variants import read
from fedaudit.attacks.prototypes._weights import prototypes
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.observer.view import granted, observer, seen
from fedaudit.audit.phases import simulate
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate

PARTITIONS = {
    "iid": {"name": "iid"},
    "two classes": {"name": "n_class", "classes_per_client": 2, "examples_per_client": 120},
    "skewed": {"name": "dirichlet", "alpha": 0.3},
}
SENT = {
    "Sender": "features",
    "Summed": "features, sum",
    "Normalised": "features, mean at length one",
    "Scaled": "features, times a constant",
    "OwnScale": "features, times a constant",
    "Squared": "features, squared",
}


@cache
def reading(sender: str, partition: str, clients: int, seed: int = 7) -> str:
    settings = {
        "seed": seed,
        "federation": {
            "dataset": "digits",
            "clients": 8,
            "partition": PARTITIONS[partition],
            "availability": "full",
            "model": {"name": "mlp", "hidden": [64, 32]},
            "holdout": {"auxiliary": 0.4, "reference": 0.1},
        },
        "method": {"name": f"tests.audit.controls.senders:{sender}", "rounds": 2, "local_epochs": 5, "lr": 0.1},
        "workers": 0,
        "attacks": [],
    }
    config = validate(Config, settings, "test")
    run = RunDir.create(Path(mkdtemp()) / "run")
    simulate.run(run, config, lambda *_: None)
    case, card = open_case(run, config), Ridge.card
    assert case.artifacts is not None
    sent = messages(case.artifacts, {*card.reads, *case.card.downlink}, card.rounds)
    known = granted(case, card, 0)
    return str(read(prototypes(seen(sent, observer(case, sent, card), card))[:clients], known)[1])


@pytest.mark.sample(6)
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("sender", SENT)
def test_four_clients_are_read_as_they_sent(sender: str, partition: str) -> None:
    assert reading(sender, partition, 4) == SENT[sender]


@pytest.mark.parametrize("clients", [1, 2, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_means_stay_means_for_few_and_many_clients(clients: int, seed: int) -> None:
    assert reading("Sender", "two classes", clients, seed) == "features"
