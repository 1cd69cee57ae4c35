"""What an attack says of single people: whom it tested and hit, and how often it is right where that is known.

A person is one example of one client. Whoever decides whether a harm is small needs more than a mean over
messages: every client is read, each person is asked about once, and the attack is seen to work on leaks that were
planted through every client's own code (audit/verdict/people.py makes bounds of these numbers).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Share:
    """So many hits in so many trials. A tie counts in part."""

    hits: float = 0.0
    trials: int = 0

    def __add__(self, other: "Share") -> "Share":
        return Share(hits=self.hits + other.hits, trials=self.trials + other.trials)


@dataclass(frozen=True, kw_only=True)
class People:
    """Whom one attack tested, each once, with all that it read of every round; and whom it hit.

    Rows are those of the training data of all clients; they name people within a run and nowhere else.
    """

    hit_means: str  # what a hit is, in words: "named among 100 images of the class"
    tested: Mapping[int, tuple[int, ...]]  # client -> rows of the people tested
    hit: Mapping[int, tuple[int, ...]]  # client -> rows of those hit
    held: Mapping[int, int]  # client -> people behind what was read of it, tested or not
    luck: Share  # people that nobody trained on, scored in the same way
    # client -> single people planted through its code, without the run's protections: does the attack work?
    planted: Mapping[int, Share] = field(default_factory=dict)
    # client -> the same through the run's protections: what is left?
    left: Mapping[int, Share] = field(default_factory=dict)
    false_alarms: float = 0.0  # membership: the rate that the threshold was set for; 0: a hit is no threshold
