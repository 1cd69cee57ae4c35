"""Majority class: the class a client owns most of, from its loss, or from the model it says fits it best.

Both numbers are made with models that the server sent, so it can ask its auxiliary images what they would have
said. q-FFL and power-of-choice send the mean loss of the broadcast model: the class whose auxiliary images have
the nearest mean loss is claimed. IFCA sends which of several models had the least loss: the class that this model
knows best, compared with the others, is claimed. Of a client that was heard several times the class is claimed
that explains all of its numbers best. With clients of many classes no number singles one out.

Blind adversaries: the class most frequent in auxiliary images, and chance. The planted leak is what a client
would send that owns held-out images of one class only; the negative control holds claims against another client's
class.

Claim: guess, client [k], kind [k] as text, rule [k] (row of `rules`); rules [r], objects: those of the newest
round of each kind.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Floats, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.assertions import OF_COUNTS, by_client
from fedaudit.attacks.evaluation.groups import LARGEST, count_each_kind
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY, broadcast, several
from fedaudit.attacks.evidence import Assertion, Baseline, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
PLANTED = 200  # images of one class, for the planted leak, at most
MOST = 200  # auxiliary images of a class that models are asked about


class MajorityClass(Attack):
    card = Card(
        title="Majority class from a loss or a choice of model",
        source="mean losses by class of the models that were broadcast",
        aim=Aim.ATTRIBUTE,
        needs=("groups",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(Kind.LOCAL_LOSS, Kind.CLUSTER_ID),
        learns="which class a client owns most of",
        does_not_show="how much of it, nor anything of single examples",
        control="",  # planted in measure()
        rounds="all",
        remedy="aggregate losses securely, release choices and losses with calibrated noise, or select clients "
        "without asking for them",
        effort=Effort(seconds=0.2, grows=("clients", "rounds")),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent, made = _readable(view), dict[tuple[int, Kind], _Rule]()
        for a, start in sent:
            if (a.round, a.kind) not in made:
                made[a.round, a.kind] = _Rule(start.payload, a.kind, knowledge)
        misfit = dict[tuple[int, Kind], Values]()  # of each client and kind, summed over its rounds
        for a, _ in sent:
            key = a.sender.number, a.kind
            misfit[key] = misfit.get(key, 0.0) + made[a.round, a.kind].compare(_number(a))
        newest = {kind: rule for (_, kind), rule in made.items()}
        places, rules = {kind: i for i, kind in enumerate(newest)}, np.empty(len(newest), object)
        rules[:] = list(newest.values())
        return {
            "guess": np.array([of.argmin() for of in misfit.values()]),
            "client": np.array([client for client, _ in misfit]),
            "kind": np.array([kind.value for _, kind in misfit]),
            "rule": np.array([places[kind] for _, kind in misfit]),
            "rules": rules,
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        return by_client(claim["client"], claim["guess"], lambda c: f"mostly class {classes[int(c)]}", OF_COUNTS)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found: list[Evidence] = []
        kinds = list(dict.fromkeys(claim["kind"].tolist()))
        for kind in kinds:
            rows = np.flatnonzero(claim["kind"] == kind)
            counts = np.stack([truth.label_counts(int(k)) for k in claim["client"][rows]])
            said, true, classes = claim["guess"][rows], counts.argmax(axis=1), counts.shape[1]
            usual = int(np.bincount(truth.auxiliary.y).argmax())
            say = _Say(kind, classes, usual, len(kinds))
            found.append(say(said, true))
            rule, reference = claim["rules"][claim["rule"][rows[0]]], truth.reference
            held = [c for c in range(classes) if len(reference.of_class(c))]
            alone = [reference.of_class(c)[:PLANTED] for c in held]
            asked = [rule.guess(rule.number(x, c)) for x, c in zip(alone, held, strict=True)]
            found.append(
                say(np.array(asked), np.array(held), "positive", "clients of one class, of held-out images")
            )
            other = np.array([next((t for t in true if t != own), own) for own in true])
            if (other != true).all():
                found.append(say(said, other, "negative", "claims against the class of another client"))
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of each kind of message: whoever stands in a small group that is the largest of its client."""
        return count_each_kind(claim, claim["guess"], LARGEST, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        if not _readable(view):
            return "no client sends one loss of the broadcast model, or which of several models it chose"
        return ""


class _Rule:
    """From a number that a client sent to the class it suggests."""

    def __init__(self, payload: Mapping[str, NDArray[Any]], kind: Kind, knowledge: Knowledge) -> None:
        self._models = [knowledge.granted_architecture(w) for w in several(payload)]
        self._kind = kind
        aux, self._classes = knowledge.granted_auxiliary, knowledge.classes
        self._losses = np.full((len(self._models), self._classes), np.inf)  # [models, C]
        for c in np.unique(aux.y):
            self._losses[:, c] = self._answer(aux.of_class(int(c))[:MOST], int(c))

    def _answer(self, x: Floats, label: int) -> Values:
        return np.array([_loss(m.logits(x), label) for m in self._models])

    def number(self, x: Floats, label: int) -> float:
        """What a client would send that owns these images, all of one class."""
        losses = self._answer(x, label)
        return float(losses.argmin() if self._kind == Kind.CLUSTER_ID else losses[0])

    def compare(self, number: float) -> Values:
        """[C] how badly each class would explain that number."""
        if self._kind == Kind.LOCAL_LOSS:
            return np.asarray(np.abs(self._losses[0] - number))
        chosen = int(number) % len(self._models)
        rest = np.delete(self._losses, chosen, axis=0)
        return np.asarray(self._losses[chosen] - rest.min(axis=0, initial=np.inf))

    def guess(self, number: float) -> int:
        return int(self.compare(number).argmin())


class _Say:
    """Evidence about claims of one kind."""

    def __init__(self, kind: str, classes: int, usual: int, looks: int) -> None:
        self._kind, self._classes, self._usual, self._looks = kind, classes, usual, looks

    def __call__(
        self, said: NDArray[np.int64], true: NDArray[np.int64], control: Any = "none", note: str = ""
    ) -> Evidence:
        blind = (
            Baseline(name="chance", value=1 / self._classes),
            Baseline(name="most frequent class", value=float((true == self._usual).mean())),
        )
        return Judge(control=control, looks=self._looks, condition={"kind": self._kind}, note=note).judge_hits(
            "majority_class",
            said == true,
            groups=INDEPENDENT,  # a client each
            baselines=blind,
        )


def _readable(view: Sequence[Artifact]) -> list[tuple[Artifact, Artifact]]:
    """Numbers of clients, and the broadcast that each was made with; those of a GAN are of no model here."""
    view, found = index(view), []
    for a in view:
        if a.sender.role != Role.CLIENT or a.kind not in (Kind.LOCAL_LOSS, Kind.CLUSTER_ID):
            continue
        if (start := broadcast(view, a.round)) is None:
            continue
        many = len(several(start.payload)) > 1
        if start.round == a.round and np.isfinite(_number(a)) and many == (a.kind == Kind.CLUSTER_ID):
            found.append((a, start))
    return found


def _number(a: Artifact) -> float:
    [value] = a.payload.values()
    return float(value) if np.size(value) == 1 else np.nan


def _loss(logits: Floats, label: int) -> float:
    """Mean cross-entropy of images of one class."""
    from scipy.special import log_softmax

    return float(-log_softmax(np.asarray(logits, np.float64), axis=1)[:, label].mean())
