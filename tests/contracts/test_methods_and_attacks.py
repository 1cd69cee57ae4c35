"""Every method with every attack: each runs or says in a sentence why not; none ends an audit."""

import dataclasses
import random
from functools import cache

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Attack
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.open import open_case
from fedaudit.audit.observer.view import absent, grant_knowledge, observer, select_visible
from fedaudit.audit.phases.attack import UNMEASURED, Bench, attack_once
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from tests.audit.simulated import simulated
from tests.fl.test_all_methods import adapters, light, perceptron

pytestmark = pytest.mark.usefixtures("few_epochs")

ATTACKS = catalog.names("attacks")
# one that sends models and one that does not: the others at night
QUICK = ("fednova", "fd")
# enough that every line of an attack runs; whether it finds its leak is asked elsewhere
LIGHT = {
    "iterations": 3,
    "per_size": 2,
    "recorded": 2,
    "restarts": 2,
    "planted_steps": 10,
    "plays": 4,
    "reference_steps": 10,
    "images": 200,
    "steps": 5,
    "starts": 1,
    "shadows": 4,
    "references": 2,
    "epochs": 1,
    "least_steps": 10,
    "fine_tune_epochs": 1,
    "latent_steps": 5,
    "simulated": 40,
    "members": 20,
    "others": 60,
}


@cache
def federation(method: str) -> tuple[Case, Config]:
    """Two recorded rounds."""
    run, config = simulated(
        {
            "federation": {
                "dataset": "digits",
                "clients": 4,
                "partition": {"name": "dirichlet", "alpha": 1.0},
                "availability": "full",
                "model": perceptron(method),
                **adapters(method, "layers.0"),
                "holdout": {"auxiliary": 0.3, "reference": 0.4, "server": 0.1},
            },
            "method": {"name": method, **light(method, rounds=2)},
            "replay": {"updates": [[1, 1, 2]], "clients": 2, "sizes": [1], "groups": 4},
            "workers": 0,
            "attacks": [],
        }
    )
    return open_case(run, config), config


def bench(method: str) -> Bench:
    """With the planted leaks of all attacks, and the truth."""
    case, config = federation(method)
    return Bench(case, [made(a).card for a in ATTACKS], config.replay)


def made(name: str) -> Attack:
    cls = catalog.load("attacks", name)
    known = {f.name for f in dataclasses.fields(cls.Config)}
    attack: Attack = cls(cls.Config(**{k: v for k, v in LIGHT.items() if k in known}))
    return attack


def reason(name: str, bench: Bench) -> str:
    """Why the attack does not run; empty where it does."""
    what, case = made(name), bench.case
    artifacts = bench.artifacts(what.card)
    view = select_visible(artifacts, observer(case, artifacts, what.card), what.card)
    knowledge = grant_knowledge(case, what.card)
    lacks = what.card.explain_unfit(case.data.gives)
    return (
        lacks or absent(case.card, knowledge, artifacts, view, what.card) or what.not_applicable(view, knowledge)
    )


METHODS = catalog.names("methods")
EVERY = [pytest.param(m, marks=() if m in QUICK else pytest.mark.nightly) for m in METHODS]


@pytest.mark.parametrize("method", EVERY)
def test_every_attack_runs_to_its_end_or_says_why_not(method: str) -> None:
    here = bench(method)
    reasons = {name: reason(name, here) for name in ATTACKS}
    assert [n for n, text in reasons.items() if text and len(text.split()) < 4] == []
    assert method == "datacenter" or "" in reasons.values(), "no attack reads anything of this method"
    found = {n: attack_once(made(n), n, here) for n in ATTACKS}
    assert {n: f["reason"] for n, f in found.items() if f["status"] == "failed"} == {}
    ended = {n for n, f in found.items() if f["status"] == "ran" or f["reason"] == UNMEASURED}
    fitting = {n for n, text in reasons.items() if not text}
    # what a play finds out while it plays is said as well
    assert ended <= fitting and all(len(found[n]["reason"].split()) > 3 for n in fitting - ended)
    assert all(n.startswith("played_") for n in fitting - ended)


# those whose uploads are a part of the network, with attacks that ask the whole of it; all others at night
PARTS = ("splitfed_v1", "fedbabu")
ASK_ALL = ("loss_threshold", "lira", "label_counts_from_update")
DRAWN = [
    *((m, a) for m in PARTS for a in ASK_ALL),
    *(pytest.param(m, "", marks=pytest.mark.nightly) for m in METHODS),
]


@pytest.mark.parametrize(("method", "attack"), DRAWN)
def test_no_number_depends_on_what_was_drawn_before_in_the_process(method: str, attack: str) -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        here = bench(method)
        measured = {n: attack_once(made(n), n, here) for n in ([attack] if attack else ATTACKS)}
        found.append({n: f | {"seconds": 0} for n, f in measured.items()})
    first, second = found
    assert {n for n in first if repr(first[n]) != repr(second[n])} == set()
