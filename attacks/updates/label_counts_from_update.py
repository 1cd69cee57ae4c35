"""Labels from an update: which classes a client trained on, and in what proportions, from its last layer.

Two levels, of attacks/evaluation/label_rules.py. The set of classes, by three rules, because the loss decides
which one works (methods that restrict the softmax leave missing rows alone instead of pushing them
down):

    bias        the entry of the bias moved up          (iDLG, arXiv:2001.02610, for several epochs)
    row sums    the row of the weights moved up         (needs inputs >= 0, as after a ReLU)
    row norms   the row is among those that moved far

The proportions, from the change of the bias and the softmax outputs along the straight line between
the model before and after (Dimitrov et al., arXiv:2206.12395, with auxiliary images in the place of
the client's). Left out: regression on a hundred simulated clients.

What the next global model changed is read as a sum of all uploads of a round, by whoever reads both. Evidence is
about each sender's newest message; people are counted by what the messages of all rounds agree on.

The planted leak is one step on one image of each client: its class is certain.

Claim: client and artifact [k], present bool [k, R, C] in the order of RULES, share float64 [k, C] (NaN: not
known), kind, origin, round [k], model [k]; extractors [models], objects: the models before training.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.assertions import OF_CLASSES, by_client, name_classes
from fedaudit.attacks.evaluation.counting import collect_images, count_labels, list_latest
from fedaudit.attacks.evaluation.groups import HELD, average_rounds, count_each_kind, count_held_by_all
from fedaudit.attacks.evaluation.label_rules import STILL, present, proportions, select_far_rows
from fedaudit.attacks.evaluation.label_sets import set_evidence, share_evidence, wrong_client
from fedaudit.attacks.evaluation.last_layer import (
    UPLOADS,
    HeadUpdate,
    confusion,
    head_changes,
    head_non_members,
    head_updates,
    one_step,
    starting_models,
)
from fedaudit.attacks.evaluation.sources import SAID_WITH
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evidence import Assertion, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

RULES = ("bias", "row sums", "row norms")
_COLUMNS = ("client", "kind", "artifact", "origin", "round", "present", "share", "model")
Values = NDArray[np.float64]


class LabelCountsFromUpdate(Attack):
    card = Card(
        title="Labels from the last layer of updates",
        source="arXiv:2001.02610, sec. 3.1; arXiv:2206.12395, sec. 4.3",
        aim=Aim.ATTRIBUTE,
        needs=("classes",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(*UPLOADS, Kind.NUM_EXAMPLES, Kind.AGGREGATE),
        aids=(*SAID_WITH, Kind.NUM_EXAMPLES),
        rounds="all",
        learns="which classes a client owns, and how much of each; which of all of them anybody does",
        does_not_show="which examples those are; nor proportions under a loss other than the plain softmax",
        control="",  # planted in measure()
        remedy="aggregate updates securely, keep the last layer private or frozen, or noise updates with a "
        "stated epsilon",
        effort=Effort(seconds=0.35, grows=("network", "clients", "rounds")),
    )

    @settings
    class Config:
        classes_per_client: AtLeastZero = Field(
            default=0, description="classes that a client owns, where the adversary knows; 0 means unknown"
        )
        points: int = Field(
            default=5, ge=2, description="models on the line between before and after at which outputs are taken"
        )
        max_clients: AtLeastZero = Field(
            default=100, description="clients whose proportions are worked out, at most"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        updates = [*head_updates(view, knowledge), *head_changes(view, knowledge)]
        extractors, model = starting_models(updates, knowledge)
        told = {
            "client": np.array([u.client for u in updates]),
            "kind": np.array([u.kind.value for u in updates]),
            "artifact": np.array([u.artifact for u in updates]),
            "origin": np.full(len(updates), "recorded"),
            "round": np.array([u.round for u in updates]),
        }
        share = np.full((len(updates), knowledge.classes), np.nan)
        for i in _list_judged(told)[: self.config.max_clients]:
            share[i] = self.shares(updates[i], knowledge)
        return told | {
            "present": np.stack([self.present(u.bias, u.rows, u.norms) for u in updates]),
            "share": share,
            "model": model,
            "extractors": extractors,
        }

    def present(self, bias: Values | None, rows: Values, norms: Values) -> NDArray[np.bool_]:
        """What each rule says of one update, [R, C]; nothing where a layer has no bias."""
        number = self.config.classes_per_client or None
        no_bias = np.zeros(len(rows), bool)
        far = select_far_rows(norms) if number is None else present(norms, number)
        return np.stack([no_bias if bias is None else present(bias, number), present(rows, number), far])

    def shares(self, u: HeadUpdate, knowledge: Knowledge) -> Values:
        """Proportions of one client, [C]; NaN where its update does not tell them."""
        aux = knowledge.granted_auxiliary
        if u.bias is None or not u.norms.any() or u.reach <= 0 or not len(aux or ()):
            return np.full(knowledge.classes, np.nan)
        outputs = []
        # Rows that stand still belong to classes that the loss leaves out of the softmax
        trained = u.norms > STILL * u.norms.max()
        for s in np.linspace(0, 1, self.config.points):
            weights = {k: np.asarray((1 - s) * v + s * u.after[k], v.dtype) for k, v in u.before.items()}
            model = knowledge.granted_architecture(weights)
            means = confusion(model, aux.x, aux.y, knowledge.classes)
            outputs.append(means * trained / (means * trained).sum(axis=1, keepdims=True))
        return proportions(u.bias / u.reach, outputs)

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        told, present = self._agree(claim)
        return by_client(told["client"], present, lambda p: name_classes(p, classes), OF_CLASSES)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        classes, judged = claim["present"].shape[2], _list_judged(claim)
        claim = {**claim, **{name: claim[name][judged] for name in _COLUMNS}}
        counts = count_labels(truth, claim["client"].tolist(), claim["artifact"].tolist(), classes)
        prior = np.bincount(truth.auxiliary.y, minlength=classes).astype(np.float64)
        planted, label = self._read_planted_steps(claim, truth, rng)
        found: list[Evidence] = []
        for r, rule in enumerate(RULES):
            here: Mapping[str, float | str] = {"rule": rule}
            said = claim["present"][:, r]
            if not said.any():
                continue
            found += set_evidence(said, counts > 0, prior, rng, looks=len(RULES), condition=here)
            found += set_evidence(
                planted[:, r],
                label,
                prior,
                rng,
                looks=len(RULES),
                condition=here,
                control="positive",
                note="one step on one example of each client",
            )[:1]
            found += wrong_client(said, counts > 0, here)
        known = np.isfinite(claim["share"]).all(axis=1)
        if known.any():
            found += share_evidence(claim["share"][known], counts[known], prior, rng)
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        told, present = self._agree(claim)
        found = count_each_kind(told, present, HELD, truth)
        for row in np.flatnonzero(told["client"] == SEVERAL).tolist():
            own = (claim["client"] == SEVERAL) & (claim["kind"] == told["kind"][row])
            newest = str(claim["artifact"][own][claim["round"][own].argmax()])
            found += count_held_by_all(newest, present[row], truth, Kind(told["kind"][row]))
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return head_non_members(view, knowledge)

    def _agree(self, claim: Claim) -> tuple[Claim, NDArray[np.bool_]]:
        """Which classes each client's messages of all rounds agree on, a row for each client and kind."""
        return average_rounds(claim, np.stack([_combine_rules(p) for p in claim["present"]]))

    def _read_planted_steps(
        self, claim: Claim, truth: Truth, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """What is said of one step on one image of each client [k, R, C], and its class [k, C]."""
        said, labels = [], []
        columns = claim["client"].tolist(), claim["artifact"].tolist(), claim["model"]
        for k, artifact, m in zip(*columns, strict=True):
            own = collect_images(truth, k, artifact, claim["present"].shape[2])
            i = int(rng.integers(len(own)))
            bias, rows, norms = one_step(claim["extractors"][m], own.x[i : i + 1], int(own.y[i]))
            said.append(self.present(bias, rows, norms))
            labels.append(np.arange(len(bias)) == own.y[i])
        return np.stack(said), np.stack(labels)


def _list_judged(claim: Claim) -> NDArray[np.int64]:
    """The newest row of each sender; what the global model changed, only where nothing else was read."""
    sent = np.flatnonzero(claim["kind"] != Kind.GLOBAL_MODEL.value)
    rows = sent if len(sent) else np.arange(len(claim["kind"]))
    names = {"sender": "client", "origin": "origin", "round": "round"}
    return rows[list_latest({column: claim[name][rows] for column, name in names.items()})]


def _combine_rules(present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[C] what the rules that say anything agree on; [R, C]. The loss decides which rule works, so none is right
    by itself; where they have nothing in common, what the first says."""
    told = present[present.any(axis=1)]
    both: NDArray[np.bool_] = np.asarray(told.all(axis=0) & told.any(axis=0))
    first: NDArray[np.bool_] = np.asarray(told[0]) if len(told) else both
    return both if both.any() else first
