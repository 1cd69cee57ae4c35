"""What an attack says of single people: whom it tested and hit, and how often it is right where that is known.

A person is one example of one client. Whoever decides whether a harm is small needs more than a mean over
messages: every client is read, each person is asked about once, and the attack is seen to work on leaks that were
planted through every client's own code (audit/verdict/people.py makes bounds of these numbers).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fedaudit.fl.kinds import Kind

END = 0.01  # chance that a one-sided limit of luck, of sensitivity or of a threshold is missed
SMALL = 5  # people of a group, below which a fact about it is one about them


@dataclass(frozen=True, kw_only=True)
class Share:
    """So many hits in so many trials. A tie counts in part. Raises ValueError for more hits than trials."""

    hits: float = 0.0
    trials: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.trials:
            raise ValueError(f"{self.hits:g} hits of {self.trials} trials cannot be")

    def __add__(self, other: "Share") -> "Share":
        return Share(hits=self.hits + other.hits, trials=self.trials + other.trials)


@dataclass(frozen=True, kw_only=True)
class PeopleCount:
    """Whom one attack tested, each once, with all that it read of every round; and whom it hit.

    Rows are those of the training data of all clients; they name people within a run and nowhere else. Raises
    ValueError where more people are hit than were tested, more tested than are held, or one person counts twice.
    """

    kind: Kind | None = None  # what was read of them; None: all that the attack claims something of
    hit_means: str  # what a hit is, in words: "named among 100 images of the class"
    tested: Mapping[int, tuple[int, ...]]  # client -> rows of the people tested
    hit: Mapping[int, tuple[int, ...]]  # client -> rows of those hit
    held: Mapping[int, int]  # client -> people behind what was read of it, tested or not
    # client -> people not hit, of messages of which every image that was claimed names somebody: one more claim
    # might name one of them
    unclaimed: Mapping[int, int] = field(default_factory=dict)
    luck: Share  # people that nobody trained on, scored in the same way
    # client -> single people planted through its code, without the run's protections: does the attack work?
    planted: Mapping[int, Share] = field(default_factory=dict)
    # client -> the same through the run's protections: what is left?
    left: Mapping[int, Share] = field(default_factory=dict)
    false_alarms: float = 0.0  # membership: the rate that the threshold was set for; 0: a hit is no threshold

    def __post_init__(self) -> None:
        for client, rows in self.tested.items():
            tested, held = set(rows), self.held.get(client, 0)
            if len(tested) < len(rows) or len(rows) > held:
                raise ValueError(f"client {client} holds {held} people, and {len(rows)} of them were tested")
        for client, rows in self.hit.items():
            if len(set(rows)) < len(rows) or not set(self.tested.get(client, ())).issuperset(rows):
                raise ValueError(f"client {client}: somebody is hit who was not tested, or twice")
        for client, count in self.unclaimed.items():
            if not 0 <= count <= self.held.get(client, 0) - len(self.hit.get(client, ())):
                raise ValueError(f"client {client}: {count} people were not hit, of fewer whom it holds")
        if not 0 <= self.false_alarms < 1:
            raise ValueError(f"a rate of false alarms is at least 0 and less than 1, got {self.false_alarms:g}")


class Arrivals(NamedTuple):
    """People planted through one client's code and the run's protections."""

    arrived: int
    withheld: int  # in messages that a protection let nobody read


def count_withheld(people: PeopleCount, arrivals: Mapping[int, Arrivals]) -> PeopleCount:
    """The same people, where those planted in withheld messages count as not hit: a reader saw nothing of them.

    An attack may have tried some of the messages that arrived. As many in proportion are added of those that did
    not, rounded down, so that `left` is not understated.
    """
    left = dict(people.left)
    for client, (arrived, withheld) in arrivals.items():
        tried = left.get(client, Share())
        more = tried.trials * withheld // arrived if arrived else withheld
        if more:
            left[client] = tried + Share(trials=more)
    return replace(people, left=dict(sorted(left.items())))
