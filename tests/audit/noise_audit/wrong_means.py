"""Central noise that is wrong in ways that show only over a run's rounds.

Every class differs from CentralDP in what it does, never in what its ledger says of it.
"""

import torch

from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.wire.protection import Averaging


class WrongMean(CentralDP):
    """Correct; `share` of the noise and the denominator are what a fault replaces."""

    def average(self, averaging: Averaging) -> None:
        before, model, came = averaging.before, averaging.model, averaging.delivered
        super().average(averaging)
        (said,) = averaging.releases
        ratio = came / self.denominator(averaging)
        for name, old in before.items():
            if old.is_floating_point():
                noise = torch.randn(old.shape, generator=self.generator(averaging)) * said.noise_std
                moved = old + ratio * (model[name] - old)
                averaging.model[name] = moved + noise * self.share(averaging)

    def denominator(self, averaging: Averaging) -> float:
        return averaging.expected

    def generator(self, averaging: Averaging) -> torch.Generator:
        return averaging.rng

    def share(self, averaging: Averaging) -> float:
        return 1.0


class DividesByThoseWhoCame(WrongMean):
    def denominator(self, averaging: Averaging) -> float:
        return max(1, averaging.delivered)


class LessWhereMoreCame(WrongMean):
    def share(self, averaging: Averaging) -> float:
        return min(1.0, averaging.expected / 2 / max(1, averaging.delivered))


class NothingInEmptyRounds(WrongMean):
    def share(self, averaging: Averaging) -> float:
        return float(averaging.delivered > 0)


class LessInTheLastRound(WrongMean):
    def share(self, averaging: Averaging) -> float:
        return 0.8 if averaging.round == 11 else 1.0


class SeedOfTheRound(WrongMean):
    def generator(self, averaging: Averaging) -> torch.Generator:
        self.drawn = getattr(self, "drawn", {})
        made = torch.Generator().manual_seed(averaging.round)
        return self.drawn.setdefault(averaging.round, made)
