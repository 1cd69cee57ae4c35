"""A worker's site: one way to ask of the network, and a sentence for names that are gone."""

import numpy as np
import torch

from fedaudit.fl.data.dataset import Data
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.families.layers import layers
from fedaudit.fl.federation import Holdings
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.rehearsal import judge_model
from tests.fl.worlds import TinyNet, data, parts


def make_site() -> Site:
    examples: Data = data()
    return build_site(FedAvg(FedAvg.Config()), Holdings(examples, parts(examples), Streams(5)), TinyNet, "cpu")


def test_a_site_says_what_a_function_makes_of_the_network_that_clients_train() -> None:
    site = make_site()
    assert site.inspect(layers) == layers(site.trained)
    assert site.inspect(type) is TinyNet


def test_a_model_that_diverged_answers_nothing_and_class_0_least_of_all() -> None:
    site = make_site()
    site.serve({k: torch.full_like(v, torch.nan) for k, v in site.net.state_dict().items()})
    right, seen, _, _, hit = site.score(np.arange(len(site.data.test.y)))
    assert int(right.sum()) == 0 and int(seen[0]) > 0 and not hit.any()
    nothing = judge_model(
        lambda x: torch.full((len(x), 3), torch.nan),
        torch.zeros(4, 1),
        torch.ones(4).long(),
        3,
        (torch.zeros(4, 1), 0),
    )
    assert not nothing.turned.any()
