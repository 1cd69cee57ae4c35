"""Prototypes are read by playing the client: its own code makes a message of each candidate alone.

"Prototype" may mean the mean of the head's inputs, of their logarithms, of another layer, a maximum, a sum, or
what a secret of the client's made of them; no list of such meanings is complete. But clients' code is public,
so an adversary can ask it. With phi(x) what a client would send, unprotected, of a class that holds x alone,
and m the mean of phi over a class's images, plays of the adversary's own images, with the very counts that
stand behind a prototype and behind the run's protections, give

    p = E[p] + B (m - E[m]) + e,        e ~ N(0, R)

(prototype_laws.py). phi then takes the place of features everywhere: a candidate's likelihood ratio is that of
the message p, and decoders, look-up and ridge inversion read the posterior mean of phi. Where phi is the features
themselves, the network gives them, and where p is their mean it is taken as it is; so it is where no client can
be played.

A sender's secret factor or constant is estimated from all prototypes that it sent, where they differ from the
plays by more than a client's own images explain. Prototypes that match no play of their class better than plays
of other classes are not read (`Reading.unread`), which says nothing about how safe they are.

Only auxiliary images are played. Nothing is chosen by looking for an image, so no further look is corrected
for.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Examples, Extractor, Knowledge, Player, Sent, Visit
from fedaudit.attacks.evaluation.covariance import shrink_covariance
from fedaudit.attacks.evaluation.decoder import find_device, tensor
from fedaudit.attacks.evaluation.prototype_laws import ASSUMED, CountLawFit, Law, is_chosen
from fedaudit.attacks.evaluation.prototype_matching import Match, MatchTrial, is_unread
from fedaudit.attacks.evaluation.sources import Prototype, Source
from fedaudit.attacks.evidence import UNPROTECTED
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError

Floats = NDArray[np.floating[Any]]

MESSAGES, MOST_IMAGES = 400, 5_000  # played for one group of prototypes, about
FEWEST = 10  # visits, however many images a visit holds
CHECKED = 8  # clients, spread over all, of whom each sends means: then all do
EXACT = 2e-3  # of its length: a message that is as near to the mean of features is that mean
PLAYED = "read by playing the clients' code"
UNREAD = "not read: what clients sent matches nothing that their code makes of images of the same class"


@dataclass(frozen=True, kw_only=True)
class ReadSource:
    """One client's prototypes as means of what the extractor makes of images, and how they depend on it."""

    source: Source
    extractor: Extractor
    laws: Sequence[Law | None]  # of each prototype; None: it is the mean itself


@dataclass(frozen=True)
class Reading:
    """How the prototypes of all clients were read."""

    played: bool = False
    unread: bool = False

    def __str__(self) -> str:
        return UNREAD if self.unread else PLAYED if self.played else ""


def read(sources: Sequence[Source], knowledge: Knowledge) -> tuple[list[ReadSource], Reading]:
    """All sources in their order.

    Raises UserError where prototypes are not as wide as the features of the network, and no client can be played.
    """
    extractors = [knowledge.granted_architecture(s.weights.values) for s in sources]
    aux, player = knowledge.auxiliary, knowledge.player
    published = knowledge.training.get(f"noise_std.{Kind.LOCAL_PROTOTYPES}", 0.0)
    if player is None or aux is None or not len(aux):
        return _take_means(sources, extractors, aux), Reading()
    scripts = [_Script(s, aux, player, bool(published)) for s in sources]
    trials = list[MatchTrial]()
    try:
        chosen = np.unique(np.linspace(0, len(sources) - 1, CHECKED).round().astype(int)).tolist()
        if all(
            scripts[i].sends_means(extractors[i]) and scripts[i].sends_means(extractors[i], True) for i in chosen
        ):
            return _take_means(sources, extractors, aux), Reading()
        triples = zip(sources, extractors, scripts, strict=True)
        result = [_read_plays(source, extractor, script, trials) for source, extractor, script in triples]
    except UserError:
        return _take_means(sources, extractors, aux), Reading()
    return result, Reading(played=any(law for r in result for law in r.laws), unread=is_unread(trials))


