"""FedCS: the server asks as many clients as can answer before a deadline.

Nishio, Yonetani. Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge. ICC 2019.
arXiv:1804.08333, Algorithms 2 and 3.

Who is asked: starting with nobody, add the client that lengthens the estimated round
least, as long as the round ends before `deadline`; an infinite deadline is FedAvg. With `channel: shared`, as
in the paper, answers are uploaded one after the other, so a round is as long as the last training and all
uploads in turn; with `own`, the simulated clock's, it is as long as its slowest client, and everybody who is in
time is asked. The times are granted to the server, where the paper lets a random part of the clients report
their resources first.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.selection import Choice, Selection
from fedaudit.fl.clients.time_model import MEGABYTE
from fedaudit.fl.families.choosing import expected_times
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import size_bytes

Values = NDArray[np.float64]


class FedCS(Selection):
    title, source, timed = "FedCS", "arXiv:1804.08333, Alg. 2 and 3", True
    text = "FedAvg whose server asks only clients that it expects to answer before a deadline."

    @settings
    class Config:
        deadline: float = Field(
            default=2.0, gt=0, description="longest round that is planned, in simulated time; .inf asks everybody"
        )
        channel: Literal["own", "shared"] = Field(
            default="own",
            description="whether clients upload side by side, as on the simulated clock, or one by one",
        )

    def describe(self) -> str:
        longest = self.config.deadline
        when = "answer" if np.isinf(longest) else f"answer before {longest:g}, in simulated time"
        return f"the server asks as many clients as it expects to {when}"

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        if np.isinf(self.config.deadline):
            return super().choose_candidates(choice)
        times, model = expected_times(choice), size_bytes(choice.federation.initial) / MEGABYTE
        upload = np.zeros_like(times)
        if self.config.channel == "shared" and (clock := choice.federation.clock.model) is not None:
            upload = model / clock.workload.bandwidth / clock.capability
        if not times.min() < self.config.deadline:
            own = "method" if choice.method.config is self.config else "federation.selection"
            raise UserError(
                f"FedCS asks nobody: the fastest client takes {times.min():.3g}, and the deadline is "
                f"{self.config.deadline:g}",
                hint=f"set a longer {own}.deadline",
                key=f"{own}.deadline",
            )
        return choose_before(times - upload, upload, self.config.deadline)


def choose_before(ready: Values, upload: Values, deadline: float) -> list[int]:
    """Clients asked, ascending: [K] when each has trained, and how long its turn to upload takes."""
    chosen, length, left = list[int](), 0.0, set(range(len(ready)))
    while left:
        ends = {k: max(length, float(ready[k])) + float(upload[k]) for k in left}
        best = min(ends, key=lambda k: (ends[k], k))
        if not ends[best] < deadline:
            break
        chosen.append(best)
        left.remove(best)
        length = ends[best]
    return sorted(chosen)
