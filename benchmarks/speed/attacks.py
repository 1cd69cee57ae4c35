"""The time that attacks take beside what their cards state: python -m benchmarks.speed.attacks [ATTACK ...]

`attacks: auto` and `fedaudit plan` believe the cards. Here every attack runs as an audit runs it, in the first
federation of FEDERATIONS that sends what it reads, at its own settings, and its processor seconds stand beside
the card's estimate at the same sizes. A card is off where they differ by more than TOLERANCE, times below a
second counted as one; then the command exits with 1. `--updates` lowers the replayed updates of each size and
number of steps, which gradient attacks take long for: the estimates follow. Attacks one after the other, so that
a list can be split; planting leaks and training the federation are not counted.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.null_audits.audits import FEDERATION, GAN, TRAINING
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer import generators
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.planning.choice import choose
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.fl.runtime import workers

TOLERANCE = 4.0  # times more or less
LEAST = 1.0  # seconds: what takes less is planned as nothing anyway
FEDERATIONS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "rebafl": {},
    "feddc_condense": {"method": {"iterations": 10, "rounds": 1}},
    "fedmix": {},
    "gandalf": {"method": {"gan": GAN, "rounds": 1, "labeler_rounds": 1, "groups": 2, "mediators": 2}},
    "private_fl_gan": {"method": {"gan": GAN, "rounds": 1}},
    "seol_kim": {},
    "fd": {},
    "power_of_choice": {},
    "fedcs": {},
    "secure aggregation": {"method": {"name": "rebafl"}, "protections": ["secure_aggregation"]},
}


class Time(NamedTuple):
    attack: str
    federation: str
    stated: float  # seconds
    measured: float
    status: str  # "ran", or why not

    @property
    def off(self) -> bool:
        """Whether the card is wrong by more than TOLERANCE."""
        ratio = max(LEAST, self.measured) / max(LEAST, self.stated)
        return self.status == "ran" and not 1 / TOLERANCE <= ratio <= TOLERANCE


def configured(name: str, attacks: Sequence[str] | None, updates: int) -> SimulatedConfig:
    """The audit of one of FEDERATIONS; None plans all attacks that apply."""
    more = FEDERATIONS[name]
    replayed = [[n, steps, updates] for n in (1, 2, 4, 8) for steps in (1, 5)]
    method = {"name": name, **TRAINING, **more.get("method", {})}
    return SimulatedConfig.model_validate(
        {
            "device": "cpu",
            "workers": 0,
            "federation": FEDERATION,
            "method": method,
            "protections": more.get("protections", []),
            "record": "all",
            "replay": {"sizes": [1, 2, 5, 20], "clients": 6, "groups": 150, "updates": replayed},
            "attacks": "auto" if attacks is None else list(attacks),
            "budget": 100_000,
            "evaluate_every": 100,
        }
    )


def assigned(wanted: Sequence[str], updates: int) -> dict[str, list[str]]:
    """Federation -> the attacks that run there: each in the first that sends what it reads."""
    found: dict[str, list[str]] = {name: [] for name in FEDERATIONS}
    taken: set[str] = set()
    for name in FEDERATIONS:
        config = configured(name, None, updates)
        for spec in choose(config, SimulatedCase(config)).specs:
            if spec.name not in taken and (not wanted or spec.name in wanted):
                taken.add(spec.name)
                found[name].append(spec.name)
    return found


def times(name: str, attacks: Sequence[str], updates: int) -> Iterator[Time]:
    """Of each of the attacks in one federation."""
    with tempfile.TemporaryDirectory() as folder, workers.one_thread():
        config, run = configured(name, attacks, updates), RunDir.create(Path(folder) / "run")
        execute(run, config, ("simulate",), lambda *_: None, skip_finished=True)
        case = open_case(run, config)
        chosen = choose(config, case)
        bench = Bench(case, list(chosen.cards.values()), config.replay)
        for i, spec in enumerate(chosen.specs):
            attack = build_plugin("attacks", spec, f"attacks[{i}]")
            generators.forget()  # as if it were the only one of those that share what they train
            started = time.process_time()
            found = attack_once(attack, spec.label, bench)
            measured = time.process_time() - started
            status = "ran" if found["status"] == "ran" else found["reason"]
            yield Time(spec.name, name, chosen.seconds[spec.label], measured, status)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("attacks", nargs="*", help="names; all")
    parser.add_argument("--updates", type=int, default=10, help="replayed updates of each size and steps; 10")
    given = parser.parse_args()
    print(f"{'attack':28}{'federation':20}{'stated':>8}{'measured':>10}{'ratio':>7}")
    off = False
    for name, attacks in assigned(given.attacks, given.updates).items():
        for t in times(name, attacks, given.updates) if attacks else ():
            ratio = "" if t.status != "ran" else f"{t.measured / max(t.stated, 1e-9):7.2f}"
            note = "  OFF" if t.off else "" if t.status == "ran" else f"  {t.status}"
            print(f"{t.attack:28}{t.federation:20}{t.stated:7.1f}s{t.measured:9.1f}s{ratio}{note}", flush=True)
            off |= t.off
    raise SystemExit(off)


if __name__ == "__main__":
    main()
