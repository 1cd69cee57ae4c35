"""Played message: would clients' own code have sent this with the person's data in, whatever is sent?

Clients' code is public, so an adversary plays a client that holds one person alone, in several copies: for what
training changed one step from the model that the client received, for all else the model that it uploaded. What
comes out is looked for in what the client sent: values that stand there only if the person is in
(attacks/messages/_exact.py), and a whitened likelihood ratio of the rest (_ratio.py), summed over rounds. A
client's other people are not known to the adversary; auxiliary people stand for them.

Nothing here knows what a message is called or what a person's data look like: hashes, losses, momentum and rows
of a table are read as updates and prototypes are.

Claim: readers [k], objects, from images to how well they fit; client [k] (-1: a sum); artifact [k] as text;
senders [s].
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.flagging import ScoredPeople, combine_scores, count_flagged
from fedaudit.attacks.evaluation.matching import score_client
from fedaudit.attacks.evaluation.membership import Scores, curve, evidence, halves, score_clusters
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.messages._doses import OTHERS, Dosed, Doses, count_seen, find_doses, mix
from fedaudit.attacks.messages._heard import ASSUMED, UPLOADS, Heard, gather
from fedaudit.attacks.messages._reader import MOST_NUMBERS, UNPLAYED, StateReader, UpdatePlays, UpdateReader
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import FALSE_ALARMS
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm, Position, ThreatModel

Values = NDArray[np.floating[Any]]
MOST_BYTES, BYTES = 2**31, 12  # of all plays of auxiliary people, and of one of their numbers
FEWEST_PLAYED = 100  # auxiliary people
STANDS = "what its data alone make stands in the message"
NUMBERS = (
    *(Kind.NUM_EXAMPLES, Kind.NUM_STEPS, Kind.LABEL_COUNTS, Kind.PROTO_COUNTS, Kind.CLASS_VOLUME),
    *(Kind.NOISED_LABEL_DIST, Kind.LOCAL_LOSS, Kind.CLUSTER_ID),
)
READ = (
    *UPLOADS,
    *(Kind.LOCAL_PROTOTYPES, Kind.PROXIES, Kind.MEAN_LOGIT_TABLE, Kind.FISHER, Kind.PUBLIC_LOGITS, Kind.FEATURES),
    *NUMBERS,
)


class PlayedMessage(Attack):
    card = Card(
        title="Membership by playing the clients' code",
        source="Sankararaman et al., Nature Genetics 2009, on whatever the clients' code makes of single people",
        aim=Aim.MEMBERSHIP,
        also_aims=(Aim.EXFILTRATION,),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(),
        also_reads=(*READ, Kind.GLOBAL_MODEL, Kind.AGGREGATE),
        aids=(Kind.GLOBAL_MODEL,),
        any_numbers=True,
        rounds="all",
        needs=(),
        learns="whether a given person's data were in a client's message, whatever it is called",
        does_not_show="what depends on a state of the client's that nobody else has, on secrets, or on an order "
        "of several people",
        remedy="send less: nothing of single people, or a sum over many of them with calibrated noise; aggregate "
        "messages securely",
        effort=Effort(seconds=60, grows=("network", "clients"), examples=5),
    )

    @settings
    class Config:
        auxiliary: AtLeastOne = Field(
            default=1000, description="the adversary's own people who are played, at most"
        )
        starts: AtLeastOne = Field(
            default=4, description="rounds from whose models updates are played; others are read by the nearest"
        )
        rounds: AtLeastOne = Field(
            default=3,
            description="newest rounds in which other messages are played; where they do not depend on the model "
            "older ones are read by the same plays",
        )
        people: AtLeastOne = Field(default=5000, description="people of all clients who are tested, about")
        held_out: AtLeastOne = Field(
            default=400, description="people whom nobody trained on, beside those of each client, at most"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        heard = self._gather(view, knowledge)
        maker, failures, found = _Maker(heard, knowledge, self.config, rng), list[UserError](), list[_Readers]()
        senders: dict[int | str, list[Heard]] = {}
        for h in heard:
            senders.setdefault(h.artifact if h.sender == SEVERAL else h.sender, []).append(h)
        for own in senders.values():
            try:
                found += maker.make(own)
            except UserError as error:
                failures.append(error)
        if not found:
            raise failures[0] if failures else UserError(UNPLAYED, hint="nothing of it can be played")
        readers = np.empty(len(found), object)
        readers[:] = found
        return {
            "readers": readers,
            "client": np.array([r.heard.sender for r in found], np.int64),
            "artifact": np.array([r.heard.artifact for r in found]),
            "senders": np.array(sorted({h.sender for h in heard} - {SEVERAL}), np.int64),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        asked = self._questions(claim, truth, rng)
        if not (pairs := asked.pairs):
            return []
        found = evidence(_pool(pairs), {}, others="people with such labels whom nobody trained on")
        silent = [halves(others, rng) for _, others in pairs]
        note = "people whom nobody trained on in the place of members"
        found += evidence(_pool(silent), {}, control="negative", note=note)[:1]
        if planted := [combine_scores(d.columns) for d in asked.doses.gate]:
            at, half = asked.doses.times, asked.doses.half
            seen = f"half of them are seen from {half} times on" if half else "fewer than half of them are seen"
            note = f"held-out people who stand up to {at} times among a client's; {seen}"
            found += evidence(_pool(planted), {}, control="positive", note=note)[:1]
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        asked = self._questions(claim, truth, rng)
        people, senders = asked.people, [a.client for a in asked.people]
        found = [
            replace(count, planted=count_seen(asked.doses.gate, FALSE_ALARMS[count.harm]))
            for count in count_flagged([s for a in people for s in a.columns], [], senders, truth)
        ]
        exact = CountedPeople(STANDS, Harm.RECORD)
        for a in people:
            rows = np.array(a.exact.rows, np.int64)
            exact.test(a.client, rows, rows[a.exact.scores > 0])
            for mark, is_there in zip(a.exact.held_out, (a.exact.held_out_scores > 0).tolist(), strict=True):
                exact.luck(float(is_there), 1, person=mark, clients=[a.client])
            exact.hold_at_least(a.client, len(truth.client_examples(a.client)))
        return found + exact.people(truth)

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        pairs = self._questions(claim, truth).pairs
        return [curve("played message", _pool(pairs))] if pairs else []

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.player is None:
            return UNPLAYED
        if not len(knowledge.auxiliary or ()):
            return "this attack needs auxiliary data, and the federation holds none back"
        return "" if self._gather(view, knowledge) else "no client sent anything that can be played"

    def _gather(self, view: Sequence[Artifact], knowledge: Knowledge) -> list[Heard]:
        return gather(view, READ, np.random.default_rng(0), knowledge.training)

    @cached_property
    def _questions(self) -> BuiltOnce["_Asked"]:
        return BuiltOnce(self._ask)

    def _ask(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> "_Asked":
        by_client: dict[int, list[_Readers]] = {}
        readers: list[_Readers] = claim["readers"].tolist()
        for reader, client, artifact in zip(
            readers, claim["client"].tolist(), claim["artifact"].tolist(), strict=True
        ):
            for k in sorted(truth.find_contributors(artifact)) if client == SEVERAL else [client]:
                by_client.setdefault(k, []).append(reader)
        total = sum(len(truth.client_examples(k)) for k in by_client)
        people = list[_Person]()
        for k, own in sorted(by_client.items()):
            most = -(-self.config.people * len(truth.client_examples(k)) // max(1, total))
            scored = score_client(k, truth, rng, partial(_score, own), self.config.held_out, most)
            if len(scored.rows):
                people.append(_Person(k, scored))
        tells = {a.client for a in people if any(np.ptp(c.held_out_scores) > 0 for c in a.columns)}
        telling = {k: own[-1] for k, own in by_client.items() if k in tells}
        behind = {
            k: sum(len(truth.client_examples(c)) for c in truth.find_contributors(own.heard.artifact)) or ASSUMED
            for k, own in telling.items()
        }
        doses = find_doses(
            behind, lambda k, times, few: telling[k].dose(k, behind[k], times, few, truth.unseen([k]).images, rng)
        )
        return _Asked(people, doses)


class _Person:
    """The people of one client as they were scored, one column a way of reading."""

    def __init__(self, client: int, scored: ScoredPeople) -> None:
        self.client = client
        self.exact = replace(scored, scores=scored.scores[:, 0], held_out_scores=scored.held_out_scores[:, 0])
        self.columns = [
            replace(scored, scores=scored.scores[:, i], held_out_scores=scored.held_out_scores[:, i])
            for i in range(1, scored.scores.shape[1])
        ]


class _Asked(NamedTuple):
    people: list[_Person]
    doses: Doses

    @property
    def pairs(self) -> list[tuple[Values, Values]]:
        """Of each client, the largest scores of its people, and of held-out people in their place."""
        return [pair for a in self.people if (pair := combine_scores(a.columns))[0].size]


class _Maker:
    """Makes readers; updates of rounds that are near each other share plays."""

    def __init__(
        self, heard: Sequence[Heard], knowledge: Knowledge, config: Any, rng: np.random.Generator
    ) -> None:
        assert knowledge.player is not None, "it does not apply without"
        aux = knowledge.granted_auxiliary
        self._player, self._training, self._classes = knowledge.player, knowledge.training, knowledge.classes
        drawn = rng.permutation(len(aux))
        self._seed = int(rng.integers(2**31))
        self._plays: dict[tuple[int, ...], UpdatePlays] = {}
        begun: dict[int, set[tuple[int, ...]]] = {}
        for h in heard:
            if h.target is not None:
                begun.setdefault(h.round, set()).add(identify_start(h))
        # where everybody begins with a model of their own, each has plays of its own: then from one round alone
        starts = config.starts if max(map(len, begun.values()), default=1) == 1 else 1
        rounds = sorted(begun, reverse=True)
        spread = np.linspace(0, max(0, len(rounds) - 1), starts).round().astype(int)
        self._played = sorted({rounds[i] for i in spread.tolist()}) if rounds else []
        plays = sum(len(begun[r]) for r in self._played)
        most = MOST_BYTES // (BYTES * MOST_NUMBERS * max(1, plays))
        self.auxiliary = aux.only(drawn[: min(config.auxiliary, max(FEWEST_PLAYED, most))])
        self._heard, self._rounds = heard, config.rounds
        self._alike = dict[tuple[int, frozenset[Kind]], list[Heard]]()  # by sender and kinds, by round
        for h in heard:
            self._alike.setdefault((h.sender, frozenset(h.rest)), []).append(h)

    def make(self, own: Sequence[Heard]) -> "list[_Readers]":
        """Of the messages of one client, or of one sum."""
        found, failures = list[_Readers](), list[UserError]()
        by_plays: dict[UpdatePlays, list[Heard]] = {}
        for heard in own:
            if heard.target is not None:
                by_plays.setdefault(self._find_plays(heard), []).append(heard)
        makers: list[tuple[Heard, Callable[[], UpdateReader | StateReader]]] = [
            (some[-1], partial(UpdateReader, some, plays, self.auxiliary)) for plays, some in by_plays.items()
        ]
        makers += [(heard, partial(self._read_rest, heard)) for heard in own if heard.rest]
        for heard, maker in makers:
            try:
                reader = maker()
                if isinstance(reader, UpdateReader):
                    found.append(_Readers(heard, reader, self))
                elif self._can_read(reader, heard):
                    reader.open()
                    found.append(_Readers(heard, reader, self))
            except UserError as error:
                failures.append(error)
        if failures and not found:
            raise failures[0]
        return found

    def plant(self, heard: Heard, holdings: Sequence[Examples]) -> "Iterator[list[_Readers]]":
        """Readers of what clients would have sent that hold such images."""
        for planted in heard.plant(self._player, holdings, self._seed, self._training):
            if planted is not None:  # where it says something of the model, that is read, which is quick
                yield self.make([planted if planted.target is None else replace(planted, rest={})])
            else:
                yield []

    def _read_rest(self, heard: Heard) -> StateReader:
        return StateReader(heard, self._player, self.auxiliary, self._seed, self._classes)

    def _can_read(self, reader: StateReader, heard: Heard) -> bool:
        """Of the newest rounds in which such messages were sent; of others where the model does not matter."""
        alike = self._alike.get((heard.sender, frozenset(heard.rest)), [])
        newest = sorted({h.round for h in alike})[-self._rounds :]
        if not alike or heard.round in newest or not reader.tells:
            return True
        return reader.play_in(next(h for h in alike if h.round in newest))

    def _find_plays(self, heard: Heard) -> UpdatePlays:
        """From the model of the nearest round that is played: the client's own, or the one for all."""
        near = min(self._played or [heard.round], key=lambda r: abs(r - heard.round))
        there = [h for h in self._heard if h.round == near and h.target is not None]
        mine = [h for h in there if h.sender == heard.sender]
        is_shared = len({identify_start(h) for h in there}) == 1
        chosen = mine[0] if mine else there[0] if is_shared else heard
        key = identify_start(chosen)
        if key not in self._plays:
            self._plays[key] = UpdatePlays(chosen, self._player, self._training, self._seed)
        return self._plays[key]


