"""Condensed images in a view, and what the attacks on them share.

A condensed image is in normalised input space and unbounded: its contrast says nothing. Images are
therefore compared by Pearson's correlation, channel by channel after each is standardised, which does not
ask how the clients normalise either. Where an image has to be shown or classified, it gets the usual
brightness and contrast of auxiliary images.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import message_of
from fedaudit.attacks.evaluation.image_evidence import call_prototypes
from fedaudit.attacks.evidence import UNPROTECTED, Evidence
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind

Floats = NDArray[np.floating[Any]]
REQUIRES = (Kind.CONDENSED_IMAGES, Kind.CONDENSED_LABELS)
AIDS = (Kind.CONDENSED_LABELS,)
REAL_START = "replayed, started from a real image"  # the planted leak


def standardise(images: Floats) -> Floats:
    """[k, C, H, W] with mean 0 and deviation 1 over each channel; a flat channel is 0."""
    x = np.asarray(images, np.float64)
    centred = x - x.mean(axis=(2, 3), keepdims=True)
    squares = np.einsum("kchw,kchw->kc", centred, centred)[:, :, None, None]
    return np.asarray(centred / np.maximum(np.sqrt(squares / math.prod(x.shape[2:])), 1e-12))


def match_brightness(images: Floats, like: Floats) -> Floats:
    """Images with the mean brightness and contrast of those in `like`, [k, C, H, W], not clipped."""
    level = like.mean(axis=(2, 3), keepdims=True).mean(axis=0, keepdims=True)
    spread = like.std(axis=(2, 3), keepdims=True).mean(axis=0, keepdims=True)
    return np.asarray(standardise(images) * spread + level, np.float32)


def collect_condensed_images(view: Sequence[Artifact]) -> dict[str, NDArray[Any]]:
    """All condensed images of a view as a claim: images [k, C, H, W] as sent, label, sender,
    artifact, origin, round [k]."""
    found: dict[str, list[Any]] = {n: [] for n in ("images", "label", "sender", "artifact", "origin", "round")}
    labels = {message_of(a): a for a in view if a.kind == Kind.CONDENSED_LABELS}
    for a in view:
        named = labels.get(message_of(a))
        if a.kind != Kind.CONDENSED_IMAGES or named is None:
            continue
        images = np.asarray(a.payload["images"])
        if images.ndim != 4 or len(images) != len(named.payload["labels"]):
            continue
        found["images"] += list(images)
        found["label"] += [int(c) for c in named.payload["labels"]]
        sender = -1 if a.sender.index is None else a.sender.index
        found["sender"] += [sender] * len(images)
        found["round"] += [a.round] * len(images)
        found["artifact"] += [a.id] * len(images)
        found["origin"] += [REAL_START if a.note.get("init") == "real" else a.origin] * len(images)
    return {name: np.array(values) for name, values in found.items()}


def none_here(view: Sequence[Artifact]) -> str:
    """Why there is nothing to attack; empty where there is something."""
    return "" if len(collect_condensed_images(view)["label"]) else "no condensed image came with its label"


def in_our_words(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Evidence of measures written for prototypes: their words, and which of it is planted.

    A client that has one image of a class sends what the replay of n = 1 shows, so that is a result
    (the findings make it a control where no client has so few); starting from real images is the plant.
    """
    return [_in_our_words(e) for e in evidence]


def _in_our_words(e: Evidence) -> Evidence:

    control = e.control
    if control != "negative":
        control = "positive" if e.condition.get("origin") in (REAL_START, UNPROTECTED) else "none"
    return replace(call_prototypes(e, "condensed image"), control=control)
