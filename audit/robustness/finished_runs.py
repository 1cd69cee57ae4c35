"""Finished runs: what the final model of a run answers on the test images, and what is shown of it.

Shown are images with a trigger, and where forged prototypes moved the shared ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.poisoning.backdoors import Backdoors, Trigger, stamp_images
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.png import png
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer.models import BoundExtractor, KnownArchitecture
from fedaudit.audit.robustness.certificate import explain_missing
from fedaudit.audit.robustness.plan import CONTROLS, MatrixPlace, describe
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.recording.recorder import NotFiniteError
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.tasks.classify import NO_ANSWER, choose_classes
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.robustness import MovedPrototypes

Labels = NDArray[np.int64]

IMAGES = 8

Points = NDArray[np.float64]


@dataclass(frozen=True)
class RunHistory:
    """What the server noted of each round (metrics.jsonl)."""

    records: Sequence[Mapping[str, Any]]

    def list_ranks(self, name: str) -> list[float]:
        """Where forged changes stood among the honest, of every round that has it."""
        return [float(r[name]) for r in self.records if r.get(name) is not None]

    @property
    def attacks(self) -> list[list[dict[str, Any]]]:
        """Of an adversary with a family, the attack it chose in each round and those nearly as harmful."""
        return [[r["sent"], *r["near"]] for r in self.records if r.get("sent")]

    @property
    def successes(self) -> dict[int, float]:
        """Round -> how often the backdoor worked, of rounds that were measured."""
        return {int(r["round"]): float(r["asr"]) for r in self.records if r.get("asr") is not None}

    def count_sorted(self) -> tuple[int, int, int, int] | None:
        """(malicious found, malicious heard, honest dropped, honest heard) over all rounds; None where the rule
        never says whom it kept, or keeps everybody alike. Found or dropped: not kept, or with less than half the
        largest weight. Rounds with too few uploads for the rule do not count."""
        totals, telling = [0, 0, 0, 0], False
        for record in self.records:
            kept = {int(k): float(w) for k, w in record.get("kept", {}).get("model", {}).items()}
            if not kept or record.get("too_few"):
                continue
            most = max(kept.values())
            fully = {k for k, w in kept.items() if w >= most / 2}
            malicious = set(record.get("compromised", ()))
            honest = int(record["delivered"]) - len(malicious)
            telling |= len(fully) < honest + len(malicious)
            found, dropped = len(malicious - fully), honest - len(fully - malicious)
            totals = [a + b for a, b in zip(totals, (found, len(malicious), dropped, honest), strict=True)]
        return (totals[0], totals[1], totals[2], totals[3]) if telling else None

    def count_short(self) -> tuple[int, int]:
        """(rounds with too few uploads for the rule, rounds in which somebody was heard)."""
        heard = [r for r in self.records if r.get("delivered")]
        return sum(bool(r.get("too_few")) for r in heard), len(heard)


@dataclass(frozen=True)
class FinishedRun:
    """One finished run."""

    config: Config
    folder: Path

    @cached_property
    def case(self) -> SimulatedCase:
        return SimulatedCase(self.config.require_simulated())

    @property
    def _images(self) -> NDArray[np.float32]:
        return self.case.data.test.x

    @cached_property
    def labels(self) -> Labels:
        return np.asarray(self.case.data.test.y, dtype=np.int64)

    @cached_property
    def answers(self) -> Labels:
        """[N] the class given to each test image."""
        return self._predict_labels(self._images)

    @property
    def right(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.answers == self.labels
        return found

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    def worst_class(self) -> float:
        return float(min(score_classes(self.right, self.labels)))

    @cached_property
    def mixes(self) -> NDArray[np.float64]:
        """[K, C] shares of classes of every honest client with data."""
        counts = self.case.population.counts.astype(np.float64)
        counts = np.delete(counts, sorted(self.case.compromise.clients), axis=0)
        counts = counts[counts.sum(1) > 0]
        return np.asarray(counts / counts.sum(1, keepdims=True))

    @cached_property
    def _seen(self) -> dict[tuple[str, bool], Labels]:
        """Answers to images with a trigger, by the trigger and whether it stands elsewhere."""
        return {}

    def classify_triggered(self, adversary: Backdoors, elsewhere: bool = False) -> Labels:
        """[N] answers to the same images with the adversary's trigger, or with one that nobody trained on:
        of the same size, at the opposite corner."""
        seen = (str(adversary.config.trigger), elsewhere)
        if seen not in self._seen:
            stamped = stamp_test_images(self._images, adversary.config.trigger, elsewhere)
            self._seen[seen] = self._predict_labels(stamped)
        return self._seen[seen]

    @cached_property
    def history(self) -> RunHistory:
        return RunHistory(RunDir(self.folder).history())

    @cached_property
    def releases(self) -> list[Release]:
        return read(self.folder / "ledger.jsonl")

    @cached_property
    def uncertified(self) -> str:
        """Why the ledger certifies nothing about malicious clients, as a phrase; empty where it does."""
        rounds = sum(1 for _ in (self.folder / "metrics.jsonl").read_text().splitlines())
        return explain_missing(self.case.protections, self.releases, rounds)

    @cached_property
    def prototypes(self) -> dict[int, NDArray[np.float64]]:
        """Class -> the shared prototype of the last round that was recorded; none where none is."""
        try:
            kept = messages(self.folder / "artifacts", [Kind.GLOBAL_PROTOTYPES], "all")
        except NotFiniteError:
            return {}
        if not kept:
            return {}
        last = max(kept, key=lambda a: a.round).payload
        found = zip(np.ravel(last["classes"]).tolist(), np.asarray(last["features"], np.float64), strict=True)
        return {int(c): row for c, row in found if np.isfinite(row).all()}

    @cached_property
    def model(self) -> BoundExtractor:
        kept = messages(self.folder / "artifacts", [Kind.GLOBAL_MODEL], "all")
        if not kept:
            title = self.case.card.title
            if Kind.GLOBAL_MODEL in self.case.card.downlink:
                raise UserError(
                    f"{self.folder} kept no shared model, which {title} does release: there is none to measure",
                    hint="set record: last, all or model",
                    key="record",
                )
            raise UserError(
                f"{title} releases no shared model, so there is none to measure",
                hint="choose a method whose clients share one model",
            )
        weights: Any = max(kept, key=lambda a: a.round).payload
        return KnownArchitecture(self.case.network.make, self.case.data, self.case.device)(weights)

    @cached_property
    def is_diverged(self) -> bool:
        """Whether the released model holds NaN or infinity: it answers nothing then."""
        try:
            self.model  # noqa: B018
        except NotFiniteError:
            return True
        return False

    def _predict_labels(self, images: NDArray[Any]) -> Labels:
        if self.is_diverged:
            return np.full(len(images), NO_ANSWER, dtype=np.int64)
        return choose_classes(torch.from_numpy(self.model.logits(images))).numpy()


def stamp_test_images(
    tests: NDArray[np.float32], trigger: Trigger, elsewhere: bool = False
) -> NDArray[np.float32]:
    """[N, C, H, W] test images with a trigger, or with one of the same size at the opposite corner."""
    images = torch.from_numpy(np.ascontiguousarray(tests))
    if elsewhere:
        return stamp_images(images.flip(-1, -2), trigger).flip(-1, -2).numpy()
    return stamp_images(images, trigger).numpy()


def score_classes(right: NDArray[np.bool_], labels: Labels) -> Sequence[float]:
    """Accuracy of every class that the test set has."""
    return [float(right[labels == c].mean()) for c in np.unique(labels)]


def show_triggers(outcomes: Mapping[MatrixPlace, FinishedRun]) -> list[Gallery]:
    """For every backdoor under the mean, by most malicious clients, of the first seed."""
    places: dict[tuple[str, str], MatrixPlace] = {}
    for place, run in outcomes.items():
        tried = place.adversary not in ("", *CONTROLS) and isinstance(run.case.compromise.adversary, Backdoors)
        key = place.setting, place.adversary
        if tried and place.rule.name == "mean" and place.malicious > getattr(places.get(key), "malicious", 0):
            places[key] = place
    return [_show(place, outcomes[place]) for place in places.values()]


def _show(place: MatrixPlace, run: FinishedRun) -> Gallery:
    adversary = run.case.compromise.adversary
    assert isinstance(adversary, Backdoors)
    data, target = run.case.data, int(adversary.config.target)
    picked = np.flatnonzero(run.labels != target)[:IMAGES]
    stamped = stamp_test_images(data.test.x[picked], adversary.config.trigger)
    plain, taken = run.answers[picked], run.classify_triggered(adversary)[picked]
    hits, pairs = int((taken == target).sum()), zip(plain, taken, strict=True)
    title = f"{place.setting}, rule mean: {describe(place.changes['adversary'])}, {place.malicious} malicious"
    return Gallery(
        finding="",
        title=title,
        caption=f"The first {len(picked)} test images of other classes; above each what the model answers to it "
        "and, after the arrow, to the same image with the trigger. "
        f"{hits} of them become {data.classes[target]}.",
        columns=[" \u2192 ".join(data.classes[c] if c >= 0 else "none" for c in pair) for pair in pairs],
        alt=f"{title}: rows of images, test image, with the trigger",
        rows={"test image": [png(x) for x in data.test.x[picked]], "with the trigger": [png(x) for x in stamped]},
    )


def show_moved_prototypes(outcomes: Mapping[MatrixPlace, FinishedRun]) -> list[MovedPrototypes]:
    """For every attack that forges prototypes, by most malicious clients, of the first seed."""
    clean = {(p.setting, p.rule.name, p.seed): run for p, run in outcomes.items() if not p.adversary}
    places: dict[tuple[str, str, str], MatrixPlace] = {}
    for place in outcomes:
        if place.adversary in ("", *CONTROLS) or not _is_forger(place):
            continue
        known = places.setdefault((place.setting, place.rule.name, place.adversary), place)
        if place.malicious > known.malicious:
            places[place.setting, place.rule.name, place.adversary] = place
    found = []
    for place in places.values():
        before = clean.get((place.setting, place.rule.name, place.seed))
        if before is None or not (common := before.prototypes.keys() & outcomes[place].prototypes.keys()):
            continue
        run = outcomes[place]
        classes = sorted(common)
        old, new, kept = project_points(
            np.stack([before.prototypes[c] for c in classes]), np.stack([run.prototypes[c] for c in classes])
        )
        found.append(
            MovedPrototypes(
                title=f"{place.setting}, rule {place.rule.name}: {describe(place.changes['adversary'])}, "
                f"{place.malicious} malicious",
                classes=[run.case.data.classes[c] for c in classes],
                before=[(float(x), float(y)) for x, y in old],
                after=[(float(x), float(y)) for x, y in new],
                kept=kept,
            )
        )
    return found


def project_points(before: Points, after: Points) -> tuple[Points, Points, float]:
    """[c, D] twice to [c, 2] twice, and the share of their variance that the plane holds.

    The plane is that of the two largest principal components of both sets together.
    """
    both = np.concatenate([before, after]).astype(np.float64)
    both -= both.mean(axis=0)
    _, sizes, axes = np.linalg.svd(both, full_matrices=False)
    flat = np.zeros((len(both), 2))
    flat[:, : min(2, len(axes))] = both @ axes[:2].T
    signs = np.sign(flat[np.abs(flat).argmax(axis=0), [0, 1]])  # of an axis, which the decomposition leaves open
    flat *= np.where(signs == 0, 1, signs)
    total = float((sizes**2).sum())
    return flat[: len(before)], flat[len(before) :], float((sizes[:2] ** 2).sum()) / total if total else 1.0


def _is_forger(place: MatrixPlace) -> bool:
    card = catalog.load("adversaries", str(place.changes["adversary"]["name"])).card
    return Kind.LOCAL_PROTOTYPES in card.kinds
