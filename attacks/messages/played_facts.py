"""Played facts: what any message tells of its client, learnt from plays of the client's code.

Sankararaman et al., Nature Genetics 2009, ask whether one person is in a sum; here the question is what else a
message says, whatever it is called: how many examples a client holds, how many of each class, and which classes.
Clients' code and protections are public, so an adversary plays a client many times on people of its own, in other
numbers and other mixes of classes, and sees how what would arrive depends on them: whether a message comes, how
long it is, which rows it has, in which order, its numbers. Each fact is read by itself, from the kind of message
and by the regression that tell it best of plays that were left out: one regression for all facts loses most of
them.

A fact is claimed where R2 on plays that were left out is at least LEAST_R2, and a number only where it is right,
to the last example, in more than half of those in which there are any: a number that was rounded, or made noisy,
is not known. In half of the plays each class is left out with probability 1/2, since of large clients a mix alone
leaves hardly any out.

All recorded rounds are played, and of each fact what is claimed from the round that tells it best of plays.
Updates are not read, which other attacks do; the model that a client uploaded is what it is played with. Clients
that hold more than MOST examples are played with so many. Sums of several clients are left out.

A group, or a client, is known where the most telling claim about it is right: a number before whether there are
any, all numbers before how many there are, and that before which classes. What is right of nearly everybody is
luck, and would hide the rest.

The planted leak are plays that were left out of all fitting, whose truth is known; the negative control holds
claims against another client.

Claim: client int64 [k]; n int64 [k], counts int64 [k, C] and present int64 [k, C] (1: holds some, 0: none), -1
where not claimed; r2 float64 [k, 2 C + 1] and source, as text, of n, counts and presence; kinds [k], what was
read, as text. Of plays that were left out [k, h, 2 C + 1]: said, -1 where not claimed, and true.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Player, Truth
from fedaudit.attacks.evaluation.assertions import by_client, format_counts, name_classes
from fedaudit.attacks.evaluation.groups import COUNTED, HELD, SIZE, Claimed, Counts, Fact, Mask, count_facts
from fedaudit.attacks.evaluation.judging import Control, Judge
from fedaudit.attacks.evaluation.label_sets import set_evidence, wrong_client
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evidence import Assertion, Baseline, Evidence
from fedaudit.attacks.messages._columns import Summaries, summarise, tabulate
from fedaudit.attacks.messages._heard import ASSUMED, UPLOADS, Heard, gather
from fedaudit.attacks.messages._reader import UNPLAYED
from fedaudit.attacks.messages._regression import Reading, read_facts
from fedaudit.attacks.messages.played_message import READ
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

LEFT_OUT, SHARE_LEFT_OUT = 20, 0.1  # plays that no reading is fitted to, at most, and as a share of all
LEAST_R2 = 0.5
MOST = 500  # examples that a client is played with
TOLD, GUESSED = 0.3, 1.0  # deviation of the logarithm of how many examples are played
EVENNESS = 0.7  # of Dirichlet mixes of classes
MOST_BYTES = 2**27  # of what is played at a time
UNKNOWN = -1


def _read_groups(claimed: Claimed, counts: Counts) -> Mask:
    n, number, held = _split(claimed)
    right = np.where(number != UNKNOWN, COUNTED.groups(number, counts), HELD.groups(held == 1, counts))
    return np.asarray(right | SIZE.groups(n, counts))


def _read_clients(claimed: Claimed, counts: Counts) -> Mask:
    n, number, held = _split(claimed)
    of_classes = HELD.clients(held == 1, counts) & (held != UNKNOWN).all(axis=1)
    of_size = np.where(n != UNKNOWN, SIZE.clients(n, counts), of_classes)
    return np.where((number != UNKNOWN).all(axis=1), COUNTED.clients(number, counts), of_size)


def _split(claimed: Claimed) -> tuple[Claimed, Claimed, Claimed]:
    """How many examples [...], of each class and whether there are any [..., C], of all facts [..., 2 C + 1]."""
    classes = claimed.shape[-1] // 2
    return claimed[..., 0], claimed[..., 1 : 1 + classes], claimed[..., 1 + classes :]


FACTS = Fact(  # what a client holds, [k, 2 C + 1]: how many examples, of each class, and whether any
    of_group="the size is known, or that the client holds some",
    of_client="how many examples it holds, how many of each class, or which classes, is known",
    groups=_read_groups,
    clients=_read_clients,
)


class PlayedFacts(Attack):
    card = Card(
        title="Facts about clients by playing their code",
        source="regressions of what the clients' code would send of other people on what these hold",
        aim=Aim.ATTRIBUTE,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(),
        also_reads=(*READ, Kind.GLOBAL_MODEL),
        aids=(*UPLOADS, Kind.GLOBAL_MODEL),
        any_numbers=True,
        rounds="all",
        needs=(),
        learns="how many examples a client holds, how many of each class, or which classes, from any message, "
        "whatever it is called, and from whether it comes",
        does_not_show="what depends on a state of the client's that nobody else has, or on secrets; updates "
        "themselves are read by other attacks",
        remedy="send less: nothing that depends on labels or on how many examples there are, from everybody or "
        "from nobody; or add calibrated noise, or aggregate messages securely",
        effort=Effort(
            seconds=10, grows=("network", "clients", "rounds"), examples=500, settings=("plays",), beside=0.7
        ),
    )

    @settings
    class Config:
        plays: AtLeastOne = Field(default=200, description="times that each client is played")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        assert knowledge.player is not None, "it does not apply without"
        seed, read, failures = int(rng.integers(2**31)), dict[int, list[_Read]](), list[UserError]()
        for heard, kinds in self._choose(view, knowledge):
            play = _Play(heard, kinds, knowledge.player, knowledge.granted_auxiliary, knowledge.classes, seed)
            try:
                told = play.read(self.config.plays)
            except UserError as error:
                failures.append(error)
            else:
                read.setdefault(heard.sender, []).append(told)
        found = [_join_rounds(of) for _, of in sorted(read.items())]
        if not found:
            raise failures[0] if failures else UserError(UNPLAYED, hint="nothing of it can be played")
        n, counts, present = _split(np.stack([f.claimed for f in found]))
        return {
            "client": np.array([f.client for f in found], np.int64),
            "n": n,
            "counts": counts,
            "present": present,
            "r2": np.stack([f.r2 for f in found]),
            "source": np.array([f.source for f in found], np.str_),
            "kinds": np.array([f.kinds for f in found], np.str_),
            "said": np.stack([f.said for f in found]),
            "true": np.stack([f.true for f in found]),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        def describe(row: tuple[int, NDArray[np.int64], NDArray[np.int64]]) -> str:
            n, counts, present = row
            held, lacked = (name_classes(present == value, classes) for value in (1, 0))
            parts = (
                f"{n:,} examples" if n != UNKNOWN else "",
                format_counts(np.maximum(counts, 0), classes),
                held,
                lacked and f"nothing of {lacked}",
            )
            return "; ".join(filter(None, parts))

        rows = zip(claim["n"].tolist(), claim["counts"], claim["present"], strict=True)
        return by_client(claim["client"], rows, describe, "how many examples it owns, of which classes")

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        counts = np.stack([truth.label_counts(int(k)) for k in claim["client"]])
        return [*_judge_sets(claim, counts > 0, truth, rng), *_judge_sizes(claim, counts.sum(axis=1))]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Who stands in a small group of which a claim is right, and which clients are known."""
        facts = np.concatenate([claim["n"][:, None], claim["counts"], claim["present"]], axis=1)
        return count_facts(claim["client"], facts, FACTS, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.player is None:
            return UNPLAYED
        if not len(knowledge.auxiliary or ()):
            return "this attack needs auxiliary data, and the federation holds none back"
        return "" if self._choose(view, knowledge) else "no client sent anything but updates that can be played"

    def _choose(self, view: Sequence[Artifact], knowledge: Knowledge) -> "list[tuple[Heard, list[Kind]]]":
        """Every message of single clients, the newest last, and what any sent in its round besides updates."""
        heard = gather(view, READ, np.random.default_rng(0), knowledge.training)
        alone, kinds = [h for h in heard if h.sender != SEVERAL], dict[int, set[Kind]]()
        for h in alone:
            kinds.setdefault(h.round, set()).update(h.rest)
        return [(h, sorted(kinds[h.round])) for h in alone if kinds[h.round]]


@dataclass(frozen=True)
class _Read:
    """What is claimed of a client, fact by fact [F], and of plays that were left out [h, F]."""

    client: int
    claimed: NDArray[np.int64]
    r2: NDArray[np.float64]
    source: list[str]
    kinds: str
    said: NDArray[np.int64]
    true: NDArray[np.int64]


def _join_rounds(read: Sequence[_Read]) -> _Read:
    """One client's rounds as one: each fact from the round in which plays tell it best, of equals the newest.

    Plays that were left out are those of the newest round.
    """
    newest, r2 = read[-1], np.stack([r.r2 for r in read])
    known = np.stack([r.claimed for r in read]) != UNKNOWN
    best = len(read) - 1 - np.where(known, r2, -1.0)[::-1].argmax(axis=0)
    facts = np.arange(len(best))
    return replace(
        newest,
        claimed=np.stack([r.claimed for r in read])[best, facts],
        r2=r2[best, facts],
        source=[read[row].source[f] for f, row in enumerate(best.tolist())],
        kinds=" ".join(dict.fromkeys(k for r in read for k in r.kinds.split())),
    )


@dataclass(frozen=True)
class _Play:
    """A client's message, and the same client on people of the adversary's own."""

    heard: Heard
    kinds: Sequence[Kind]
    player: Player
    auxiliary: Examples
    classes: int
    seed: int

    def read(self, plays: int) -> _Read:
        """Raises UserError where the client's code refuses such people."""
        rng = np.random.default_rng([self.seed, self.heard.sender])
        holdings = [self._draw(i, rng) for i in range(plays)]
        counts = np.stack([np.bincount(h.y, minlength=self.classes) for h in holdings])
        facts = np.concatenate([counts.sum(axis=1, keepdims=True), counts, counts > 0], axis=1)
        message = summarise(self.heard.rest, self.kinds, self.classes)
        tables = tabulate([*self._play(holdings), message])
        fitted = plays - min(LEFT_OUT, int(SHARE_LEFT_OUT * plays))
        shares = counts / counts.sum(axis=1, keepdims=True)
        numbers = facts[:fitted].astype(np.float64)
        reading = read_facts(tables, numbers, shares[:fitted], plays - fitted + 1, self.seed)
        said = np.where(self._choose_known(reading, facts[:fitted]), self._round(reading.rest), UNKNOWN)
        return _Read(
            client=self.heard.sender,
            claimed=said[-1],
            r2=np.maximum(reading.r2, 0.0),
            source=reading.source,
            kinds=" ".join(self.kinds),
            said=said[:-1],
            true=facts[fitted:],
        )

    def _choose_known(self, reading: Reading, facts: NDArray[np.int64]) -> Mask:
        """[F] which facts are claimed: told well, and where there is something more often right than wrong."""
        some = facts > 0
        right = (self._round(reading.plays) == facts) & some
        return np.asarray((reading.r2 >= LEAST_R2) & (2 * right.sum(axis=0) > some.sum(axis=0)))

    def _round(self, facts: NDArray[np.float64]) -> NDArray[np.int64]:
        """[..., 2 C + 1] to numbers that somebody may hold, and to 0 or 1."""
        found = np.rint(np.clip(facts, 0, 2**40)).astype(np.int64)
        found[..., 1 + self.classes :] = facts[..., 1 + self.classes :] > 0.5
        return found

    def _draw(self, number: int, rng: np.random.Generator) -> Examples:
        """People of the adversary's own, as a client may hold them; in every second play without some classes."""
        told = min(self.heard.examples or ASSUMED, MOST)
        n = np.exp(rng.normal(np.log(told), TOLD if self.heard.examples else GUESSED))
        labels = np.unique(self.auxiliary.y)
        kept = rng.random(len(labels)) < 0.5
        mix = rng.dirichlet(np.full(len(labels), EVENNESS)) * (kept | (number % 2 == 0) | ~kept.any())
        many = rng.multinomial(min(max(1, round(float(n))), 2 * MOST), mix / mix.sum())
        rows = [np.zeros(0, np.int64)]
        for label, times in zip(labels.tolist(), many.tolist(), strict=True):
            own = np.flatnonzero(self.auxiliary.y == label)
            rows.append(rng.choice(own, times, replace=times > len(own)))
        return self.auxiliary.only(rng.permutation(np.concatenate(rows)))

    def _play(self, holdings: Sequence[Examples]) -> list[Summaries]:
        """What would arrive of each, a few at a time."""
        size = sum(np.asarray(w).nbytes for w in self.heard.weights.values())
        size += max(h.x.nbytes for h in holdings)
        most, found = max(1, MOST_BYTES // max(1, size)), list[Summaries]()
        for first in range(0, len(holdings), most):
            some = holdings[first : first + most]
            sent = self.player.play(self.heard.visit, some, self.seed + first, steps=0)
            found += [summarise(s, self.kinds, self.classes) for s in sent]
        return found


def _judge_sets(claim: Claim, true: Mask, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
    """Of clients of which it is claimed of every class whether they hold it."""
    known = np.flatnonzero((claim["present"] != UNKNOWN).all(axis=1))
    if not len(known):
        return []
    said = claim["present"][known] == 1
    prior = np.bincount(truth.auxiliary.y, minlength=true.shape[1]).astype(np.float64)
    note = f"read from {_name_sources(claim, known, slice(1 + true.shape[1], None))}"
    found = set_evidence(said, true[known], prior, rng, looks=2, note=note)
    planted, own = (
        _split(claim[name][known].reshape(-1, claim["said"].shape[2]))[2] for name in ("said", "true")
    )
    if len(planted):
        found += set_evidence(
            planted == 1, own == 1, prior, rng, looks=2, control="positive", note="plays that were left out"
        )[:1]
    return found + wrong_client(said, true[known])


def _judge_sizes(claim: Claim, true: NDArray[np.int64]) -> list[Evidence]:
    """How many examples clients hold: where that is not claimed, it is not known."""
    known, other = np.flatnonzero(claim["n"] != UNKNOWN), np.roll(true, 1)
    note = f"claimed of {len(known)} of {len(true)} clients"
    if len(known):
        note += f", read from {_name_sources(claim, known, slice(0, 1))}"
    found = [_judge_size(claim["n"], true, "none", note)]
    planted, own = (
        _split(claim[name][known].reshape(-1, claim["said"].shape[2]))[0] for name in ("said", "true")
    )
    if len(planted):
        found.append(_judge_size(planted, own, "positive", "plays that were left out"))
    if (rows := other != true).any():
        note = "claims against another client's number"
        found.append(_judge_size(claim["n"][rows], other[rows], "negative", note))
    return found


def _judge_size(said: NDArray[np.int64], true: NDArray[np.int64], control: Control, note: str) -> Evidence:
    median = Baseline(name="the median client", value=float((true == int(np.median(true))).mean()))
    return Judge(looks=2, control=control, note=note).judge_hits(
        "size_known",
        said == true,
        groups=INDEPENDENT,  # a client each, or a play
        baselines=[median],
    )


def _name_sources(claim: Claim, rows: NDArray[Any], facts: slice) -> str:
    """The kinds of messages that facts of some clients were read from."""
    return " and ".join(sorted(set(claim["source"][rows, facts].ravel().tolist())))
