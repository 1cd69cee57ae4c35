"""Labels of single examples from the gradients of split learning, where clients keep their labels.

Li, Sun, Yang, Gao, Zhang, Xie, Smith, Wang. Label Leakage and Protection in Two-party Split Learning. ICLR
2022, arXiv:2102.08504, sec. 3. A server between a client's first and last layers computes, for every example of
a batch, the gradient of the loss by its activations. Two scores tell examples of one label from the others of
their batch:

    label_norm    ||g||: of two classes, the rarer one's are longer while the network calls everything the other
    label_cosine  the cosine with g of one example whose label is known; that example is never scored

The direction of the first is fixed beforehand (longer means rarer), and which is right depends on how far
training is: a network that knows its training data turns it round, so every number has its round. What is read
is the gradient at the lower cut, behind layers that are not linear. The gradient that a client of one linear
last layer sends says of two classes which it is by algebra: its rows are multiples of one vector, and the sign
is the label.

Claim: rows float32 [k, D], the gradients, all of one batch together; batch [k], row (place in its batch), client,
round [k] and artifact [k] as text; classes: of the data; prior: share of each in the auxiliary data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.judging import Control, Judge
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import to_rows
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm, Position, ThreatModel

PLUGINS = ("label_norm", "label_cosine")
Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]
HIT = "the label is right: nearest to the gradient of the known example with it"


class GradientLabels(Attack):
    """Base class. A subclass sets `card` and writes `score`."""

    @settings
    class Config:
        batches: AtLeastOne = Field(default=8, description="newest batches of each client to read")

    def score(self, gradients: Floats, y: Labels, rng: np.random.Generator) -> list[float]:
        """AUCs of one batch, gradients [b, D] of examples with labels y [b]; empty where none can be said."""
        raise NotImplementedError

    def plant(self, y: Labels, classes: int, rng: np.random.Generator) -> Floats:
        """Gradients [b, D] of a linear top that gives every class its share in the batch as its probability."""
        p = np.bincount(y, minlength=classes) / len(y)
        return (p - np.eye(classes)[y]) @ rng.normal(size=(classes, 16))

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent = _list_gradients(view, self.config.batches)
        rows = [to_rows(np.asarray(a.payload["gradient"], np.float32)) for a in sent]
        sizes = [len(r) for r in rows]
        places = np.concatenate([np.arange(n) for n in sizes])

        def spread(values: Sequence[Any]) -> NDArray[Any]:
            return np.repeat(np.array(values), sizes)

        return {
            "rows": np.concatenate(rows),
            "batch": spread(range(len(sent))),
            "row": places,
            "client": spread([int(a.seen_by[0].partition("/")[2]) for a in sent]),
            "round": spread([a.round for a in sent]),
            "artifact": spread([a.id for a in sent]),
            "classes": np.array(knowledge.classes),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        read = list(_read_batches(claim, truth))
        last = {"round": int(claim["round"].max())}
        planted = [(client, self.plant(y, int(claim["classes"]), rng), y) for client, _, y, _ in read]
        shifted = [(client, g, y[rng.permutation(len(y))]) for client, g, y, _ in read]
        found = [
            self._judge([(client, g, y) for client, g, y, _ in read], last, "none", rng),
            self._judge(planted, {"origin": "planted"}, "positive", rng),
            self._judge(shifted, {}, "negative", rng, "labels of a batch in random order"),
        ]
        return [e for e in found if e is not None]

    def _judge(
        self,
        batches: Sequence[tuple[int, Floats, Labels]],
        condition: Mapping[str, int | str],
        control: Control,
        rng: np.random.Generator,
        note: str = "AUC of one label against the others, mean over batches",
    ) -> Evidence | None:
        scored = [(client, value) for client, g, y in batches for value in self.score(g, y, rng)]
        if not scored:
            return None
        values, clients = np.array([v for _, v in scored]), np.array([k for k, _ in scored])
        judge = Judge(control=control, condition=dict(condition), note=note)
        blind = {"chance": np.full(len(values), 0.5)}
        return judge.judge_values("label_auc", values, blind, rng, groups=clients, bounds=(0, 1))

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not _list_gradients(view, 1):
            return "the server sends no gradients of single examples"
        if any("labels" in a.payload for a in index(view).select(kind=Kind.SMASHED)):
            return "clients send their labels beside the activations, so there is nothing to infer"
        return ""


CARD = Card(
    title="Labels from the norm of gradients",
    source="arXiv:2102.08504, sec. 3.1",
    aim=Aim.ATTRIBUTE,
    needs=("groups",),
    threat=ThreatModel(position=Position.SERVER),
    requires=(Kind.SMASHED_GRADIENT,),
    also_reads=(Kind.SMASHED,),
    aids=(Kind.SMASHED,),
    learns="which examples of a batch have the rarer of two labels, though clients keep their labels",
    does_not_show="what other rounds give away: the direction turns round as training goes on",
    remedy="noise the gradients that clients send back, along the direction that tells labels apart",
    effort=Effort(seconds=0.5, grows=("clients",)),
    uncounted="It ranks the examples of a batch and says of nobody which label is theirs.",
)


class LabelNorm(GradientLabels):
    """Labels by norm: of two classes, the rarer one's gradients are longer while the network calls all the other.

    Li et al., ICLR 2022, arXiv:2102.08504, sec. 3.1.
    """

    card = CARD

    def score(self, gradients: Floats, y: Labels, rng: np.random.Generator) -> list[float]:
        counts = np.bincount(y, minlength=2)
        rare = int(counts.argmin())
        if len(counts) > 2 or not counts.all() or counts[0] == counts[1]:
            return []
        norms = np.linalg.norm(gradients, axis=1)
        return [compute_area(norms[y == rare], norms[y != rare])]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := GradientLabels.not_applicable(self, view, knowledge):
            return reason
        return "" if knowledge.classes == 2 else "lengths tell two labels apart, and the data have more"


class LabelCosine(GradientLabels):
    """Labels by cosine: gradients of one label point where that of one known example with it does.

    Li et al., ICLR 2022, arXiv:2102.08504, sec. 3.2; of more than two classes one example of each is known.
    """

    card = replace(
        CARD,
        title="Labels from the direction of gradients",
        source="arXiv:2102.08504, sec. 3.2",
        learns="the label of every example of a batch in which it knows one example of each label",
        does_not_show="what a server learns that knows nobody's label",
        uncounted="",
    )

    def score(self, gradients: Floats, y: Labels, rng: np.random.Generator) -> list[float]:
        unit, areas = _normalise(gradients), []
        for label, known in _choose_known(y, rng).items():
            others = np.arange(len(y)) != known  # never the known one: its cosine is 1
            same = (y == label) & others
            if same.any() and (y != label).any():
                likeness = unit @ unit[known]
                areas.append(compute_area(likeness[same], likeness[y != label]))
        return areas

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whose label is right, of all but the known examples; luck is that of labels in random order.

        Which classes a client holds is no fact that is found: one example of each is known beforehand.
        """
        found, lucky, tried = CountedPeople(HIT, Harm.ATTRIBUTE), 0.0, 0
        for client, g, y, rows in _read_batches(claim, truth):
            known = _choose_known(y, rng)
            places = np.setdiff1d(np.arange(len(y)), list(known.values()))
            if not len(places) or len(known) < 2:
                continue
            unit, labels = _normalise(g), np.array(list(known))
            said = labels[(unit @ unit[list(known.values())].T).argmax(axis=1)]
            right = said == y
            found.test(client, rows[places], rows[places][right[places]])
            lucky += float((said[places] == rng.permutation(y[places])).sum())
            tried += len(places)
        if tried:
            found.luck(lucky, tried)
        return found.people(truth)


