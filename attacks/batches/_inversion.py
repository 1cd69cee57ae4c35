"""Inversions of activations: images from what the first layers of a network make of them, example by example.

They differ in `invert` and share the rest. Every example of a batch is a trial of its own, with the one image
behind it, and stands beside the mean image, the mean image of its class (labels cross as well) and what was drawn
of another example.

Claim: images float32 [k, C, H, W], label (-1 where it was not sent), row (place in its batch), n, sender, round
[k], and as text artifact ("MESSAGE#ROW"), origin and extractor (where the layers' weights came from) [k]; senders
[s]: all clients that sent activations.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Claim, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.batch_readings import Batch, group_by_weights, list_batches, why_unreadable
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import count_claimed
from fedaudit.attacks.evaluation.image_evidence import judge_images
from fedaudit.attacks.evaluation.image_trials import ImageTrials, PrototypeBucket
from fedaudit.attacks.evaluation.trials import CLASS_MEAN, count_looks
from fedaudit.attacks.evidence import Evidence, ImageGallery
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]
MEAN = "mean of all auxiliary images"
READS = (Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL)


class ActivationInversion(Attack):
    """Base class. A subclass sets `card` and writes `invert`."""

    needs_layers = True  # whether clients' layers have to be known
    kinds: tuple[Kind, ...] = (Kind.SMASHED,)  # whose rows are examples
    beside: tuple[str, ...] = (MEAN, CLASS_MEAN)  # baselines whose errors stand beside
    columns: Mapping[str, str] = {}  # further ones, by name: the claim's images that are theirs
    of_batches = frozenset({"senders", "sent"})  # parts of a claim that have no entry for each example

    @settings
    class Config:
        batches: AtLeastOne = Field(
            default=2, description="batches of each client's newest round to attack, evenly spread over it"
        )
        gallery: int = Field(default=100, ge=3, description="images among which a person is looked for")
        show: AtLeastOne = Field(default=8, description="images in a row of the report's figures")

    @abstractmethod
    def invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[list[Floats]]:
        """Images [b, C, H, W] of each batch; the batches of a group were made with the same weights."""

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        groups = self.list_groups(view)
        batches = [b for group in groups for b in group]
        sizes = [len(b.rows) for b in batches]

        def spread(values: Sequence[Any]) -> NDArray[Any]:
            return np.repeat(np.array(values), sizes)

        rows = np.concatenate([b.rows for b in batches])
        names = spread([b.artifact.id for b in batches])
        return {
            "images": join_images(self.invert(groups, knowledge, rng)),
            "label": np.concatenate([b.labels for b in batches]),
            "row": rows,
            "n": np.ones(len(rows), np.int64),
            "artifact": np.array([f"{name}#{row}" for name, row in zip(names, rows, strict=True)]),
            "sender": spread([b.artifact.sender.index for b in batches]),
            "kind": spread([b.artifact.kind.value for b in batches]),
            "round": spread([b.artifact.round for b in batches]),
            "origin": spread([b.artifact.origin for b in batches]),
            "extractor": spread([b.source for b in batches]),
            **list_senders(view, *self.kinds),
        }

    def list_groups(self, view: Sequence[Artifact]) -> list[list[Batch]]:
        """What is attacked; the batches of a group were made with the same weights."""
        return group_by_weights(list_batches(view, self.config.batches, self.needs_layers))

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        buckets = self._trials(claim, truth, rng).buckets
        sources = ", ".join(sorted(set(claim["extractor"].tolist())))
        note = f"the first layers' weights: {sources}"
        found = [e for b in buckets for e in self._judge_errors(b, count_looks(buckets), rng)]
        judged = [*judge_images(buckets, rng), *found]
        return [replace(e, note="; ".join(filter(None, (e.note, note)))) for e in judged]

    def _judge_errors(self, bucket: PrototypeBucket, looks: int, rng: np.random.Generator) -> list[Evidence]:
        def measure_error(images: Floats, which: Any) -> Floats:
            return np.asarray(np.square(images - bucket.targets[which]).mean(axis=(1, 2, 3)))

        everyone = np.arange(len(bucket))
        blind = {n: measure_error(bucket.blind[n][1], bucket.blind[n][0]) for n in self.beside}
        return [
            bucket.judge(looks).judge_values(
                "mse", measure_error(bucket.claimed, everyone), blind, rng, groups=bucket.clients, bounds=(0, 1)
            )
        ]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        known = RowTruth(truth)
        trials = self._trials(claim, truth, rng).every
        told = np.array([known.find_label(str(a)) >= 0 for a in claim["artifact"]])
        by_row = {k: v for k, v in claim.items() if k not in self.of_batches}
        graded = {k: v[told] for k, v in by_row.items()} | {k: claim[k] for k in ("senders", "sent")}
        return count_claimed(label_rows(graded, known), known, trials)

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        return [self._show(b) for b in self._trials(claim, truth).buckets if b.origin == "recorded"]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        reason = why_unreadable(view, knowledge)
        if not reason and (knowledge.auxiliary is None or not len(knowledge.auxiliary)):
            return "the adversary has no examples of its own to learn from"
        return reason

    @cached_property
    def _trials(self) -> BuiltOnce[ImageTrials]:
        def build(claim: Claim, truth: Truth, rng: np.random.Generator) -> ImageTrials:
            labelled, known = self.prepare(claim, truth, rng)
            blind = {MEAN: truth.auxiliary.x.mean(axis=0)}
            return ImageTrials(labelled, known, self.config.gallery, rng, constants=blind, columns=self.columns)

        return BuiltOnce(build)

    def prepare(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> "tuple[Claim, RowTruth]":
        """The claim as it is judged, with the examples' true labels, and the truth of its rows."""
        known = RowTruth(truth)
        return label_rows(claim, known), known

    def _show(self, bucket: PrototypeBucket) -> ImageGallery:
        shown = np.unique(np.linspace(0, len(bucket) - 1, self.config.show).round().astype(int))
        return ImageGallery(
            title=f"{self.card.title}: single examples, recorded",
            caption="Each column is one example of a batch; leakage is what the reconstruction shares with the "
            "original and the class mean does not.",
            rows={
                "original": bucket.targets[shown],
                "reconstruction": bucket.claimed[shown],
                "class mean": bucket.blind[CLASS_MEAN][1][shown],
            },
            columns=tuple(f"client {bucket.trials[i].client}, class {bucket.labels[i]}" for i in shown),
        )


