"""The attacks that turn an update into the images it was made with: they differ in `invert`.

Of what clients sent they take one reading a client, of all recorded rounds and kinds the one that looks most like
the gradient of one image (disguised.py), and of the clients those where it does most.

Claim: images float32 [k, C, H, W], label, sender, batch and steps (examples in a step and local steps,
as far as is known) [k], as text artifact, origin and kind [k], classes [], and senders [s]: all clients that sent
updates, with the kind that they sent [s].
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import count_named, split_kinds
from fedaudit.attacks.evaluation.disguised import loneliest
from fedaudit.attacks.evaluation.gradients import KINDS, UPLOADS, Update, iterate_updates, updates
from fedaudit.attacks.evaluation.ranking import match_images
from fedaudit.attacks.evaluation.sources import SAID_WITH
from fedaudit.attacks.evaluation.trials import CLASS_MEAN, Bucket, Reconstruction
from fedaudit.attacks.evaluation.update_trials import WRONG, judge_images, make_buckets
from fedaudit.attacks.evidence import Evidence, ImageGallery
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]

CARD = Card(
    title="Inversion of updates",
    source="",
    aim=Aim.RECONSTRUCTION,
    threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
    requires=(Kind.GLOBAL_MODEL,),
    also_reads=(*UPLOADS, Kind.NUM_EXAMPLES, Kind.AGGREGATE),
    aids=(Kind.GLOBAL_MODEL, *SAID_WITH, Kind.NUM_EXAMPLES),
    control="updates",
    rounds="all",
    learns="images a client trained on, from the model it uploads",
    does_not_show="what an attacker with auxiliary images, with more time, or with power over the "
    "model that is sent out would get; nor what is left once uploads are summed securely",
    remedy="aggregate uploads securely, so that no single one is seen; else clip and noise them "
    "(dp_gaussian, dp_sgd) with a stated epsilon",
    effort=Effort(seconds=60, grows=("network", "updates")),
)


class UpdateInversion(Attack):
    """Base class. A subclass sets `card` (CARD with its own title and source) and writes `invert`."""

    @settings
    class Config:
        per_size: AtLeastOne = Field(
            default=10,
            description="replayed updates of one image and step to attack; of larger ones as many as cost "
            "the same, and at least two",
        )
        recorded: AtLeastZero = Field(default=10, description="uploads to attack that crossed the wire")
        most: AtLeastOne = Field(default=8, description="images to claim of a replayed update, at most")
        most_recorded: AtLeastOne = Field(
            default=4, description="images to claim of an update that crossed the wire, at most"
        )
        most_steps: AtLeastZero = Field(
            default=5,
            description="local steps of a replayed update that is attacked as one step or a few, at most",
        )
        gallery: int = Field(
            default=100, ge=3, description="sets of images among which the members are looked for"
        )
        show: AtLeastOne = Field(default=8, description="images in a row of the report's figures")

    @abstractmethod
    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        """`number` images [number, C, H, W] in [0, 1] of an update, and their labels [number]."""

    def invert_all(
        self, chosen: Sequence[Update], numbers: Sequence[int], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Floats, NDArray[np.int64]]]:
        """As `invert` of each update."""
        return [self.invert(u, n, knowledge, rng) for u, n in zip(chosen, numbers, strict=True)]

    def applies(self, update: Update) -> bool:
        """Whether this attack can say anything of such an update."""
        return True

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        chosen = self.choose_updates(view, knowledge)
        if not chosen:
            raise UserError(
                "no upload was recorded with the model it started from",
                hint="record global_model with local_model or model_delta in the same rounds",
            )
        return {**self.make_claim(chosen, knowledge, rng), **list_senders(view, *KINDS)}

    def choose_updates(self, view: Sequence[Artifact], knowledge: Knowledge) -> list[Update]:
        """The updates to invert: the first of every kind of replay, and `recorded` that crossed the wire."""
        replays = updates([a for a in view if a.origin != "recorded" or a.kind not in KINDS], knowledge)
        return self._choose([*replays, *loneliest(view, knowledge, self.applies)])

    def make_claim(self, chosen: Sequence[Update], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        """What is claimed of these updates."""
        numbers = [min(u.examples, self._count_images(u)) for u in chosen]
        found = self.invert_all(chosen, numbers, knowledge, rng)
        every = [u for u, n in zip(chosen, numbers, strict=True) for _ in range(n)]
        images = np.concatenate([x for x, _ in found])
        return {
            "images": np.clip(np.nan_to_num(images), 0, 1).astype(np.float32),
            "label": np.concatenate([y for _, y in found]),
            "sender": np.array([u.client for u in every]),
            "batch": np.array([u.batch for u in every]),
            "steps": np.array([u.steps for u in every]),
            "artifact": np.array([u.artifact for u in every]),
            "origin": np.array([u.origin for u in every]),
            "kind": np.array([u.kind.value for u in every]),
            "classes": np.array(knowledge.classes),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        return judge_images(self._buckets(claim, truth, rng), rng)

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        buckets, found = self._buckets(claim, truth, rng), list[PeopleCount]()
        alone = [b for b in buckets if b.origin == "recorded" or b.condition["steps"] == 1]
        for part in split_kinds(claim):
            recorded = sorted({str(a) for a in claim["artifact"][part.recorded]})
            rows = [(a, c) for a in recorded for c in range(int(claim["classes"]))]
            own = [t for b in alone for t in b.trials if t.origin != "recorded" or t.artifact in recorded]
            found += count_named(own, rows, part.senders, truth, part.kind)
        return found

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        """By how the updates were made that name people, or all that were read where none does."""
        sent = claim["origin"] == "recorded"
        if hit := {k for some in people for k in some.hit}:
            sent &= np.isin(claim["sender"], list(hit))
        steps, batch = claim["steps"][sent], claim["batch"][sent]
        said = [self.card.remedy]
        if len(steps) and (steps == 1).all():
            alone = "a single image" if (batch == 1).all() else "a single batch"
            said.append(f"train for longer over larger batches: these updates are one step on {alone}")
        return "; ".join(said)

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        return [self._gallery(b) for b in self._buckets(claim, truth)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not any(a.kind in KINDS and a.sender.role == Role.CLIENT for a in view):
            return "no client sends its model, or what changed in it, that the server could read"
        if len(knowledge.shape) != 3:
            return "the clients' examples are no images, and this attack searches for pixels"
        if next(iterate_updates(view, knowledge), None) is None:
            return "no upload differs from the very model it started from, as far as that was recorded"
        if self.find_first(view, knowledge) is None:
            return "no upload is of the kind this attack inverts: " + self.card.does_not_show
        return ""

    def find_first(self, view: Sequence[Artifact], knowledge: Knowledge) -> Update | None:
        """The first upload that this attack can say anything of."""
        return next((u for u in iterate_updates(view, knowledge) if self.applies(u)), None)

    @cached_property
    def _buckets(self) -> BuiltOnce[list[Bucket[Reconstruction]]]:
        gallery = self.config.gallery
        return BuiltOnce(lambda claim, truth, rng: make_buckets(claim, truth, gallery, rng))

    def _count_images(self, update: Update) -> int:
        c: UpdateInversion.Config = self.config
        return c.most_recorded if update.origin == "recorded" else c.most

    def _choose(self, found: Sequence[Update]) -> list[Update]:
        kept: list[Update] = []
        left: dict[tuple[str, int, int], int] = {}
        for u in found:
            replayed = u.origin != "recorded"
            if not self.applies(u) or (replayed and u.steps > self.config.most_steps):
                continue
            few = max(2, self.config.per_size // (u.batch * u.steps))
            limit = min(few, self.config.per_size) if replayed else self.config.recorded
            left[u.alike] = left.get(u.alike, limit) - 1
            if left[u.alike] >= 0:
                kept.append(u)
        return kept

    def _gallery(self, bucket: Bucket[Reconstruction]) -> ImageGallery:
        rows: dict[str, list[Floats]] = {"original (a member)": [], "reconstruction": []}
        columns: list[str] = []
        for t in bucket.trials:
            pairs = {"reconstruction": t.claimed} | {
                name: t.blind[name] for name in (CLASS_MEAN, WRONG) if name in t.blind
            }
            rows["original (a member)"] += list(t.targets)
            for name, x in pairs.items():
                rows.setdefault(name, []).extend(x[match_images(x, t.targets)[0]])
            columns += [f"client {t.client}, class {c}" for c in t.labels]
        full = {k: np.stack(v)[: self.config.show] for k, v in rows.items() if len(v) == len(columns)}
        batch, steps = bucket.condition["n"], bucket.condition["steps"]
        return ImageGallery(
            title=f"{self.card.title}: batch {batch:g}, {steps:g} steps, {bucket.origin}",
            caption="Leakage is what the reconstruction shares with the original and neither the class "
            "mean nor the update of other images does.",
            rows=full,
            columns=tuple(columns[: self.config.show]),
        )
