"""A case: what is known of one federation, whether we simulated it or somebody recorded it.

Phases, controls, observers and the audits of noise take a case and nothing more special. A simulation knows
everything of itself (audit/case/simulated.py). Of a recorded federation the auditor knows what crossed the
wire and what its operator states; what may be absent is None, or empty, and says so below. Whoever needs
something absent says in a sentence what is missing, and never guesses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.participation import Availability, Drawn
from fedaudit.fl.data.partition import Index, histogram
from fedaudit.fl.method import Card, LocalConfig, Method
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection


@dataclass(frozen=True, kw_only=True)
class About:
    """The federation in words, for the report."""

    dataset: str  # title of the data
    clients: tuple[str, ...]  # sentences: how the data are spread, who answers when
    model: str  # name of the network


class Case(Protocol):
    """Always known: the properties of the first group. The others may be absent, as each one says."""

    # What its operator states, and the wire shows ---------------------------------------------

    @property
    def simulated(self) -> bool:
        """Whether we ran it ourselves, so that a client can be run again to the same bits."""

    @property
    def streams(self) -> Streams:
        """Named randomness of the audit; of a simulation also of the run."""

    @property
    def clients(self) -> int:
        """How many there are, heard or not."""

    @property
    def card(self) -> Card:
        """What the method sends, on which channels."""

    @property
    def protections(self) -> list[Protection]:
        """Those that acted on the wire; in a recorded federation, those its operator claims."""

    @property
    def data(self) -> Data:
        """Classes, shape, mean and deviation; and whatever examples the auditor has, perhaps none."""

    @property
    def about(self) -> About: ...

    # What may be absent -----------------------------------------------------------------------

    @property
    def artifacts(self) -> Path | None:
        """Folder of the recorded messages (docs/artifact-format.md); None: nothing was recorded yet."""

    @property
    def training(self) -> LocalConfig | None:
        """Settings of the clients' training; None: not stated."""

    @property
    def method(self) -> Method | None:
        """The clients' own code; None: ours cannot play them, so nobody is trained once more."""

    @property
    def private(self) -> PrivateTraining | None:
        """How a protection makes clients train; None: no protection does, or none is claimed."""

    @property
    def make_net(self) -> Callable[[], Net] | None:
        """Builds the network, picklable; None: the architecture is not known."""

    def initial(self) -> State | None:
        """The weights before round 0; None: not known."""

    @property
    def parts(self) -> Mapping[int, Index]:
        """Client -> rows of data.train it holds; a client without an entry is one nobody told us of."""

    @property
    def unseen(self) -> Mapping[int, Index]:
        """Client -> rows of its own that it did not train on; may be empty."""

    @property
    def auxiliary(self) -> Index:
        """Rows of data.train that an adversary may have; may be empty. No client's, as the two below."""

    @property
    def reference(self) -> Index:
        """Rows that nobody trained on and no adversary has; may be empty."""

    @property
    def planted(self) -> Index:
        """Rows of the auditor's own that clients are played with where nobody told what any of them holds."""

    @property
    def spare(self) -> Index:
        """Rows the server trains on; may be empty."""

    @property
    def time_model(self) -> TimeModel | None:
        """The simulated clock; None: there is none."""

    @property
    def auxiliary_kind(self) -> Literal["same", "shifted"]:
        """Whether an adversary's images are of the clients' distribution."""

    @property
    def availability(self) -> Availability | None:
        """The code that draws who takes part; None: not ours."""

    def sampling(self, client: int | None) -> Drawn:
        """How a client (None: the likeliest) comes to take part; everybody in every round where not known."""

    @property
    def heard(self) -> Mapping[int, frozenset[int]] | None:
        """Round -> clients whose answer arrived; None where the record does not tell."""


def counts(case: Case) -> NDArray[np.int64]:
    """[clients, classes] examples of each class; rows of zeros for clients nobody told us of."""
    none = np.zeros(0, np.int64)
    held = [case.parts.get(k, none) for k in range(case.clients)]
    return np.asarray(histogram(case.data.train.y, held, len(case.data.classes)))