class RowTruth:
    """The truth about single examples of batches, under the names "MESSAGE#ROW"."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._rows: dict[str, tuple[NDArray[np.int64], Floats, NDArray[np.int64]] | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._truth, name)

    def members(self, artifact: str, label: int) -> Floats:
        found = self._find(artifact)
        return (
            np.zeros((0, *self._truth.reference.x.shape[1:])) if found is None or found[2] != label else found[1]
        )

    def people(self, artifact: str, label: int) -> Mapping[int, NDArray[np.int64]]:
        found = self._find(artifact)
        return {} if found is None or found[2] != label else {found[3]: found[0]}

    def find_label(self, artifact: str) -> int:
        """The label of the example; -1 where nobody told which it is."""
        found = self._find(artifact)
        return -1 if found is None else found[2]

    def _find(self, artifact: str) -> tuple[NDArray[np.int64], Floats, int, int] | None:
        name, _, row = artifact.rpartition("#")
        batch = self._truth.find_batch(name)
        if batch is None or int(row) >= len(batch.rows):
            return None
        i = int(row)
        return batch.rows[i : i + 1], batch.images.x[i : i + 1], int(batch.images.y[i]), batch.client


def join_images(groups: Sequence[Sequence[Floats]]) -> NDArray[np.float32]:
    """Images [k, C, H, W] of all batches of all groups, in order, cut off at 0 and 1."""
    every: NDArray[np.float32] = np.concatenate([x for group in groups for x in group]).astype(np.float32)
    return every.clip(0, 1)


def label_rows(claim: Claim, truth: RowTruth) -> Claim:
    """The claim with the examples' true labels, by which galleries are made."""
    return {**claim, "label": np.array([truth.find_label(str(a)) for a in claim["artifact"]], np.int64)}
