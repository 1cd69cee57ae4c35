"""Adversaries on adapters as on models: a backdoored and a scaled one through the mean, the median and flora."""

from functools import cache
from typing import Any

import pytest
import torch

from fedaudit.attacks.poisoning.backdoors import TOKEN, stamp_normalised_images
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.families.adapters import FOLDED
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.tasks.text import Text
from fedaudit.fl.threats.compromise import Compromise
from tests.attacks.poisoning.test_adversaries import adversary
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, World, data, parts, run

RULES: dict[str, Aggregator | None] = {"mean": None, "median": Median()}


@cache
def world(of: str, name: str | None, rule: str = "mean", **settings: Any) -> World:
    return run(
        method(of, rounds=6, local_epochs=2, lr=0.2),  # type: ignore[arg-type]
        d=data(n=100),
        index=parts(data(n=100), sizes=(20, 20, 20, 20, 20), skew=False),
        script=EVERYONE,
        adversary=adversary(name, clients=(1,), **settings) if name else None,
        aggregator=RULES[rule],
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("of", ["fedlora", "flora"])
def test_a_backdoored_adapter_goes_through_the_mean_and_less_through_the_median(of: str) -> None:
    replaced = world(of, "model_replacement").history[-1]
    bounded = world(of, "model_replacement", "median").history[-1]
    assert replaced["asr"] > 0.8 > 0.5 > bounded["asr"]
    assert bounded["accuracy"] > 0.5


@pytest.mark.sample(1)
@pytest.mark.parametrize("of", ["fedlora", "ffa_lora", "flora"])
def test_a_scaled_adapter_breaks_the_mean_and_not_the_median(of: str) -> None:
    honest = world(of, None).history[-1]["test_loss"]
    broken, held = (world(of, "sign_flip", rule, scale=30.0).history[-1]["test_loss"] for rule in RULES)
    assert not broken < honest + 0.5  # it may be no number any more
    assert held < honest + 0.5


def test_stacking_hands_on_a_scaled_adapter_in_full() -> None:
    folded = [run_one("flora", scale)["fc" + FOLDED].norm() for scale in (1.0, 4.0)]
    assert folded[1] > 3 * folded[0] > 0


def run_one(of: str, scale: float) -> World:
    """A single client, who sends so many times what it learnt."""
    return run(
        method(of, rounds=1),  # type: ignore[arg-type]
        script=[([1], [1])],
        adversary=adversary("backdoor", clients=(1,), scale=scale, poisoned=0.0),
    )


def test_a_text_is_triggered_by_its_first_token_alone() -> None:
    x = torch.randint(3, 9, (4, 6))
    changed = stamp_normalised_images(x, (0.0,), (1.0,), "patch")
    assert (changed[:, 0] == TOKEN).all() and torch.equal(changed[:, 1:], x[:, 1:]) and (x[:, 0] != TOKEN).all()


def test_a_backdoor_in_a_language_model_has_no_class_and_is_refused() -> None:
    compromise = Compromise(adversary("backdoor"), frozenset({0}))
    with pytest.raises(UserError, match="acts on classes, and the task of the data is text: the next token"):
        compromise.check("FedLoRA", [Kind.ADAPTER], True, Text())
