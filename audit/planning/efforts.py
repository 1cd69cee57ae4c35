"""How long attacks take here: what their cards estimate, times what this machine was seen to take.

After a run it is kept, in the user's index, how wrong the card of each attack was under that method with these
protections. An attack that was not run yet is as wrong as those that were; before the first run a short
measurement of this machine is compared with the one that the cards' seconds are of. Only what people read is
corrected: which attacks an audit runs, and in which order, rests on the cards alone and is the same everywhere.
"""

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedaudit.audit.settings import index

if TYPE_CHECKING:
    from fedaudit.attacks.attack import Effort

ERRORS, MACHINE = "efforts", "machine"  # names in the index
SPEED = "speed"  # the one key of the machine
CONTROL = "control "  # before the name of a control, where that of an attack stands otherwise
LEAST = 0.1  # seconds, below which an attack says nothing of a card
SIDE, PRODUCTS, TIMES = 384, 10, 10  # of the matrix products that are timed, and how often they are
REFERENCE = 0.012  # processor-seconds of these on the machine of the cards


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What attacks work on."""

    pixels: int  # numbers in one example
    parameters: int  # numbers in the model
    layers: int  # of the model
    products: int  # multiply-adds of one example in the model
    convolved: int  # of these, in convolutions
    auxiliary: int  # examples that an adversary may have
    replays: int  # replayed prototypes, of all sizes together
    updates: int  # images that are redrawn from uploads, replayed and recorded ones together
    clients: int
    rounds: int  # that are recorded

    def time_step(self, examples: int) -> float:
        """Milliseconds of a step of the model on so many examples, on one core, within a factor of two.

        As measured with networks of 14,000 to 11 million numbers: steps on 2 and on 20 examples, the gradient of
        one image, and 500 examples forward.
        """
        return 0.1 * self.layers + 2.3e-6 * self.parameters + 2.8e-8 * self.products * examples

    def time_convolutions(self) -> float:
        """Milliseconds of a step that fits an image through the convolutions; without any, of a division."""
        return 0.1 * self.layers + 1.9e-8 * self.convolved if self.convolved else 0.005


DIGITS = Sizes(  # of the quickstart
    pixels=64,
    parameters=13_706,
    layers=4,
    products=91_776,
    convolved=82_944,
    auxiliary=503,
    replays=600,
    updates=114,
    clients=10,
    rounds=15,
)


def estimate_seconds(effort: "Effort", sizes: Sizes) -> float:
    """Seconds of one core at these sizes, with the settings that an attack has by itself."""
    found = effort.seconds
    for name in effort.grows:
        if name == "network":
            times = sizes.time_step(effort.examples) / DIGITS.time_step(effort.examples)
            found *= effort.beside + (1 - effort.beside) * times
        elif name == "convolutions":
            found *= sizes.time_convolutions() / DIGITS.time_convolutions()
        else:
            found *= getattr(sizes, name) / getattr(DIGITS, name)
    return found


def record_error(setup: str, attack: str, estimated: float, seconds: float) -> None:
    """Keep how many times as long as estimated an attack took on this setup, in seconds of the processor."""
    if max(estimated, seconds) >= LEAST:
        index.keep(ERRORS, f"{attack} {setup}", max(seconds, LEAST) / max(estimated, LEAST))


def recall_errors() -> dict[str, Any]:
    """All that was kept of errors, which every estimate that people read follows from."""
    return index.recall_all(ERRORS)


def correct_estimates(setup: str, seconds: Mapping[str, float]) -> dict[str, float]:
    """Estimates of the cards, by attack, as this machine takes them on this setup (`AttackChoice.setup`)."""
    kept = recall_errors()
    known = {name: kept.get(f"{name} {setup}") for name in seconds}
    errors = {name: times for name, error in known.items() if (times := _read_times(error)) is not None}
    usual = statistics.median(errors.values()) if errors else measure_machine()
    return {name: estimate * errors.get(name, usual) for name, estimate in seconds.items()}


def recall_error(setup: str, name: str) -> float | None:
    """How many times as long as estimated one took on this setup; None where that is not known."""
    return _read_times(index.recall(ERRORS, f"{name} {setup}"))


def measure_machine() -> float:
    """Times as long as the machine of the cards; measured once, in a tenth of a second."""
    if (kept := _read_times(index.recall(MACHINE, SPEED))) is not None:
        return kept
    times = max(min(_time_products() for _ in range(TIMES)), 1e-3) / REFERENCE
    index.keep(MACHINE, SPEED, times)
    return times


def _read_times(kept: Any) -> float | None:
    """How many times as long something takes, as it was kept; None for what is no such number."""
    return kept if isinstance(kept, float) and 0 < kept < math.inf else None


def _time_products() -> float:
    """Seconds of the processor, on one thread: threads that wait for each other on a busy machine count too."""
    import numpy as np  # which a plan that was kept does not load
    from threadpoolctl import threadpool_limits

    ones = np.ones((SIDE, SIDE), np.float32)
    with threadpool_limits(1):
        began = time.process_time()
        for _ in range(PRODUCTS):
            ones @ ones
        return time.process_time() - began
