"""From what an attack claims of messages to people: whom it tested and hit, each once, over all that it read."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Examples, Truth
from fedaudit.attacks.evaluation.population import LuckyTrials, count_groups, keep_alike
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evaluation.trials import Reconstruction
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm

Rows = NDArray[np.int64]
CLEAR = 0.9  # of planted people who are named: as clearly as so many are
# From .8 of the distance of the next one on, the nearest is often so by chance (Lowe, IJCV 2004, sec. 7.1)
RATIO = 0.8**2  # of squared distances
OF_GROUPS = frozenset({Harm.ATTRIBUTE, Harm.CLIENT_FACT})  # what is a fact about a group already
NAMED = "named: nearer to a reconstruction than all else of its gallery"


@dataclass
class CountedPeople:
    """People as they are counted, message by message; a person whom two messages hit is hit once."""

    hit_means: str
    harm: Harm
    kind: Kind | None = None
    _tested: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _hit: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _held: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _unclaimed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _least: dict[int, int] = field(default_factory=dict)
    _luck: Share = field(default_factory=Share)
    _told: int = 0
    _by_chance: float = 0.0
    _lucky: dict[tuple[Hashable, tuple[int, ...]], Share] = field(default_factory=dict)
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

    def luck(self, hits: float, trials: float, person: Hashable = None, clients: Iterable[int] = ()) -> None:
        """So many of people whom nobody trained on would have been hit.

        `person` is the fingerprint of the example of one who is tried in the place of these clients, and maybe of
        others as well. Without one, this is the luck of no class and no client.
        """
        new = Share(hits=hits, trials=trials)
        if person is None:
            self._luck += new
        else:
            key = person, tuple(sorted(clients))
            self._lucky[key] = self._lucky.get(key, Share()) + new

    def tell(self, told: int, by_chance: float) -> None:
        """Of a client's people whose values leave luck hardly a chance: so many are hit, and would be by it."""
        self._told += told
        self._by_chance += by_chance

    def plant(self, client: int, hits: float, trials: int) -> None:
        """So many people planted through a client's code and the run's protections were hit."""
        self._planted[client] = self._planted.get(client, Share()) + Share(hits=hits, trials=trials)

    def people(self, truth: Truth) -> list[PeopleCount]:
        """All of it, and of groups; empty where nobody was tested.

        Where held-out people in the place of some clients are not like theirs, nobody of these was tested; where
        none are like those of any client, the luck that there is is of others, and the count says so.
        """
        if not any(self._tested.values()):
            return []
        lucky, strange, is_alike = self._list_lucky(), set[int](), True
        if self.harm is not Harm.RECORD:  # a copy is a copy, whoever is held out
            alike, clients = keep_alike(lucky, truth)
            others = {k for some in lucky.clients for k in some} - clients
            is_alike = any(rows for k, rows in self._tested.items() if k not in others)
            if is_alike:
                lucky, strange = alike, others
        held = {k: max(len(self._held[k]), self._least.get(k, 0)) for k in {*self._held, *self._least}}
        tested = {k: tuple(sorted(rows)) for k, rows in sorted(self._tested.items()) if k not in strange}
        hit = {k: tuple(sorted(self._hit[k])) for k in tested if self._hit[k]}
        people = PeopleCount(
            kind=self.kind,
            harm=self.harm,
            hit_means=self.hit_means,
            tested=tested,
            hit=hit,
            held=dict(sorted(held.items())),
            unclaimed={
                k: len(rows - self._hit[k]) for k, rows in sorted(self._unclaimed.items()) if k not in strange
            },
            luck=self._luck + self._join(lucky),
            told=self._told,
            by_chance=self._by_chance,
            is_alike=is_alike,
            groups=() if self.harm in OF_GROUPS else count_groups(tested, hit, lucky, truth),
            planted=dict(sorted(self._planted.items())),
        )
        return [people]

    def _join(self, lucky: LuckyTrials) -> Share:
        """Luck of held-out people; one that lies in one message by chance lies in no other for that."""
        if self.harm is Harm.RECORD:
            return sum(self._lucky.values(), Share())
        return Share.join_people(lucky.sum_by_person().values())

    def _list_lucky(self) -> LuckyTrials:
        names = list(self._lucky)
        return LuckyTrials([person for person, _ in names], [of for _, of in names], list(self._lucky.values()))


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
    """Whom the images of a claim name that has artifact, label and origin [k] and senders [s].

    Where it has the kind [k] of each message, and sent [s], the kind of what senders sent, of each kind apart.
    """
    trials, found = list(trials), list[PeopleCount]()
    for part in split_kinds(claim):
        columns = (claim[name][part.recorded].tolist() for name in ("artifact", "label"))
        rows = [(str(a), int(c)) for a, c in zip(*columns, strict=True)]
        here = {a for a, _ in rows}
        own = [t for t in trials if t.artifact in here or t.origin != "recorded"]
        found += count_named(own, rows, part.senders, truth, part.kind)
    return found