@dataclass(frozen=True)
class _Readers:
    """One way of reading a message, or several of one client."""

    heard: Heard
    reader: UpdateReader | StateReader
    maker: _Maker

    def dose(
        self, client: int, n: int, times: int, number: int, held_out: Examples, rng: np.random.Generator
    ) -> Iterator[Dosed]:
        """Play clients in the place of this one, among whose n people held-out ones stand so many times."""
        few = min(max(1, n // times**2), number, len(held_out) // 2)  # so that they do not drown each other
        if not few:
            return
        drawn = [held_out.only(rng.permutation(len(held_out))) for _ in range(-(-number // few))]
        people = [some.only(np.arange(few)) for some in drawn]
        mixes = [mix(some, times, self.maker.auxiliary, n, rng) for some in people]
        try:
            for some, order, readers in zip(people, drawn, self.maker.plant(self.heard, mixes), strict=True):
                others = order.only(np.arange(few, len(order)))
                others = others.only(np.flatnonzero(np.isin(others.y, some.y))[:OTHERS])
                both = Examples.join([some, others])
                scores, marks = _score(readers, both), fingerprints(others.x)
                yield Dosed(client, [_name_columns(client, column, marks) for column in scores.T[1:]])
        except UserError:  # the client's code refuses such images
            return


def identify_start(heard: Heard) -> tuple[int, ...]:
    """The same for uploads that began with the same arrays, in whichever mapping."""
    start = heard.target.start if heard.target else {}
    return tuple(id(values) for _, values in sorted(start.items()))


def _score(readers: Sequence[_Readers], people: Examples) -> Values:
    """[m, 1 + c] in whom a value stands, and log ratios by what is read, each summed over messages."""
    exact, sums = np.zeros(len(people)), dict[str, Values]()
    for reader in readers:
        fit = reader.reader.fit(people)
        exact = np.maximum(exact, fit.is_exact)
        for name, score in fit.scores.items():
            sums[name] = sums.get(name, 0.0) + score
    return np.stack([exact, *(sums[name] for name in sorted(sums))], axis=1)


def _name_columns(client: int, scores: Values, held_out: Sequence[Hashable]) -> ScoredPeople:
    """Scores of people, who are named by their place, followed by those of held-out ones."""
    few = len(scores) - len(held_out)
    return ScoredPeople(
        client=client, rows=range(few), scores=scores[:few], held_out=held_out, held_out_scores=scores[few:]
    )


def _pool(pairs: Sequence[tuple[Values, Values]]) -> Scores:
    return score_clusters([ins for ins, _ in pairs], [outs for _, outs in pairs])