def compute_area(positive: Floats, negative: Floats) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    above = positive[:, None] - negative
    return float((above > 0).mean() + (above == 0).mean() / 2)


def _choose_known(y: Labels, rng: np.random.Generator) -> dict[int, int]:
    """Label -> the place of one example with it, whose label the adversary knows."""
    return {int(c): int(rng.choice(np.flatnonzero(y == c))) for c in np.unique(y)}


def _normalise(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float64).tiny))


def _list_gradients(view: Sequence[Artifact], most: int) -> list[Artifact]:
    """What the server sent of each client's newest batches."""
    newest: dict[str, list[Artifact]] = {}
    for a in index(view).select(kind=Kind.SMASHED_GRADIENT, channel=Channel.DOWNLINK, origin="recorded"):
        reader = a.seen_by[0] if a.seen_by else ""
        if reader.startswith("client/") and "gradient" in a.payload and np.ndim(a.payload["gradient"]) > 1:
            newest.setdefault(reader, []).append(a)
    last = {k: max(a.round for a in own) for k, own in newest.items()}
    return [a for k, own in newest.items() for a in [a for a in own if a.round == last[k]][-most:]]


def _read_batches(claim: Claim, truth: Truth) -> Iterator[tuple[int, Floats, Labels, Labels]]:
    """Client, gradients [b, D], labels [b] and rows of the training data [b] of each batch that is known."""
    for batch in np.unique(claim["batch"]).tolist():
        own = claim["batch"] == batch
        true = truth.find_batch(str(claim["artifact"][own][0]))
        if true is not None and len(true.rows) == own.sum():
            yield true.client, claim["rows"][own], np.asarray(true.images.y), true.rows
