"""One play of an attack on its stage, as bytes. As a program: several attacks, on more threads, reordered."""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from fedaudit.attacks.attack import Claim
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.workers import one_thread
from tests.contracts.attack_worlds import made, stage


def claimed(name: str, view: Sequence[Artifact]) -> Claim:
    """What the attack asserts of a view."""
    return made(name).run(view, stage(name).knowledge, np.random.default_rng(0))


def measured(name: str, claim: Claim) -> list[Evidence]:
    return made(name).measure(claim, stage(name).truth, np.random.default_rng(1))


@cache
def claim(name: str) -> Claim:
    """Of the stage's own view."""
    return claimed(name, stage(name).view)


@cache
def evidence(name: str) -> list[Evidence]:
    return measured(name, claim(name))


def same(name: str, one: Claim, two: Claim) -> bool:
    """Whether two claims are equal to the last bit; what a rule among them says, their evidence tells."""
    rules = [k for k, v in one.items() if v.dtype == object]
    plain = all(one[k].tobytes() == two[k].tobytes() for k in one if k not in rules)
    return list(one) == list(two) and plain and (not rules or told(measured(name, two)) == told(evidence(name)))


def told(found: Sequence[Evidence]) -> str:
    """Evidence as it is written: every digit of every number counts."""
    return json.dumps([dataclasses.asdict(e) for e in found])


def reordered(artifact: Artifact) -> Artifact:
    """The same artifact with its arrays in another order, as a file may give them back."""
    return dataclasses.replace(artifact, payload=dict(reversed(list(artifact.payload.items()))))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(threads: int, names: Sequence[str]) -> None:
    """Prints {name: digest of the evidence}, on a machine of `threads`; attacks run as their phase runs them."""
    torch.set_num_threads(threads)
    found = {}
    for name in names:
        with one_thread():
            view = [reordered(a) for a in stage(name).view]
            found[name] = digest(told(measured(name, claimed(name, view))))
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
