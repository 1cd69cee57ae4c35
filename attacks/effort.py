"""About how long attacks take, as their cards state it."""

from dataclasses import dataclass
from typing import Literal

Size = Literal["pixels", "parameters", "network", "auxiliary", "replays", "updates", "clients", "rounds"]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What attacks work on."""

    pixels: int  # numbers in one example
    parameters: int  # numbers in the model
    layers: int  # of the model
    products: int  # multiply-adds of one example in the model
    auxiliary: int  # examples that an adversary may have
    replays: int  # replayed prototypes, of all sizes together
    updates: int  # images that are redrawn from uploads, replayed and recorded ones together
    clients: int
    rounds: int  # that are recorded

    def count_times(self, name: Size, examples: int) -> float:
        """How many times as large as DIGITS; of "network", as long as a step on so many examples takes."""
        if name == "network":
            return self._time_step(examples) / DIGITS._time_step(examples)
        ratio: float = getattr(self, name) / getattr(DIGITS, name)
        return ratio

    def _time_step(self, examples: int) -> float:
        """Milliseconds on one core, within a factor of two.

        As measured with networks of 14,000 to 11 million numbers: steps on 2 and on 20 examples, the gradient of
        one image, and 500 examples forward.
        """
        return 0.1 * self.layers + 2.3e-6 * self.parameters + 2.8e-8 * self.products * examples


DIGITS = Sizes(  # of the quickstart
    pixels=64,
    parameters=13_706,
    layers=4,
    products=91_776,
    auxiliary=503,
    replays=600,
    updates=114,
    clients=10,
    rounds=15,
)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """About how long an attack takes: seconds of one core at the sizes of DIGITS, growing with each size named.

    A stored model, not a measurement of the machine at hand: the same config plans the same attacks everywhere.
    An attack that states none has the default.
    """

    seconds: float = 30.0
    grows: tuple[Size, ...] = ("pixels",)
    examples: int = 1  # that go through the network at a time, where it grows with that
    beside: float = 0.0  # share of the seconds, at those sizes, for which no network runs
    settings: tuple[str, ...] = ()  # numbers of its Config, which it takes as many times as long with

    def estimate_seconds(self, sizes: Sizes) -> float:
        """Seconds at other sizes, with the settings that an attack has by itself."""
        found = self.seconds
        for name in self.grows:
            times = sizes.count_times(name, self.examples)
            found *= self.beside + (1 - self.beside) * times if name == "network" else times
        return found