class KindOfMessages(NamedTuple):
    """What a claim says of the recorded messages of one kind; kind None: of all that there are."""

    kind: Kind | None
    recorded: NDArray[np.bool_]  # rows of the claim [k]
    senders: list[int]  # who sent such messages, read or not


def split_kinds(claim: Claim) -> list[KindOfMessages]:
    """The kinds that a claim tells apart: by its `kind` [k] and what senders `sent` [s], where it has them."""
    recorded, senders = claim["origin"] == "recorded", claim["senders"]
    if "kind" not in claim:
        return [KindOfMessages(None, recorded, senders.tolist())]
    return [
        KindOfMessages(Kind(kind), recorded & (claim["kind"] == kind), senders[claim["sent"] == kind].tolist())
        for kind in dict.fromkeys(claim["kind"][recorded].tolist())
    ]


def count_named(
    trials: Iterable[Reconstruction],
    claim_rows: Sequence[tuple[str, int]],
    senders: Iterable[int],
    truth: Truth,
    kind: Kind | None = None,
) -> list[PeopleCount]:
    """Whom the reconstructions of an attack name.

    Parameters
    ----------
    trials : one a message, in which the images claimed of it and all members stand.
    claim_rows : artifact and class of each claim about what clients sent, also of those that no trial is made of.
    senders : all clients that sent what the attack reads, whether it read them or not.
    truth : who stands behind each message.
    kind : of the messages, where the attack reads several.
    """
    found = CountedPeople(NAMED, Harm.RECONSTRUCTION, kind)
    for artifact, label in dict.fromkeys(claim_rows):
        for client, rows in truth.people(artifact, label).items():
            found.hold(client, rows)
    lucky: dict[tuple[int, bytes], bool] = {}
    behind: dict[int, set[int]] = {}  # whose place held-out people of a sender's messages take
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
            behind.setdefault(t.client, set()).update(owners.tolist())
            for mark, share in zip(fingerprints(t.held_out), t.named.held_out.max(axis=0).tolist(), strict=True):
                lucky[t.client, mark] = lucky.get((t.client, mark), False) or share > 0
        elif t.n == 1 and t.origin == REPLAYED:
            found.plant(t.client, float(bool(hit)), 1)
    for (sender, mark), is_hit in lucky.items():
        found.luck(float(is_hit), 1, person=mark, clients=behind[sender])
    for client in senders:
        if not found.holds(client):
            found.hold_at_least(client, len(truth.client_examples(client)))
    return found.people(truth)


def _find_furthest(trials: Sequence[Reconstruction]) -> float:
    """How far from whom they name, over all else, nine of ten reconstructions of planted people are at most.

    Never so far that somebody is often the nearest by chance. Any distance without planted people: nothing is
    known of how clearly an attack names.
    """
    planted = [t.named for t in trials if t.n == 1 and t.origin in (REPLAYED, UNPROTECTED)]
    apart = np.concatenate([np.zeros(0), *(n.apart[n.hits > 0] for n in planted)])
    return min(float(np.quantile(apart, CLEAR)), RATIO) if len(apart) else np.inf


def gather_people(truth: Truth, artifact: str, labels: Iterable[int]) -> tuple[Examples, Rows, Rows]:
    """Everybody of these classes behind a message: images, clients and rows [n] each."""
    found, owners, rows = list[Examples](), list[Rows](), list[Rows]()
    for label in labels:
        for client, some in truth.people(artifact, label).items():
            owners.append(np.full(len(some), client))
            rows.append(some)
        found.append(truth.find_members(artifact, label))
    empty = np.zeros(0, np.int64)
    return Examples.join(found), np.concatenate([empty, *owners]), np.concatenate([empty, *rows])


def collect_images(truth: Truth, client: int, artifact: str, classes: int) -> Examples:
    """What a client holds, or all clients of a sum."""
    return (
        truth.client_examples(client) if client != SEVERAL else gather_people(truth, artifact, range(classes))[0]
    )


def find_strangers(
    truth: Truth, clients: Collection[int], people: Examples, most: int, rng: np.random.Generator
) -> Examples:
    """So many of what these clients hold of the same classes, but for what stands among `people` as well.

    Clients are asked in an order of chance until there are enough, so that the cost grows with `most` alone.
    """
    own, found = set(fingerprints(people.x)), [people.only(np.zeros(0, np.int64))]
    for client in rng.permutation(sorted(clients)).tolist():
        if sum(map(len, found)) >= most:
            break
        theirs = truth.client_examples(client)
        alike = theirs.only(np.isin(theirs.y, people.y))
        found.append(alike.only(np.array([m not in own for m in fingerprints(alike.x)], bool)))
    every = Examples.join(found)
    return every.only(rng.permutation(len(every))[:most])


def count_labels(
    truth: Truth, clients: Sequence[int], artifacts: Sequence[str], classes: int
) -> NDArray[np.int64]:
    """[k, classes] examples of each class behind each of k messages."""
    held = (collect_images(truth, int(k), str(a), classes) for k, a in zip(clients, artifacts, strict=True))
    return np.stack([np.bincount(images.y, minlength=classes) for images in held])
