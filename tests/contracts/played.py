"""One play of an attack on its stage, as bytes. As a program: several attacks, on other threads, in another order."""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from attacks.attack import Claim
from attacks.evidence import Evidence
from fl.artifact import Artifact
from tests.contracts.attack_worlds import made, stage


def claimed(name: str, view: Sequence[Artifact] | None = None) -> Claim:
    """What the attack asserts; of its stage's own view where no other is given."""
    here = stage(name)
    seen = here.view if view is None else view
    return made(name).run(seen, here.knowledge, np.random.default_rng(0))


def measured(name: str, claim: Claim) -> list[Evidence]:
    return made(name).measure(claim, stage(name).truth, np.random.default_rng(1))


@cache
def evidence(name: str) -> list[Evidence]:
    return measured(name, claimed(name))


def told(found: Sequence[Evidence]) -> str:
    """Evidence as it is written: every digit of every number counts."""
    return json.dumps([dataclasses.asdict(e) for e in found])


def reordered(artifact: Artifact) -> Artifact:
    """The same artifact with its arrays in another order, as a file may give them back."""
    return dataclasses.replace(artifact, payload=dict(reversed(list(artifact.payload.items()))))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(threads: int, names: Sequence[str]) -> None:
    """Prints {name: digest of the evidence}; stages are set on one thread, attacks run on `threads`."""
    found = {}
    for name in names:
        torch.set_num_threads(1)
        view = [reordered(a) for a in stage(name).view]
        torch.set_num_threads(threads)
        found[name] = digest(told(measured(name, claimed(name, view))))
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
