"""Whatever clients send as prototypes: no verdict comes from how the auditor would have made them."""

from functools import cache
from typing import Any

import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.prototypes.prototype_membership import PrototypeMembership
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.schemas import AttackFile
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.verdict.people import PeopleBound, bound_people
from fedaudit.fl.threats.threat import Harm
from tests.audit.simulated import simulated

MEMBERSHIP, INVERSION = PrototypeMembership(), Ridge()
# what the attacks have to be able to read, however it is sent
LEAKS = ("Sender", "Normalised", "Scaled", "OwnScale", "Standardised", "Summed", "Squared", "First", "OtherLayer")
LEAKS += ("Permuted", "Log", "Maximum", "Projected")


@cache
def bench(sender: str) -> Bench:
    settings: dict[str, Any] = {
        "federation": {
            "dataset": "digits",
            "clients": 4,
            "partition": "iid",
            "availability": "full",
            "model": {"name": "mlp", "hidden": [32, 32]},
            "holdout": {"auxiliary": 0.4, "reference": 0.25},
        },
        "method": {"name": f"tests.audit.controls.senders:{sender}", "rounds": 1, "local_epochs": 2, "lr": 0.1},
        "workers": 0,
        "replay": {"sizes": [1], "clients": 4, "groups": 40},
    }
    run, config = simulated(settings)
    return Bench(open_case(run, config), [MEMBERSHIP.card, INVERSION.card], config.replay)


@cache
def file_of(attack: Attack, sender: str) -> AttackFile:
    return AttackFile.model_validate(attack_once(attack, "attack", bench(sender)))


def bound(attack: Attack, sender: str, harm: Harm) -> PeopleBound:
    """How many people the attack hit, for all of them together."""
    (people,) = (p for p in file_of(attack, sender).people if p.harm is harm)
    return bound_people(people, alpha=0.01)


@pytest.mark.sample(1)
@pytest.mark.dear("Log", "Summed", "Standardised", "OtherLayer", "Projected", "Maximum", "Permuted", "Scaled")
@pytest.mark.parametrize("sender", LEAKS)
def test_means_of_few_images_are_found_however_they_are_sent(sender: str) -> None:
    assert max(bound(MEMBERSHIP, sender, harm).at_least for harm in (Harm.MEMBERSHIP, Harm.DIFFUSE)) > 0


@pytest.mark.dear("Turned")
@pytest.mark.parametrize("sender", ["Noise", "Turned"])
def test_what_no_attack_can_read_is_neither_condemned_nor_acquitted(sender: str) -> None:
    found = bound(MEMBERSHIP, sender, Harm.MEMBERSHIP)
    assert found.at_least == 0 and found.reason.startswith("it is blind here")
    assert any("not read" in e.note for e in file_of(MEMBERSHIP, sender).evidence)


@pytest.mark.nightly
@pytest.mark.parametrize("sender", ["Noise", "Scaled"])
def test_no_inversion_condemns_with_too_few_trials(sender: str) -> None:
    assert bound(INVERSION, sender, Harm.RECONSTRUCTION).at_least == 0


@pytest.mark.nightly
def test_one_image_sent_for_all_of_its_class_is_found_as_somebody() -> None:
    assert bound(MEMBERSHIP, "First", Harm.MEMBERSHIP).at_least > 0
    assert any(e.measure == "member_first" and e.value > 0.9 for e in file_of(MEMBERSHIP, "First").evidence)


@pytest.mark.nightly
def test_the_evidence_says_what_was_read() -> None:
    assert any("read by playing" in e.note for e in file_of(MEMBERSHIP, "Summed").evidence)
    assert not any("read" in e.note for e in file_of(MEMBERSHIP, "Sender").evidence)
