"""From what an attack claims of messages to people: whom it tested and hit, each once, over all that it read."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Images, Truth
from fedaudit.attacks.evaluation.images import fingerprints
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evaluation.trials import Reconstruction
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.fl.kinds import Kind

Rows = NDArray[np.int64]
CLEAR = 0.9  # of planted people who are named: as clearly as so many are
NAMED = "named: nearer to a reconstruction than all else of its gallery"


@dataclass
class CountedPeople:
    """People as they are counted, message by message; a person whom two messages hit is hit once."""

    hit_means: str
    kind: Kind | None = None
    _tested: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _hit: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _held: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _unclaimed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _least: dict[int, int] = field(default_factory=dict)
    _luck: Share = field(default_factory=Share)
    _lucky: dict[Hashable, Share] = field(default_factory=dict)
    _planted: dict[int, Share] = field(default_factory=dict)

    def hold(self, client: int, rows: Collection[int] | Rows) -> None:
        """These rows stand behind what was read of a client."""
        self._held[client] |= {int(row) for row in rows}

    def hold_at_least(self, client: int, people: int) -> None:
        """So many people stand behind what a client sent, whether their rows are known or not."""
        self._least[client] = people

    def holds(self, client: int) -> bool:
        """Whether anybody is known to stand behind what was read of a client."""
        return client in self._held

    def test(self, client: int, rows: Collection[int] | Rows, hit: Collection[int] | Rows) -> None:
        """These rows were tested, and some of them hit."""
        self.hold(client, rows)
        self._tested[client] |= {int(row) for row in rows}
        self._hit[client] |= {int(row) for row in hit}

    def leave_unclaimed(self, client: int, rows: Collection[int] | Rows) -> None:
        """These rows stand behind a message of which each of the few claims hits somebody."""
        self._unclaimed[client] |= {int(row) for row in rows}

    def luck(self, hits: float, trials: int, person: Hashable = None) -> None:
        """So many of people whom nobody trained on would have been hit.

        `person` names one who is tried in the place of several clients, and so more than once.
        """
        if person is None:
            self._luck += Share(hits=hits, trials=trials)
        else:
            self._lucky[person] = self._lucky.get(person, Share()) + Share(hits=hits, trials=trials)

    def plant(self, client: int, hits: float, trials: int) -> None:
        """So many people planted through a client's code and the run's protections were hit."""
        self._planted[client] = self._planted.get(client, Share()) + Share(hits=hits, trials=trials)

    def people(self) -> list[PeopleCount]:
        """All of it; empty where nobody was tested."""
        if not any(self._tested.values()):
            return []
        held = {k: max(len(self._held[k]), self._least.get(k, 0)) for k in {*self._held, *self._least}}
        people = PeopleCount(
            kind=self.kind,
            hit_means=self.hit_means,
            tested={k: tuple(sorted(rows)) for k, rows in sorted(self._tested.items())},
            hit={k: tuple(sorted(rows)) for k, rows in sorted(self._hit.items()) if rows},
            held=dict(sorted(held.items())),
            unclaimed={k: len(rows - self._hit[k]) for k, rows in sorted(self._unclaimed.items())},
            luck=self._luck + Share.join_people(self._lucky.values()),
            planted=dict(sorted(self._planted.items())),
        )
        return [people]


def list_latest(claim: Claim, sorts: NDArray[Any] | None = None) -> Rows:
    """The rows of a claim about each sender's latest message, and about what the auditor planted.

    Evidence is about one message a sender, since messages of several rounds about the same people are no
    independent trials; people are counted over all rounds. Needs sender, origin and round [k]; `sorts` [k]: of
    each sort of message the latest.
    """
    columns = (claim["origin"].tolist(), claim["sender"].tolist(), claim["round"].tolist())
    sort = [""] * len(claim["origin"]) if sorts is None else sorts.tolist()
    newest: dict[tuple[str, int], int] = {}
    for origin, sender, round, name in zip(*columns, sort, strict=True):
        if origin == "recorded":
            newest[name, sender] = max(round, newest.get((name, sender), round))
    kept = [
        row
        for row, (origin, sender, round, name) in enumerate(zip(*columns, sort, strict=True))
        if origin != "recorded" or round == newest[name, sender]
    ]
    return np.array(kept, np.int64)


def count_claimed(claim: Claim, truth: Truth, trials: Iterable[Reconstruction]) -> list[PeopleCount]:
    """Whom the images of a claim name that has artifact, label and origin [k] and senders [s]."""
    columns = (claim[name].tolist() for name in ("artifact", "label", "origin"))
    rows = [(str(a), int(c)) for a, c, origin in zip(*columns, strict=True) if origin == "recorded"]
    return count_named(trials, rows, claim["senders"].tolist(), truth)


def count_named(
    trials: Iterable[Reconstruction], claim_rows: Sequence[tuple[str, int]], senders: Iterable[int], truth: Truth
) -> list[PeopleCount]:
    """Whom the reconstructions of an attack name.

    Args:
        trials: One a message, in which the images claimed of it and all members stand.
        claim_rows: Artifact and class of each claim about what clients sent, also of those that no trial is made
        of. senders: All clients that sent what the attack reads, whether it read them or not. truth: Who stands
        behind each message.
    """
    found = CountedPeople(NAMED)
    for artifact, label in dict.fromkeys(claim_rows):
        for client, rows in truth.people(artifact, label).items():
            found.hold(client, rows)
    lucky: dict[tuple[int, bytes], bool] = {}
    trials = list(trials)
    furthest = _find_furthest(trials)
    for t in trials:
        hit = [int(shares.argmax()) for shares in t.named.members if shares.any()]
        if t.origin == "recorded":
            _, owners, rows = gather_people(truth, t.artifact, dict.fromkeys(t.members.y.tolist()))
            is_clear = bool((t.named.apart[t.named.hits > 0] <= furthest).any())  # else luck named them
            every_claim_hits = is_clear and len(set(hit)) == len(t.claimed) < len(rows)
            for k in np.unique(owners).tolist():
                found.test(k, rows[owners == k], [rows[i] for i in hit if owners[i] == k])
                if every_claim_hits:
                    found.leave_unclaimed(k, rows[owners == k])
            for mark, share in zip(fingerprints(t.held_out), t.named.held_out.max(axis=0).tolist(), strict=True):
                lucky[t.client, mark] = lucky.get((t.client, mark), False) or share > 0
        elif t.n == 1 and t.origin == REPLAYED:
            found.plant(t.client, float(bool(hit)), 1)
    for (_, mark), is_hit in lucky.items():
        found.luck(float(is_hit), 1, person=mark)
    for client in senders:
        if not found.holds(client):
            found.hold_at_least(client, len(truth.client_images(client)))
    return found.people()


def _find_furthest(trials: Sequence[Reconstruction]) -> float:
    """How far from whom they name, over all else, nine of ten reconstructions of planted people are at most.

    Any distance without planted people: nothing is known of how clearly an attack names.
    """
    planted = [t.named for t in trials if t.n == 1 and t.origin in (REPLAYED, UNPROTECTED)]
    apart = np.concatenate([np.zeros(0), *(n.apart[n.hits > 0] for n in planted)])
    return float(np.quantile(apart, CLEAR)) if len(apart) else np.inf


def gather_people(truth: Truth, artifact: str, labels: Iterable[int]) -> tuple[Images, Rows, Rows]:
    """Everybody of these classes behind a message: images, clients and rows [n] each."""
    x, y, owners, rows = list[Any](), list[Rows](), list[Rows](), list[Rows]()
    for label in labels:
        for client, some in truth.people(artifact, label).items():
            owners.append(np.full(len(some), client))
            rows.append(some)
        x.append(truth.members(artifact, label))
        y.append(np.full(len(x[-1]), label))
    empty = np.zeros(0, np.int64)
    images = Images(x=np.concatenate(x), y=np.concatenate([empty, *y]))
    return images, np.concatenate([empty, *owners]), np.concatenate([empty, *rows])


def collect_images(truth: Truth, client: int, artifact: str, classes: int) -> Images:
    """What a client holds, or all clients of a sum."""
    return truth.client_images(client) if client != SEVERAL else gather_people(truth, artifact, range(classes))[0]


def count_labels(
    truth: Truth, clients: Sequence[int], artifacts: Sequence[str], classes: int
) -> NDArray[np.int64]:
    """[k, classes] examples of each class behind each of k messages."""
    held = (collect_images(truth, int(k), str(a), classes) for k, a in zip(clients, artifacts, strict=True))
    return np.stack([np.bincount(images.y, minlength=classes) for images in held])
