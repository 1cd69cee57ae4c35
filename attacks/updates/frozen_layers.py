"""Frozen layers: what an update still tells where its first layers are not sent, layer by layer.

FreezeFL's late clients send the last layers only. Of replayed updates, one step on one image each, the first
n = 0 to L - 1 layers are left out, as if their clients had frozen so many, and the rest is attacked in four ways:

    class        iDLG's rule on the last layer, which is always sent          (gradients.py)
    membership   cosine of the update and an image's gradient, over the layers sent, against other images of the
                 class                                                        (models/gradient_cosine.py)
    division     the image fitted to what entered the first dense layer       (analytic.py)
    inversion    the image whose gradient points the same way                 (inverting_gradients.py)

Recorded uploads are attacked for membership, by how many layers their clients froze; only these are graded. The
negative control has non-members in the place of members.

Claim: artifact, origin, client and frozen (layers that are not there) [k]; scorer [k], objects: images to the
products of their gradients with the update, layer by layer; senders [s]: all clients that sent layers; of the
first r, which are replayed, label int [r, L] and, of the first i of them, images [i, L, 2, C, H, W]: by division,
and by inversion. Replayed ones that come last are people who are planted to be counted.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Floats, Knowledge, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.gradients import Imitation, Update, labels, updates
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.matching import score_client
from fedaudit.attacks.evaluation.naming import build_gallery, name_people
from fedaudit.attacks.evaluation.trials import average_classes, keep_pixels
from fedaudit.attacks.evaluation.update_search import UpdateSearch
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED, Baseline, Evidence
from fedaudit.attacks.modality.images import ImagePool, fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.updates.analytic import Analytic
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
WAYS = ("division", "inversion")
READ = (Kind.GLOBAL_MODEL, Kind.NUM_EXAMPLES)


class FrozenLayers(Attack):
    card = Card(
        title="What frozen layers hide of an update",
        source="FreezeFL; arXiv:2001.02610; arXiv:2302.05301; arXiv:2003.14053",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        requires=(Kind.UNFROZEN_LAYERS,),
        also_reads=READ,
        aids=READ,
        control="updates",
        rounds="all",
        learns="whether an image was trained on, its class and the image, from the last layers of an update",
        does_not_show="what several rounds of one client reveal together, nor a stronger inversion",
        remedy="do not count frozen layers as protection: aggregate uploads securely, or noise them "
        "(dp_gaussian, dp_sgd) with a stated epsilon",
        effort=Effort(seconds=60, grows=("network", "clients"), settings=("iterations",)),
    )

    @settings
    class Config:
        replays: AtLeastOne = Field(default=12, description="replayed updates of which layers are left out")
        recorded: AtLeastZero = Field(default=30, description="uploads that crossed the wire, at most")
        members: AtLeastOne = Field(default=20, description="training images scored for one upload, at most")
        others: AtLeastOne = Field(default=20, description="other images of the class beside a replayed one")
        inverted: AtLeastZero = Field(default=8, description="replayed updates that are turned into images")
        iterations: AtLeastOne = Field(default=150, description="steps on an image; the paper takes 4,800")
        held_out: int = Field(
            default=100, ge=10, description="images of nobody's, by which it is known whom an update points to"
        )
        gallery: int = Field(
            default=10, ge=3, description="images of a class among which the right one is looked for"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        c, found = self.config, self._updates(view, knowledge)
        count = len(of_layers(found[0], knowledge)) if found else 0
        whole = [u for u in found if _single(u) and _missing(u, knowledge) == 0][: c.replays]
        sent = [u for u in found if u.origin == "recorded"]
        some = choose_spread([u.client for u in sent], c.recorded, rng)
        people = [u for u in found if _single(u) and _missing(u, knowledge) == 0][c.replays :]
        people += [u for u in found if u.origin == UNPROTECTED]
        chosen = [*whole, *(sent[i] for i in some), *people]
        scorers = np.empty(len(chosen), object)
        scorers[:] = [GradientScorer(u, knowledge) for u in chosen]
        label = np.full((len(whole), count), -1)
        images = np.zeros((min(len(whole), c.inverted), count, len(WAYS), *knowledge.shape), np.float32)
        inversion = InvertingGradients(InvertingGradients.Config(iterations=c.iterations, restarts=1))
        division, searches = Analytic(Analytic.Config(iterations=c.iterations)), list[UpdateSearch]()
        for i, update in enumerate(whole):
            for n in range(count):
                left = withheld(update, n, knowledge)
                said = labels(left, knowledge, 1)
                label[i, n] = -1 if said is None else said[0]
                if i < len(images):
                    images[i, n, 0] = division.invert(left, 1, knowledge, rng)[0][0]
                    searches += inversion.draw(left, 1, knowledge, rng)
        drawn = [d.images[0] for d in inversion.search(searches, knowledge.device)]
        images[:, :, 1] = np.reshape(drawn, images[:, :, 1].shape)
        return {
            "artifact": np.array([u.artifact for u in chosen]),
            "origin": np.array([u.origin for u in chosen]),
            "client": np.array([u.client for u in chosen]),
            "frozen": np.array([_missing(u, knowledge) for u in chosen], np.int64),
            **list_senders(view, Kind.UNFROZEN_LAYERS),
            "scorer": scorers,
            "label": label,
            "images": np.clip(np.nan_to_num(images), 0, 1),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        silent: list[Values] = []  # scores of non-members, update by update
        found = [
            *self._measure_replays(claim, truth, rng, silent),
            *self._measure_uploads(claim, truth, rng, silent),
        ]
        halves = [(o[::2], o[1::2]) for o in map(rng.permutation, silent) if len(o) > 1]
        if halves:
            none = membership.score_clusters([a for a, _ in halves], [b for _, b in halves])
            note = "images that were never trained on in the place of members"
            found += membership.evidence(none, {}, control="negative", note=note)[:1]
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of everybody whose client sent layers, by the update that points to them most.

        What is planted lacks as many layers as the client's own updates do.
        """
        recorded, planted = list[ScoredPeople](), list[ScoredPeople]()
        clients, origins, frozen = (claim[name].tolist() for name in ("client", "origin", "frozen"))
        fewest: dict[int, int] = {}
        for i in np.flatnonzero(claim["origin"] == "recorded").tolist():
            fewest[clients[i]] = min(frozen[i], fewest.get(clients[i], frozen[i]))
            score = partial(_score_layers, claim["scorer"][i], frozen[i])
            recorded.append(score_client(clients[i], truth, rng, score, self.config.held_out))
        for i, origin in enumerate(origins):
            if origin != REPLAYED or clients[i] not in fewest:
                continue
            score = partial(_score_layers, claim["scorer"][i], fewest[clients[i]])
            label, member = _find_planted_image(truth, str(claim["artifact"][i]))
            others = ImagePool(truth.reference.of_class(label)).without(fingerprints(member))[
                : self.config.held_out
            ]
            both = np.concatenate([member[:1], others])
            scores = score(Examples(x=both, y=np.full(len(both), label)))
            planted.append(
                ScoredPeople(
                    client=clients[i],
                    rows=[0],
                    scores=scores[:1],
                    held_out=range(len(others)),
                    held_out_scores=scores[1:],
                )
            )
        return count_flagged(recorded, planted, claim["senders"].tolist(), truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not any(a.kind == Kind.UNFROZEN_LAYERS for a in view):
            return "no client sends layers of its model"
        if len(knowledge.shape) != 3:
            return "the clients' examples are no images, and this attack searches for pixels"
        found = self._updates(view, knowledge)
        if not found:
            return "no upload differs from the very model it started from, as far as that was recorded"
        if len(of_layers(found[0], knowledge)) < 2:
            return "the network has a single layer, which is always sent"
        return ""

    def _updates(self, view: Sequence[Artifact], knowledge: Knowledge) -> list[Update]:
        return updates([a for a in view if a.kind in self.card.reads], knowledge)

    def _measure_replays(
        self, claim: Claim, truth: Truth, rng: np.random.Generator, silent: list[Values]
    ) -> list[Evidence]:
        """What each number of layers left out leaves of the four attacks."""
        label, images = claim["label"], claim["images"]
        count = label.shape[1]
        found: list[Evidence] = []
        products, true, hits, senders = [], [], list[Values](), list[int]()
        for i in range(len(label)):
            label_of, member = _find_planted_image(truth, str(claim["artifact"][i]))
            true.append(label_of)
            free = ImagePool(truth.reference.of_class(true[-1])).without(fingerprints(member))
            others = free[rng.permutation(len(free))[: max(self.config.others, self.config.gallery)]]
            both = np.concatenate([member[:1], others[: self.config.others]])
            products.append(claim["scorer"][i](Examples(x=both, y=np.full(len(both), true[-1]))))
            decoys = others[: self.config.gallery - 1]
            if i < len(images) and len(decoys):
                means = average_classes(np.array(true[-1:]), truth.auxiliary)
                gallery = build_gallery(Examples(x=member[:1], y=np.array(true[-1:])), decoys, means, keep_pixels)
                hits.append(np.array([name_people(ways, gallery).hits for ways in images[i]]))
                senders.append(int(claim["client"][i]))
        prior = np.bincount(truth.reference.y).max() / max(1, len(truth.reference))
        for n in range(count if len(label) else 0):
            at: Mapping[str, float | str] = {"frozen": float(n), "origin": REPLAYED}
            planted: Literal["none", "positive"] = "none" if n else "positive"  # all of it is the planted leak
            scores = [scale_scores(p.cosines(n)) for p in products]
            silent += [s[1:] for s in scores] if not n else []
            of = membership.score_clusters([s[:1] for s in scores], [s[1:] for s in scores])
            # the first is the AUC
            found += membership.evidence(of, {}, looks=count, control=planted, condition=at)[:1]
            right = label[:, n] == np.array(true)
            guess = [Baseline(name="the commonest class", value=float(prior))]
            found.append(
                Judge(control=planted, looks=count, condition=at).judge_hits(
                    "label_set_exact_match", right, groups=claim["client"][: len(label)], baselines=guess
                )
            )
            for way, name in enumerate(WAYS if hits else ()):
                first = np.array([h[n, way] for h in hits])
                chance = [Baseline(name="chance", value=1 / self.config.gallery)]
                found.append(
                    Judge(control=planted, looks=count, condition={**at, "by": name}).judge_hits(
                        "named", first, groups=senders, baselines=chance
                    )
                )
        return found

    def _measure_uploads(
        self, claim: Claim, truth: Truth, rng: np.random.Generator, silent: list[Values]
    ) -> list[Evidence]:
        """Membership from what clients sent, by how many layers they froze."""
        pairs: dict[int, list[tuple[Values, Values]]] = defaultdict(list)
        for i in np.flatnonzero(claim["origin"] == "recorded"):
            own, n = truth.client_examples(int(claim["client"][i])), int(claim["frozen"][i])
            unseen = truth.unseen(frozenset({int(claim["client"][i])})).images
            marks = set(fingerprints(own.x))
            ins, outs = list[int](), list[int]()
            for k in np.unique(own.y):
                inside, outside = np.flatnonzero(own.y == k), np.flatnonzero(unseen.y == k)
                outside = np.array([j for j in outside if fingerprints(unseen.x[j : j + 1])[0] not in marks], int)
                many = min(round(self.config.members * len(inside) / len(own)), len(outside), len(inside))
                ins += rng.permutation(inside)[:many].tolist()
                outs += rng.permutation(outside)[:many].tolist()
            if ins:
                x, y = np.concatenate([own.x[ins], unseen.x[outs]]), np.concatenate([own.y[ins], unseen.y[outs]])
                score = scale_scores(claim["scorer"][i](Examples(x=x, y=y)).cosines(n))
                pairs[n].append((score[: len(ins)], score[len(ins) :]))
        found: list[Evidence] = []
        for n, some in sorted(pairs.items()):
            at: Mapping[str, float | str] = {"frozen": float(n), "origin": "recorded"}
            of = membership.score_clusters([m for m, _ in some], [o for _, o in some])
            found += membership.evidence(of, {}, looks=len(pairs), condition=at, note=f"{len(some)} uploads")
        silent += [o for some in pairs.values() for _, o in some]
        return found


@dataclass(frozen=True)
class Products:
    """Of some images, layer by layer [N, L]: products of gradient and update, and squared lengths of gradients;
    squared lengths of the update's layers [L]."""

    products: Values
    gradients: Values
    update: Values

    def cosines(self, first: int) -> Values:
        """[N] over the layers from that one on."""
        size = self.gradients[:, first:].sum(axis=1) * self.update[first:].sum()
        return np.asarray(self.products[:, first:].sum(axis=1) / np.sqrt(size + 1e-24))


class GradientScorer:
    """How images' gradients lie to one update."""

    def __init__(self, update: Update, knowledge: Knowledge) -> None:
        self._update, self._knowledge = update, knowledge

    def __call__(self, images: Examples) -> Products:
        import torch

        copy = Imitation(self._update, self._knowledge)
        layer = {k: i for i, names in enumerate(of_layers(self._update, self._knowledge)) for k in names}
        place = [layer[copy.keys[n]] for n in copy.names]
        count = max(layer.values()) + 1
        sums = np.zeros((len(images), 2, count))
        lengths = np.zeros(count)
        for at, t in zip(place, copy.target, strict=True):
            lengths[at] += float(t.double().square().sum())
        for i in range(len(images)):
            x = torch.from_numpy(np.ascontiguousarray(images.x[i : i + 1])).to(copy.device)
            y = torch.from_numpy(images.y[i : i + 1]).to(copy.device)
            for at, g, t in zip(place, copy.gradient(x, y), copy.target, strict=True):
                sums[i, :, at] += float((g * t).sum().detach()), float(g.detach().square().sum())
        return Products(sums[:, 0], sums[:, 1], lengths)


def of_layers(update: Update, knowledge: Knowledge) -> list[list[str]]:
    """Names of the parameters of each layer, input side first; a normalisation is part of the layer before."""
    copy = Imitation(update, knowledge)
    modules: dict[str, list[str]] = {}
    for name in copy.weights:
        modules.setdefault(name.rpartition(".")[0], []).append(name)
    found: list[list[str]] = []
    for names in modules.values():
        keys = [copy.keys[n] for n in names]
        if found and all(copy.weights[n].dim() < 2 for n in names):
            found[-1] += keys
        else:
            found.append(keys)
    return found


def withheld(update: Update, count: int, knowledge: Knowledge) -> Update:
    """The update without its first layers."""
    gone = {k for names in of_layers(update, knowledge)[:count] for k in names}
    return replace(update, gradient={k: v for k, v in update.gradient.items() if k not in gone})


def scale_scores(scores: Values) -> Values:
    """Around their median, in units of their interquartile range: models have scales of their own."""
    low, middle, high = np.quantile(scores, (0.25, 0.5, 0.75))
    return np.asarray((scores - middle) / (high - low if high > low else 1.0))


def choose_spread(clients: Sequence[int], most: int, rng: np.random.Generator) -> list[int]:
    """Places of `most` updates: one of each client, then a second of each, and so on, at random."""
    turn, seen = dict[int, int](), dict[int, int]()
    for place in rng.permutation(len(clients)).tolist():
        seen[clients[place]] = turn[place] = seen.get(clients[place], -1) + 1
    return sorted(sorted(turn, key=lambda place: turn[place])[:most])


def _score_layers(scorer: GradientScorer, frozen: int, images: Examples) -> Values:
    return scorer(images).cosines(frozen)


def _find_planted_image(truth: Truth, artifact: str) -> tuple[int, Floats]:
    """The class of the one image behind a replayed update, and it [1, C, H, W]."""
    own = [truth.members(artifact, k) for k in range(classes_of(truth))]
    label = next((k for k, x in enumerate(own) if len(x)), -1)
    return label, own[label]


def classes_of(truth: Truth) -> int:
    return int(max(truth.reference.y.max(initial=0), truth.auxiliary.y.max(initial=0))) + 1


def _single(update: Update) -> bool:
    return update.origin == REPLAYED and (update.batch, update.steps) == (1, 1)


def _missing(update: Update, knowledge: Knowledge) -> int:
    """How many layers are missing at the input side."""
    gone: list[Any] = [not set(names) & set(update.gradient) for names in of_layers(update, knowledge)]
    return gone.index(False) if False in gone else len(gone)
