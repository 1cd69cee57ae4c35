"""What an attack says of single people: whom it tested and hit, and how often it is right where that is known.

A person is one example of one client. Whoever decides whether a harm is small needs more than a mean over
messages: every client is read, each person is asked about once, and the attack is seen to work on leaks that were
planted through every client's own code (audit/verdict/people.py makes bounds of these numbers).
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.records import check_types
from fedaudit.fl.threats.threat import Harm

END = 0.01  # chance that a one-sided limit of sensitivity is missed
SMALL = 5  # people of a group, below which a fact about it is one about them


@dataclass(frozen=True, kw_only=True)
class Share:
    """So many hits in so many trials. A tie counts in part, and a trial that others resemble as well.

    Raises ValueError for more hits than trials.
    """

    hits: float = 0.0
    trials: float = 0

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.trials:
            raise ValueError(f"{self.hits:g} hits of {self.trials:g} trials cannot be")

    def __add__(self, other: "Share") -> "Share":
        return Share(hits=self.hits + other.hits, trials=self.trials + other.trials)

    @classmethod
    def join_people(cls, people: Iterable["Share"]) -> "Share":
        """The trials of several people as so many independent ones; each person's own trials are alike.

        One person who is scored at ten clients is not ten people. Trials are divided by the design effect: the
        variance of people's hits over that of as many independent trials, at least 1. Where nobody or everybody
        is hit that cannot be seen, and each person counts once.
        """
        each = list(people)
        total = sum(each, cls())
        if not total.trials or total.trials <= len(each):
            return total
        of_one = total.trials / len(each)
        rate = total.hits / total.trials
        effect = of_one
        if 0 < rate < 1 and len(each) > 1:
            spread = statistics.variance(p.hits for p in each)
            effect = max(1.0, spread / (of_one * rate * (1 - rate)))
        return cls(hits=total.hits / effect, trials=total.trials / effect)


@dataclass(frozen=True, kw_only=True)
class GroupCount:
    """Of the people of one class, client or both, or the rarest: how many were tested and hit, and their luck.

    Luck is that of held-out people of the same group; no trials: nobody held out is of that group.
    """

    name: str  # "class 3", "client 2", "class 3 of client 2", "rarest tenth"
    tested: int
    hits: int
    luck: Share

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.tested:
            raise ValueError(f"{self.name}: {self.hits} of {self.tested} people cannot be hit")


@dataclass(frozen=True, kw_only=True)
class PeopleCount:
    """Whom one attack tested, each once, with all that it read of every round; and whom it hit.

    Where the harm is a fact about a client, clients count in the place of people: each holds one row, its own
    number.

    Rows are those of the training data of all clients; they name people within a run and nowhere else. Raises
    ValueError where more people are hit than were tested, more tested than are held, or one person counts twice;
    TypeError names a field of another type.
    """

    kind: Kind | None = None  # what was read of them; None: all that the attack claims something of
    harm: Harm
    hit_means: str  # what a hit is, in words: "named among 100 images of the class"
    tested: Mapping[int, tuple[int, ...]]  # client -> rows of the people tested
    hit: Mapping[int, tuple[int, ...]]  # client -> rows of those hit
    held: Mapping[int, int]  # client -> people behind what was read of it, tested or not
    # client -> people not hit, of messages of which every image that was claimed names somebody: one more claim
    # might name one of them
    unclaimed: Mapping[int, int] = field(default_factory=dict)
    luck: Share  # people that nobody trained on, scored in the same way
    told: int = 0  # of those hit, people whose own values leave hardly a chance that luck did it
    by_chance: float = 0.0  # people of such values whom luck would hit, of all that are held
    is_alike: bool = True  # whether these differ from those tested by nothing but that nobody trained on them
    groups: tuple[GroupCount, ...] = ()
    controls: tuple[Share, ...] = ()  # clients' people, scored against clients that are played without them
    # client -> single people planted through its code and the run's protections: does the attack see anybody?
    planted: Mapping[int, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)
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
        if not 0 <= self.told <= sum(self.held.values()) or not self.by_chance >= 0:
            raise ValueError(f"{self.told} people hit beyond luck, and {self.by_chance:g} by it, cannot be")
