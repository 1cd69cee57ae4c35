"""Claims about devices and their times, computed from the simulated clock alone: nothing is trained.

`oblivious`: a server that knows the network gets two answers of each client, with no layer frozen and with three,
and solves for the client's speed and number of examples (attacks/timing/speed_profile.py). The claim is refuted
where exact times give both of every client.

`shorter`: rounds with frozen layers beside FedAvg's (audit/claims/round_lengths.py), by what a client's time is
charged. The claim holds where Algorithm 1's charge gives the cut, and cannot be decided where only another does
or none: what choosing clients by their layers adds needs training.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedaudit.attacks.timing.speed_profile import Exchange, profile
from fedaudit.audit.claims.claim import TimedClaim
from fedaudit.audit.claims.round_lengths import LEFT, TimedFederation, compute_charge
from fedaudit.fl.clients.time_model import MEGABYTE
from fedaudit.fl.runtime.streams import Streams
from fedaudit.reports.format import number, percent
from fedaudit.reports.result import ClaimOutcome, ClaimRecord, Severity

CLIENTS = 200  # of whom two answers each are solved
FROZEN, EPOCHS = (0, 3), 3
JITTERS = (0.0, 0.05, 0.1, 0.2)
CHARGES = {
    "epochs": "all epochs with frozen layers (the public code's times)",
    "probe": "the first epoch with all layers (Algorithm 1)",
    "really": "one epoch more with all layers (what the public code runs)",
}


@dataclass(frozen=True, kw_only=True)
class KnownDevices:
    """Shares of clients of whom the server knows the class of device and the number of examples."""

    devices: float
    sizes: float
    error: float  # median relative error of the numbers of examples


def simulate_answers(jitter: float) -> KnownDevices:
    """What two answers of each client give, where times are off by a log-normal factor of that sigma."""
    federation, rng = TimedFederation("normal", "epochs"), Streams(7).numpy("claims", str(jitter))
    work, speed = federation.times.workload, federation.times.capability[:CLIENTS]
    size = federation.n[:CLIENTS]
    exchange = [(LEFT[0] + LEFT[n]) / MEGABYTE / work.bandwidth for n in FROZEN]
    training = [compute_charge(work, n, EPOCHS, "epochs") / work.compute for n in FROZEN]
    found = []
    for kappa, examples in zip(speed, size, strict=True):
        factors = rng.lognormal(0, jitter, len(FROZEN))
        times = [(a + b * examples) / kappa * f for a, b, f in zip(exchange, training, factors, strict=True)]
        answers = [Exchange(t, a, b, float("nan")) for t, a, b in zip(times, exchange, training, strict=True)]
        found.append(profile(answers)[:2])
    kappas, sizes = np.array(found).T
    tiers = np.unique(federation.times.capability)
    devices = np.abs(kappas[:, None] - tiers).argmin(axis=1) == np.abs(speed[:, None] - tiers).argmin(axis=1)
    error = np.abs(sizes - size) / size
    return KnownDevices(
        devices=float((devices & np.isfinite(sizes)).mean()),
        sizes=float((np.rint(sizes) == size).mean()),
        error=float(np.nanmedian(error)) if np.isfinite(error).any() else float("nan"),
    )


def score_timing(claim: TimedClaim) -> ClaimRecord:
    """The claim with everything computed again."""
    said: dict[str, Any] = {"id": claim.id, "title": claim.title, "source": claim.source, "words": claim.words}
    found = _measure_oblivious() if claim.says == "oblivious" else _measure_shorter(float(claim.cut or 0.0))
    return ClaimRecord(**said, **found, notes=list(claim.notes))


def _measure_oblivious() -> dict[str, Any]:
    doses = {jitter: simulate_answers(jitter) for jitter in JITTERS}
    exact = doses[0.0]
    both = exact.devices == exact.sizes == 1.0
    outcome = ClaimOutcome.REFUTED if both else ClaimOutcome.UNDECIDED
    return {
        "outcome": outcome,
        "severity": Severity.LOW if both else Severity.NONE,
        "verdict": f"{outcome.value.capitalize()}: from two answers of each of {CLIENTS} clients, one with no "
        f"layer frozen and one with {FROZEN[1]}, the server's clock gives the class of device of "
        f"{percent(exact.devices)} and the number of examples of {percent(exact.sizes)}.",
        "claimed": "oblivious",
        "table": [
            ["Sigma of the times", "Class of device known", "Number of examples known", "Its median error"],
            *(
                [number(j), percent(k.devices), percent(k.sizes), "0" if k.error < 1e-6 else percent(k.error)]
                for j, k in doses.items()
            ),
        ],
    }


def _measure_shorter(cut: float) -> dict[str, Any]:
    rows, cuts = [], dict[str, tuple[float, ...]]()
    for charge, words in CHARGES.items():
        both = [TimedFederation(law, charge) for law in ("uniform", "normal")]
        lengths = [(f.fedavg(EPOCHS), f.freezing(EPOCHS)[0]) for f in both]
        cuts[charge] = tuple(1 - b / a for a, b in lengths)
        plain, frozen = (" / ".join(f"{pair[i]:.2f}" for pair in lengths) for i in (0, 1))
        rows.append([words, plain, frozen, " / ".join(map(percent, cuts[charge]))])
    outcome = ClaimOutcome.HOLDS if min(cuts["probe"]) >= cut else ClaimOutcome.UNDECIDED
    least, most = ({c: f(v) for c, v in cuts.items()} for f in (min, max))
    return {
        "outcome": outcome,
        "severity": Severity.NONE,
        "verdict": f"{outcome.value.capitalize()}: freezing alone shortens rounds by {percent(least['probe'])} "
        f"to {percent(most['probe'])} as Algorithm 1 trains, by {percent(most['epochs'])} at most where its "
        f"first epoch is not charged, and by {percent(least['really'])} to {percent(most['really'])} for what "
        f"the public code runs; {percent(cut)} is claimed, and what choosing clients adds is not computed.",
        "claimed": f"{percent(cut)} shorter",
        "table": [["What takes time", "FedAvg", "Freezing", "Cut"], *rows],
    }