def _take_means(
    sources: Sequence[Source], extractors: Sequence[Extractor], aux: Examples | None
) -> list[ReadSource]:
    if aux is not None and len(aux) and sources:
        width, sent = extractors[0].features(aux.x[:1]).shape[1], sources[0].features.shape[1]
        if width != sent:
            raise UserError(
                f"prototypes hold {sent} numbers, and the features of the network {width}",
                hint="federation.model in the config must be the model that was trained",
            )
    pairs = zip(sources, extractors, strict=True)
    return [ReadSource(source=s, extractor=e, laws=[None] * len(s.prototypes)) for s, e in pairs]


def describe(claim: Claim) -> str:
    """For the notes of evidence: how prototypes were read; empty where they are means of features."""
    return str(claim.get("reading", ""))


class _Script:
    """What one client is played with: its model, its classes, and auxiliary images."""

    def __init__(self, source: Source, aux: Examples, player: Player, has_published_noise: bool) -> None:
        first = source.prototypes[0]
        self.visit = Visit(sender=first.sender, round=first.round, weights=source.weights.values)
        self.aux, self._player, self._has_published_noise = aux, player, has_published_noise
        self.rows = {int(c): np.flatnonzero(aux.y == c) for c in np.unique(aux.y)}
        self._seed = [first.sender.index or 0, first.round]
        self._single: dict[bool, CountLawFit | None] = {}
        self.counts = {
            p.label: p.samples or ASSUMED for p in source.prototypes if not is_chosen(p) and p.label in self.rows
        }

    def play(self, holdings: Sequence[Examples], **how: Any) -> list[dict[int, Floats]]:
        """Messages of visits; what the client's code draws is the same in all, and noise is not."""
        played = self._player.play(self.visit, holdings, 1, steps=0, draws=1, **how)
        return [_list_prototypes(sent) for sent in played]

    def recall(self, source: Source, fit: "Callable[[], _Message]") -> "_Message":
        """The fit, or that of another attack which read the same prototypes with the same auxiliary images."""
        content = hashlib.sha256(
            repr([(p.artifact, p.label, p.samples, p.origin) for p in source.prototypes]).encode()
        )
        weights = [np.asarray(self.visit.weights[name]) for name in sorted(self.visit.weights)]
        for array in (self.aux.x, self.aux.y, source.features, *weights):
            content.update(np.ascontiguousarray(array).tobytes())
        return self._player.recall((str(self.visit.sender), self.visit.round, content.digest()), fit)

    def open_stream(self, *keys: int) -> np.random.Generator:
        """Draws for one purpose: every attack that plays this client for it draws the same."""
        return np.random.default_rng([*self._seed, *keys])

    def draw(self, counts: Mapping[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of auxiliary images, so many of each class; with repetition where they are too few."""
        chosen = [rng.choice(self.rows[c], n, replace=2 * n > len(self.rows[c])) for c, n in counts.items()]
        return np.concatenate(chosen)

    def hold(self, rows: NDArray[np.int64]) -> Examples:
        return Examples(x=self.aux.x[rows], y=self.aux.y[rows])

    def sends_means(self, extractor: Extractor, protected: bool = False) -> bool:
        """Whether every message is the mean of the features of its images, but for noise of published size."""
        counts = [dict.fromkeys(self.rows, 1), dict.fromkeys(self.rows, 3), *([self.counts] * bool(self.counts))]
        rng = self.open_stream(1, protected)
        drawn = [self.draw(c, rng) for c in counts]
        noised = protected and not self._has_published_noise
        sent = self.play([self.hold(rows) for rows in drawn], protected=protected, noised=noised)
        arrived = 0
        for rows, message in zip(drawn, sent, strict=True):
            features = extractor.features(self.aux.x[rows]).astype(np.float64)
            for c, p in message.items():
                mean = features[self.aux.y[rows] == c].mean(0)
                if len(p) != len(mean) or not _is_near(p, mean):
                    return False
                arrived += 1
        return arrived > 0

    def is_separate(self) -> bool:
        """Whether a class's message does not depend on the images of other classes, noise at its mean."""
        rng = self.open_stream(2)
        first, second = (self.draw(dict.fromkeys(self.rows, 1), rng) for _ in range(2))
        label = min(self.rows)
        second[self.aux.y[second] == label] = first[self.aux.y[first] == label]
        sent = self.play([self.hold(first), self.hold(second)], noised=False)
        if any(label not in s for s in sent):  # withheld
            sent = self.play([self.hold(first), self.hold(second)], noised=False, protected=False)
        return all(label in s for s in sent) and _is_near(sent[0][label], sent[1][label])

    def fit(self, phi: Floats, size: int, protected: bool, is_separate: bool) -> CountLawFit:
        """How messages depend on phi of the auxiliary images.

        size: Examples of the one class that the auditor chose; 0: the client's own counts.
        """
        own = self.counts or dict.fromkeys(self.rows, ASSUMED)
        classes = list(own) if not size else list(self.rows)
        drawn, rng = list[tuple[NDArray[np.int64], Sequence[int]]](), self.open_stream(3, size, protected)
        if size and not is_separate:
            for i in range(max(FEWEST, min(MESSAGES // 2, MOST_IMAGES // (size + len(classes))))):
                c = classes[i % len(classes)]
                drawn.append((self.draw(dict.fromkeys(classes, 1) | {c: size}, rng), [c]))
        else:
            counts = own if not size else dict.fromkeys(classes, size)
            most = min(max(MESSAGES // len(counts), 30), MOST_IMAGES // sum(counts.values()))
            drawn = [(self.draw(counts, rng), classes) for _ in range(max(FEWEST, most))]
        sent = self.play([self.hold(rows) for rows, _ in drawn], protected=protected)
        rows, label, visit, message = [], [], [], []
        for v, ((chosen, wanted), arrived) in enumerate(zip(drawn, sent, strict=True)):
            for c in wanted:
                if c in arrived and np.isfinite(arrived[c]).all():
                    rows.append(phi[chosen[self.aux.y[chosen] == c]].mean(0))
                    message.append(arrived[c])
                    label.append(c)
                    visit.append(v)
        if not rows:
            raise UserError(
                "a client that is played sends no prototype", hint="they are then taken for means of features"
            )
        return CountLawFit.regress(np.stack(rows), np.stack(message), np.array(label), np.array(visit))

    def fit_single(self, phi: Floats, protected: bool, is_separate: bool) -> CountLawFit | None:
        """Messages of single images; None where a protection withholds them."""
        if protected not in self._single:
            try:
                self._single[protected] = self.fit(phi, 1, protected, is_separate)
            except UserError:
                self._single[protected] = None
        return self._single[protected]


def _list_prototypes(sent: Sent) -> dict[int, Floats]:
    """Class -> the prototype that arrived of it."""
    if not (payload := sent.get(Kind.LOCAL_PROTOTYPES)):
        return {}
    rows = np.asarray(payload["features"], np.float64)
    return {int(c): row for c, row in zip(payload["classes"].tolist(), rows, strict=True)}


def _is_near(message: Floats, mean: Floats) -> bool:
    return bool(np.linalg.norm(message - mean) <= EXACT * max(float(np.linalg.norm(mean)), 1e-12))


class PlayedExtractor:
    """An extractor whose features are what a client sends of a class that holds one image alone.

    No protection acts. The client's other classes hold fixed images, one each; where those do not matter, as many
    candidates as there are classes are played at once.
    """

    def __init__(self, extractor: Extractor, script: _Script, is_separate: bool) -> None:
        self._extractor, self._script, self._is_separate = extractor, script, is_separate
        self._background = script.draw(dict.fromkeys(script.rows, 1), script.open_stream(4))
        self._classes = script.aux.y[self._background]
        self._known: dict[bytes, Floats] = {}

    def features(self, images: Floats) -> Floats:
        """[m, C, H, W] -> [m, D] float64."""
        keys = [np.ascontiguousarray(x).tobytes() for x in images]
        new = list(dict.fromkeys(k for k in keys if k not in self._known))
        first = {k: i for i, k in reversed(list(enumerate(keys)))}
        step = len(self._classes) if self._is_separate else 1
        for start in range(0, len(new), step):
            names = new[start : start + step]
            sent = self._play(images[[first[k] for k in names]])
            self._known.update(zip(names, sent, strict=True))
        return np.stack([self._known[k] for k in keys])

    def logits(self, images: Floats) -> Floats:
        return self._extractor.logits(images)

    def module(self) -> Any:
        """The network with its features in the place of phi, fitted to it by an affine map."""
        import torch
        from torch import nn

        x = self._script.aux.x
        features = self._extractor.features(x).astype(np.float64)
        center, target = features.mean(0), self.features(x)
        least = 1e-3 * np.eye(features.shape[1]) * (features.var(0).sum() + 1e-12)
        centered = features - center
        slope = np.linalg.solve(centered.T @ centered + least, centered.T @ (target - target.mean(0)))
        inner = self._extractor.module()
        weight, shift = (tensor(v, find_device(inner)) for v in (slope, target.mean(0) - center @ slope))

        class Fitted(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = inner
                self.register_buffer("weight", weight)
                self.register_buffer("shift", shift)

            def features(self, images: torch.Tensor) -> torch.Tensor:
                result: torch.Tensor = self.inner.features(images) @ self.weight + self.shift
                return result

            def forward(self, images: torch.Tensor) -> torch.Tensor:
                result: torch.Tensor = self.inner(images)
                return result

        return Fitted()

    def _play(self, images: Floats) -> Floats:
        """phi of images [m, C, H, W] that take the places of the first m classes, all in one visit; [m, D]."""
        x = self._script.aux.x[self._background].copy()
        x[: len(images)] = images
        (sent,) = self._script.play([Examples(x=x, y=self._classes)], protected=False)
        labels = self._classes[: len(images)].tolist()
        if not sent.keys() >= set(labels):
            raise UserError(
                "a client that is played sends no prototype of one image",
                hint="prototypes are then taken for means of features",
            )
        return np.stack([sent[c] for c in labels])


def _match_bare(script: _Script, phi: Floats, labels: Sequence[int]) -> Match:
    return script.fit(phi, 0, False, True).match_again(labels)


class _Message(NamedTuple):
    """How the messages of one source depend on images, and what was tried of it."""

    laws: list[Law | None]
    means: list[Prototype]
    trial: MatchTrial | None


def _read_plays(source: Source, extractor: Extractor, script: _Script, trials: list[MatchTrial]) -> ReadSource:
    sends_means, is_separate = script.sends_means(extractor), script.is_separate()
    phi_of = extractor if sends_means else PlayedExtractor(extractor, script, is_separate)
    phi = phi_of.features(script.aux.x).astype(np.float64)
    is_plain = {False: sends_means, True: sends_means and script.sends_means(extractor, True)}
    # every attack on these prototypes fits the same
    sent = script.recall(source, lambda: _fit_plays(source, phi, script, is_plain, is_separate))
    trials += [sent.trial] if sent.trial else []
    return ReadSource(source=replace(source, prototypes=sent.means), extractor=phi_of, laws=sent.laws)


def _fit_plays(
    source: Source, phi: Floats, script: _Script, is_plain: Mapping[bool, bool], is_separate: bool
) -> _Message:
    trial: MatchTrial | None = None
    moments = {c: (phi[r].mean(0), shrink_covariance(phi[r])) for c, r in script.rows.items() if len(r) > 2}
    whole = phi.mean(0), shrink_covariance(phi)
    groups: dict[tuple[bool, int], list[int]] = defaultdict(list)
    for i, p in enumerate(source.prototypes):
        groups[p.origin != UNPROTECTED, (p.samples or ASSUMED) if is_chosen(p) else 0].append(i)
    laws: list[Law | None] = [None] * len(source.prototypes)
    means = list(source.prototypes)
    for (protected, size), members in groups.items():
        if is_plain[protected]:
            continue
        chosen = [source.prototypes[i] for i in members]
        fit = script.fit(phi, size, protected, is_separate)
        single = script.fit_single(phi, protected, is_separate) or fit
        for i, law in zip(members, fit.describe(chosen), strict=True):
            laws[i], p = law, source.prototypes[i]
            image = single.invert(law, *moments.get(p.label, whole))
            means[i] = replace(p, feature=image.astype(np.float32))
        recorded = [p for p in chosen if p.origin == "recorded" and p.label in fit.expected]
        if len(recorded) > 1:
            labels = [p.label for p in recorded]
            bare = partial(_match_bare, script, phi, labels)
            trial = MatchTrial(fit.match(recorded), fit.match_again(labels), bare)
    return _Message(laws, means, trial)
