"""How long attacks take here: what their cards estimate, times what this machine was seen to take.

After a run it is kept, in the user's index, how wrong the card of each attack was under that method with these
protections. An attack that was not run yet is as wrong as those that were; before the first run a short
measurement of this machine is compared with the one that the cards' seconds are of. Only what people read is
corrected: which attacks an audit runs, and in which order, rests on the cards alone and is the same everywhere.

Controls say how many steps of training they play clients for, and a step of the model is timed here.
"""

<<<<<<< HEAD
import math
import statistics
import time
from collections.abc import Mapping
from typing import Any
=======
import importlib
import statistics
import time
from collections.abc import Collection, Mapping
from functools import partial

import numpy as np
>>>>>>> 537bf75f (Fitting stops by a rule on held-out examples; planted leaks are part of what a plan estimates)

from fedaudit.audit.case.case import ClientCode, KnownFederation
from fedaudit.audit.phases.pace import measure_step
from fedaudit.audit.settings import index
from fedaudit.audit.settings.controls import Replay

<<<<<<< HEAD
ERRORS, MACHINE = "efforts", "machine"  # names in the index
SPEED = "speed"  # the one key of the machine
=======
ERRORS, MACHINE, CONTROL = "efforts", "machine", "control "
>>>>>>> 537bf75f (Fitting stops by a rule on held-out examples; planted leaks are part of what a plan estimates)
LEAST = 0.1  # seconds, below which an attack says nothing of a card
SIDE, PRODUCTS, TIMES = 384, 40, 5  # of the matrix products that are timed, and how often they are
REFERENCE = 0.047  # processor-seconds of these on the machine of the cards


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
    errors = {name: error for name, error in known.items() if isinstance(error, float) and 0 < error < math.inf}
    usual = statistics.median(errors.values()) if errors else measure_machine()
    return {name: estimate * errors.get(name, usual) for name, estimate in seconds.items()}


def estimate_controls(
    names: Collection[str],
    federation: KnownFederation,
    code: ClientCode,
    settings: Replay,
    setup: str,
    *,
    corrected: bool = True,
) -> dict[str, float]:
    """Seconds of the processor that the leaks of these controls take to plant, as far as they can be played.

    By the steps that a control counts, and, if `corrected`, by what it took on this setup before.
    """
    training, make_net, examples = code.training, code.make_net, federation.examples
    if training is None or not isinstance(make_net, partial):
        return {}
    rows = np.concatenate([examples.planted, *examples.parts.values()])
    clients = sum(map(bool, map(len, examples.parts.values()))) or federation.clients
    found = {}
    for name in sorted(filter(None, names)):
        module = importlib.import_module(f"fedaudit.audit.controls.{name}")
        steps: dict[int, int] = module.count_steps(clients, settings, training)
        seconds = sum(
            number * measure_step(federation, make_net, rows[:size], size) for size, number in steps.items()
        )
        error = index.recall(ERRORS, f"{CONTROL}{name} {setup}") if corrected else None
        found[name] = seconds * (error if isinstance(error, float) and 0 < error < np.inf else 1.0)
    return found


def measure_machine() -> float:
<<<<<<< HEAD
    """Times as long as the machine of the cards; measured once, in some hundredths of a second."""
    kept = index.recall(MACHINE, SPEED)
    if isinstance(kept, float) and 0 < kept < math.inf:
        return kept
    import numpy as np  # which a plan that was kept does not load

    ones, began = np.ones((SIDE, SIDE), np.float32), time.process_time()
    for _ in range(PRODUCTS):
        ones @ ones
    times = max(time.process_time() - began, 1e-3) / REFERENCE
    index.keep(MACHINE, SPEED, times)
    return times
=======
    """Times as long as the machine of the cards; measured once, in a fifth of a second."""
    kept = index.recall(ERRORS, MACHINE)
    if isinstance(kept, float) and 0 < kept < np.inf:
        return kept
    times = max(statistics.median(_time_products() for _ in range(TIMES)), 1e-3) / REFERENCE
    index.keep(ERRORS, MACHINE, times)
    return times


def _time_products() -> float:
    """Seconds of the processor; others on a busy machine make single ones differ by half."""
    ones, began = np.ones((SIDE, SIDE), np.float32), time.process_time()
    for _ in range(PRODUCTS):
        ones @ ones
    return time.process_time() - began
>>>>>>> 537bf75f (Fitting stops by a rule on held-out examples; planted leaks are part of what a plan estimates)
