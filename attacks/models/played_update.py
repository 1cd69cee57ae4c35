"""Played update: would the client's own code have sent this update with the image, or without it?

The clients' code is public, so an adversary plays a client with images of its own, behind the run's protections:
M updates of as many images as stand behind the message, of any mixture of classes, with mean E and covariance R
(Ledoit and Wolf's shrinkage, J. Multivar. Anal. 88, 2004, eq. 14). With psi(x) the update of a client that holds
x alone, for one step and without protections, an update with x in it is N(E + a d, R) for some a > 0, where d is
psi(x) less its mean over the class. The score is the root of the likelihood ratio at the likeliest a,

    <update - E, R^-1 d> / <d, R^-1 d>^(1/2),

in units of what auxiliary images of the class score. It is what Sankararaman et al. (Nature Genetics 2009) ask of
means, asked of what training changed; how much a single image weighs after many steps is not assumed. Plays are
shared by clients whose n is within a quarter.

Where no client can be played nothing is read, which says nothing about how safe updates are.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Floats, Images, Knowledge, Player, Visit
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.covariance import factor_covariance
from fedaudit.attacks.evidence import UNPROTECTED
from fedaudit.attacks.models._membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.models._scores import Mask
from fedaudit.attacks.models._targets import Target, count_examples
from fedaudit.attacks.prototypes._weights import compute_change
from fedaudit.fl.artifact import Artifact, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import ThreatModel

Values = NDArray[np.float64]
Start = tuple[int, ...]
MOST_NUMBERS = 2**14  # of an update that are compared; of larger ones so many random sums
SIZES = 1.25  # factor between numbers of images that share plays
TOGETHER = 200  # candidates that are played at a time
MOST_IMAGES = 10_000  # of a client that is played: clients may state any number
FEWEST = 4  # plays that arrive, of which a covariance can be taken
UNPLAYED = (
    "what clients would send cannot be played, so no update is read in this way: that says nothing of its safety"
)


class PlayedUpdate(ModelMembership):
    card = replace(
        CARD,
        title="Membership by playing the client's update",
        source="Sankararaman et al., Nature Genetics 2009, on updates that the clients' code makes",
        threat=ThreatModel(position=CARD.threat.position, knows=frozenset({"architecture", "auxiliary_data"})),
        also_reads=(*CARD.also_reads, Kind.NUM_EXAMPLES),
        aids=(Kind.GLOBAL_MODEL, Kind.NUM_STEPS, Kind.NUM_EXAMPLES),
        learns="whether a given image was in one client's training data, from its upload",
        rounds="latest",  # clients are played anew from each round's model
        effort=Effort(seconds=80, grows=("network", "auxiliary"), examples=20, settings=("plays",)),
    )

    @settings
    class Config(ModelMembership.Config):
        plays: int = Field(default=64, ge=FEWEST, description="updates that are played for each number of images")

    def targets(self, view: Sequence[Artifact], known: Knowledge, rng: np.random.Generator) -> list[Target]:
        view = index(view)
        return count_examples(super().targets(view, known, rng), view)

    def applies_to(self, target: Target) -> bool:
        return bool(target.start) and target.examples <= MOST_IMAGES * max(1, target.clients)

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        aux, player = knowledge.auxiliary, knowledge.player
        assert aux is not None and player is not None, "it does not apply without"
        seed = int(rng.integers(2**31))
        groups: dict[tuple[Start, int, bool], list[int]] = defaultdict(list)
        for row, target in enumerate(queried):
            protected = not target.origin.startswith(UNPROTECTED)
            groups[identify_start(target), _round_size(target, knowledge), protected].append(row)
        fits = list[tuple[list[int], Fit]]()
        alone: dict[Start, Values] = {}  # psi of auxiliary images, by what the client began with
        for (start, size, protected), rows in groups.items():
            stage = Stage(queried[rows[0]], player, knowledge.training, seed)
            if start not in alone:
                alone[start] = stage.play_alone(aux)
            drawn = [_draw(aux, size, rng) for _ in range(self.config.plays)]
            updates = stage.play([aux.only(some) for some in drawn], protected=protected)
            fits.append((rows, Fit.from_play(stage, updates, alone[start], aux.y)))

        def score(candidates: Images, _: Mask) -> Floats:  # a client is played for all at once
            table = np.zeros((len(queried), len(candidates)))
            known: dict[Start, Values] = {}
            for rows, fit in fits:
                start = identify_start(queried[rows[0]])
                if start not in known:
                    known[start] = fit.stage.play_alone(candidates)
                for row in rows:
                    table[row] = fit.score(queried[row], known[start], candidates.y)
            return table

        return score

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := super().not_applicable(view, knowledge):
            return reason
        if not len(knowledge.auxiliary or ()):
            return "this attack needs auxiliary images, and the federation holds none back"
        return "" if knowledge.player is not None else UNPLAYED


@dataclass(frozen=True)
class Stage:
    """Where a client is played: its round, what it began with, and how its update becomes a row of numbers."""

    target: Target
    player: Player
    training: Mapping[str, float]
    seed: int

    @property
    def visit(self) -> Visit:
        return Visit(
            sender=Party.client(max(self.target.sender, 0)), round=self.target.round, weights=self.target.start
        )

    def play(self, holdings: Sequence[Images], *, protected: bool) -> list[Values | None]:
        """A row for each; None where a protection withholds it."""
        sent = self.player.train(self.visit, holdings, self.seed, protected=protected)
        return [
            None if a is None else self.flatten(compute_change(a, self.target.start, [], self.training))
            for a in sent
        ]

    def play_alone(self, images: Images) -> Values:
        """[m, D] psi: updates of clients that hold one image each."""
        rows = list[Values | None]()
        for first in range(0, len(images), TOGETHER):
            some = range(first, min(first + TOGETHER, len(images)))
            holdings = [images.only(np.array([i])) for i in some]
            sent = self.player.train(self.visit, holdings, self.seed, protected=False, steps=1)
            rows += [
                None if a is None else self.flatten(compute_change(a, self.target.start, [], self.training))
                for a in sent
            ]
        if any(row is None for row in rows):
            raise UserError(UNPLAYED, hint="a client that holds one image must send its update")
        return np.stack([row for row in rows if row is not None])

    def flatten(self, change: Mapping[str, NDArray[Any]]) -> Values:
        """[D] changes of all numbers that training may change, or random sums of them, the same for all rows.

        What an update does not hold did not change.
        """
        start = {k: v for k, v in sorted(self.target.start.items()) if np.issubdtype(v.dtype, np.floating)}
        moved = (np.asarray(change.get(k, np.zeros(v.shape)), np.float64).ravel() for k, v in start.items())
        numbers = [np.zeros(0), *moved]
        whole: Values = np.nan_to_num(np.concatenate(numbers))
        if len(whole) <= MOST_NUMBERS:
            return whole
        rng = np.random.default_rng(self.seed)
        place, sign = rng.integers(0, MOST_NUMBERS, len(whole)), rng.choice([-1.0, 1.0], len(whole))
        return np.asarray(np.bincount(place, weights=whole * sign, minlength=MOST_NUMBERS), np.float64)


@dataclass(frozen=True)
class Fit:
    """What clients of so many images send: N(expected, R)."""

    stage: Stage
    expected: Values  # [D]
    factor: Values  # [D, M], with R = factor factor' + ridge I
    ridge: float
    psi: Values  # [k, D] of auxiliary images
    labels: NDArray[np.int64]  # [k], their classes

    @classmethod
    def from_play(
        cls, stage: Stage, played: Sequence[Values | None], psi: Values, labels: NDArray[np.int64]
    ) -> "Fit":
        """Raises UserError where protections withhold nearly all that is played."""
        arrived = [update for update in played if update is not None]
        if len(arrived) < FEWEST:
            raise UserError(UNPLAYED, hint="a protection withholds what is played")
        updates = np.stack(arrived)
        factor, ridge = factor_covariance(updates - updates.mean(axis=0))
        return cls(stage, updates.mean(axis=0), factor, ridge, psi, labels)

    def score(self, target: Target, psi: Values, labels: NDArray[np.int64]) -> Values:
        """[m] how much an update holds of candidates, psi [m, D], around auxiliary images of their classes."""
        seen = self.stage.flatten(target.change()) - self.expected
        scores = np.zeros(len(psi))
        for c in np.unique(labels).tolist():
            own, known = labels == c, self.psi[self.labels == c]
            if len(known) < 2:
                known = self.psi
            mine, others = (self._compare(rows - known.mean(axis=0), seen) for rows in (psi[own], known))
            low, middle, high = np.quantile(others, (0.25, 0.5, 0.75))
            scores[own] = (mine - middle) / (high - low if high > low else 1.0)
        return scores

    def _compare(self, apart: Values, seen: Values) -> Values:
        weighed = self._weigh(apart)
        return np.asarray(weighed @ seen / np.sqrt((weighed * apart).sum(axis=1) + 1e-30))

    def _weigh(self, rows: Values) -> Values:
        """[m, D] rows times R^-1."""
        inner = self.ridge * np.eye(self.factor.shape[1]) + self.factor.T @ self.factor
        return np.asarray((rows - np.linalg.solve(inner, (rows @ self.factor).T).T @ self.factor.T) / self.ridge)


def identify_start(target: Target) -> Start:
    """The same for uploads that began with the same arrays, in whichever mapping: they share plays."""
    return tuple(id(values) for _, values in sorted(target.start.items()))


def _draw(aux: Images, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of so many auxiliary images, of a random mixture of classes."""
    classes = np.unique(aux.y)
    counts = rng.multinomial(size, rng.dirichlet(np.ones(len(classes))))
    rows = []
    for c, count in zip(classes.tolist(), counts.tolist(), strict=True):
        own = np.flatnonzero(aux.y == c)
        rows.append(rng.choice(own, count, replace=count > len(own)))
    return np.concatenate(rows)


def _round_size(target: Target, knowledge: Knowledge) -> int:
    """Images of one client behind an update, to the nearest power of SIZES."""
    assumed = max(1, int(knowledge.training.get("batch_size", 20)))
    size = max(1.0, (target.examples or assumed * target.clients) / max(1, target.clients))
    return max(1, round(SIZES ** round(math.log(size, SIZES))))
