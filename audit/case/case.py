"""A case: what is known of one federation, whether we simulated it or somebody recorded it.

Phases take a case and nothing more special; what they call takes the part that it reads. A simulation knows
everything of itself (audit/case/simulated.py). Of a recorded federation the auditor knows what crossed the
wire and what its operator states; what may be absent is None, or empty, and says so below. Whoever needs
something absent says in a sentence what is missing, and never guesses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.messages import read_arrivals
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.fl.clients.selection import Selection
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.participation import Availability, Drawn
from fedaudit.fl.data.partition import Index, histogram
from fedaudit.fl.families.layers import NetworkSize
from fedaudit.fl.method import Card, LocalConfig, Method
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection


@dataclass(frozen=True, kw_only=True)
class About:
    """The federation in words, for the report."""

    dataset: str  # title of the data
    clients: tuple[str, ...]  # sentences: how the data are spread, who answers when
    model: str  # name of the network
    is_invented: bool = False  # the data are of nobody


NO_ROWS: Index = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows of the training examples, by who has them. No row is in two groups; each group may be empty."""

    parts: Mapping[int, Index] = field(default_factory=dict)  # of clients; without an entry where nobody said
    unseen: Mapping[int, Index] = field(default_factory=dict)  # a client's own, that it did not train on
    auxiliary: Index = field(default_factory=lambda: NO_ROWS)  # an adversary may have these
    reference: Index = field(default_factory=lambda: NO_ROWS)  # nobody trained on them and no adversary has them
    planted: Index = field(
        default_factory=lambda: NO_ROWS
    )  # for clients to be played with, where no part is known
    spare: Index = field(default_factory=lambda: NO_ROWS)  # the server trains on these


@dataclass(frozen=True)
class Participation:
    """Who takes part in the rounds, as far as it is known.

    `artifacts` are the recorded messages, if there are any. `sampling` says how a client (None: the likeliest)
    comes to take part: everybody in every round where it is not known.
    """

    artifacts: Path | None
    availability: Availability | None = None  # the code that draws who takes part; None: not ours
    selection: Selection = field(default_factory=Selection)  # whom the method chooses, as far as it is known
    sampling: Callable[[int | None], Drawn] = lambda _: Drawn()
    empty_round: Literal["redraw", "skip"] = "redraw"  # what is done when nobody answers

    @property
    def sentences(self) -> tuple[str, ...]:
        """How clients come to take part, as far as it is known: who answers, and who is chosen."""
        drawn = self.availability.describe() if self.availability else ""
        return tuple(text for text in (drawn, self.selection.describe()) if text)

    @cached_property
    def heard(self) -> Mapping[int, frozenset[int]] | None:
        """Round -> clients whose answer arrived; None where the record does not tell."""
        return None if self.artifacts is None else read_arrivals(self.artifacts)


class Network(Protocol):
    """The network that clients train, as far as it is known."""

    @property
    def make(self) -> Callable[[], Net] | None:
        """Builds it, picklable; None: the architecture is not known."""

    @property
    def adapters(self) -> AdapterSettings | None:
        """What clients train in place of it; None: they train all of it."""

    @property
    def size(self) -> NetworkSize:
        """How large it is."""

    def initial(self) -> State | None:
        """The weights before round 0; None: not known."""


class KnownFederation(Protocol):
    """What is always known of a federation: its operator states it, or the wire shows it."""

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
    def private(self) -> PrivateTraining | None:
        """How a protection makes clients train; None: no protection does, or none is claimed."""

    @property
    def compromise(self) -> Compromise:
        """Who works against the others because its operator made it so; nobody in a recorded federation."""

    @property
    def data(self) -> Data:
        """Classes, shape, mean and deviation; and whatever examples the auditor has, perhaps none."""

    @property
    def examples(self) -> Split:
        """Who has which of the examples in `data`, as far as anybody said."""

    @property
    def network(self) -> Network: ...

    @property
    def about(self) -> About: ...


class Recording(Protocol):
    """What was recorded of a federation's rounds."""

    @property
    def artifacts(self) -> Path | None:
        """Folder of the recorded messages (docs/artifact-format.md); None: nothing was recorded yet."""

    @property
    def participation(self) -> Participation: ...


class ObservedFederation(KnownFederation, Recording, Protocol):
    """What is known of a federation and what was recorded of it, but not its clients' code."""


class ClientCode(Protocol):
    """What the auditor plays clients with; each part may be absent."""

    @property
    def method(self) -> Method | None:
        """The clients' own code; None: ours cannot play them, so nobody is trained once more."""

    @property
    def training(self) -> LocalConfig | None:
        """Settings of the clients' training; None: not stated."""

    @property
    def network(self) -> Network: ...

    @property
    def device(self) -> str:
        """Where its networks run: clients', adversaries' and controls' alike."""

    @property
    def time_model(self) -> TimeModel | None:
        """The simulated clock; None: there is none."""


class Case(ObservedFederation, ClientCode, Protocol):
    """All of it. A function that needs a part takes that part."""


def counts(clients: int, examples: Split, data: Data) -> NDArray[np.int64]:
    """[clients, groups] examples of each group, such as a class; rows of zeros for clients nobody told us of."""
    held = [examples.parts.get(k, NO_ROWS) for k in range(clients)]
    return np.asarray(histogram(data.group(data.train), held, max(1, len(data.groups))))
