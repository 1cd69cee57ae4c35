"""Every attack: a card in plain words, a control that exists, and a reason where there is nothing to read."""

import importlib.util
from dataclasses import fields, replace

import pytest

from fedaudit.attacks.attack import Attack, Effort, Knowledge
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.evidence.files import card_fields
from fedaudit.audit.planning.efforts import DIGITS, estimate_seconds
from fedaudit.audit.planning.load import SHIPPED
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import load
from fedaudit.audit.verdict.findings import describe_attack
from fedaudit.fl.families.layers import NetworkSize
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.plugin import configure
from tests.contracts.words import odd

NAMES = catalog.names("attacks")


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_complete_and_in_plain_words(name: str) -> None:
    card = catalog.load("attacks", name).card
    assert card.title and card.source
    for text in (card.learns, card.does_not_show, card.remedy):
        assert text.strip() == text and len(text.split()) >= 3
    assert not odd(" ".join((card.title, card.learns, card.does_not_show, card.remedy, card.uncounted)))


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_kinds_that_exist_and_none_twice(name: str) -> None:
    card = catalog.load("attacks", name).card
    assert card.reads and set(card.reads) <= set(Kind) and len(set(card.reads)) == len(card.reads)
    assert card.targets and set(card.aids) <= set(card.reads)


@pytest.mark.parametrize("name", NAMES)
def test_it_states_its_effort_by_which_auto_plans_it(name: str) -> None:
    effort = catalog.load("attacks", name).card.effort
    assert effort.seconds > 0 and effort != Effort()


@pytest.mark.parametrize("name", ["dlg", "grnn_updates", "idlg", "inverting_gradients"])
def test_steps_on_the_smallest_model_take_their_time_too(name: str) -> None:
    """On 650 weights these took a quarter to a half of what they take on 13,706."""
    effort = catalog.load("attacks", name).card.effort
    linear = replace(DIGITS, parameters=650, layers=1, products=640)
    assert estimate_seconds(effort, linear) > 0.2 * effort.seconds
    assert estimate_seconds(effort, DIGITS) == effort.seconds


RESNET = NetworkSize(parameters=11_173_962, layers=21, products=555_422_720, convolved=555_417_600)
LINEAR = NetworkSize(parameters=130, layers=1, products=128, convolved=0)
# How many times as long as the quickstart's network others were seen to take, 2026-11-27: the gradient of one
# image, a step on 20, and 500 forward
SEEN = {
    "small_cnn on 28 x 28": (
        NetworkSize(parameters=105_866, layers=4, products=1_117_056, convolved=1_016_064),
        (1.9, 2.9, 12.2),
    ),
    "small_cnn on 32 x 32 x 3": (
        NetworkSize(parameters=136_874, layers=4, products=1_754_000, convolved=1_622_016),
        (2.3, 3.8, 19.2),
    ),
    "resnet18 on 32 x 32 x 3": (RESNET, (195, 629, 2660)),
}


@pytest.mark.parametrize("network", SEEN)
def test_a_step_of_a_larger_network_is_stated_within_a_factor_of_two(network: str) -> None:
    size, seen = SEEN[network]
    sizes = replace(DIGITS, **vars(size))
    for examples, times in zip((1, 20, 500), seen, strict=True):
        assert times / 2 <= sizes.time_step(examples) / DIGITS.time_step(examples) <= 2 * times


# How many times as long attacks took on that ResNet-18, with 194 auxiliary images, as on ten clients of digits
TOOK = {
    "loss_threshold": 107,
    "rmia": 116,
    "label_counts_from_update": 149,
    "label_counts_from_gradient": 142,
    "analytic": 20,
}


@pytest.mark.parametrize("name", TOOK)
def test_an_attack_on_a_larger_network_is_stated_within_a_factor_of_two(name: str) -> None:
    sizes = replace(DIGITS, **vars(RESNET), auxiliary=194)
    effort = catalog.load("attacks", name).card.effort
    assert TOOK[name] / 2 <= estimate_seconds(effort, sizes) / effort.seconds <= 2 * TOOK[name]


def test_what_enters_the_first_dense_layer_takes_long_only_where_convolutions_stand_before_it() -> None:
    """On this network analytic recovery was stated at 21 seconds and took .3, and a budget had no room for it."""
    effort = catalog.load("attacks", "analytic").card.effort
    assert estimate_seconds(effort, replace(DIGITS, **vars(LINEAR))) < 0.6
    assert estimate_seconds(effort, replace(DIGITS, **vars(RESNET))) > 10 * effort.seconds


def test_the_sizes_that_cards_are_of_are_those_of_the_quickstart() -> None:
    case = SimulatedCase(load(SHIPPED / "quickstart.yaml").require_simulated())
    size = case.network.size
    assert size == NetworkSize(**{f.name: getattr(DIGITS, f.name) for f in fields(NetworkSize)})
    assert (DIGITS.clients, DIGITS.auxiliary) == (case.clients, len(case.examples.auxiliary))


@pytest.mark.parametrize("name", NAMES)
def test_twice_of_what_its_settings_ask_for_takes_twice_as_long(name: str) -> None:
    attack = catalog.load("attacks", name)
    usual = configure(attack, {}, "")
    assert usual.count_times() == 1
    for setting in usual.card.effort.settings:
        twice = configure(attack, {setting: 2 * getattr(usual.config, setting)}, "")
        assert twice.count_times() == 2 * usual.count_times()


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_on_people_counts_them_or_its_finding_says_why_not(name: str) -> None:
    attack = catalog.load("attacks", name)
    card = attack.card
    is_counting = attack.count_people is not Attack.count_people
    assert is_counting != bool(card.uncounted) if card.aim.is_against_people else not card.uncounted
    file = {"name": name, "card": card_fields(card), "status": "ran", "reason": "", "read": ["local_model"]}
    assert card.uncounted.rstrip(".") in describe_attack(file, None).reason


@pytest.mark.parametrize("name", NAMES)
def test_the_control_that_a_card_names_exists(name: str) -> None:
    control = catalog.load("attacks", name).card.control
    assert control == "" or importlib.util.find_spec(f"fedaudit.audit.controls.{control}")


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_view_raises_nothing_and_a_reason_is_a_sentence(name: str) -> None:
    attack: Attack = catalog.load("attacks", name)()
    reason = attack.not_applicable([], Knowledge(classes=10, shape=(1, 8, 8)))
    assert reason == "" or len(reason.split()) >= 3
