"""Images from hijacked layers: what a server reads that trained clients' layers for itself.

The other half of attacks/poisoning/feature_hijack.py (Pasquini et al., arXiv:2012.02670): once clients' features
are distributed as those of the server's own encoder, the decoder of that encoder reads them. Nothing is known of
clients' layers. Whether clients could have noticed stands beside it: the detectors of split_detectors.py see what
clients were sent, and their own labels. SplitGuard needs batches with false labels (`false_batches` of the
method), and both begin after the first batches of each client. No score
accuses anybody; SplitGuard's clears a server, with the chance that one which ignores labels scores as high.

Claim: as in _inversion.py; and of all batches that clients were answered, answered [m], the message with the
gradients, and batch [m], the message that it answers.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.batches._inversion import ActivationInversion
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.batch_readings import Batch, why_unreadable
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.split_detectors import (
    Similarities,
    compare_gradients,
    compute_chance,
    measure_fit,
    score_choices,
    score_scrutinizer,
)
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.modality.images import to_rows
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel

AFTER = 5  # batches of each client that detectors leave out: SplitGuard's code leaves out 20 of its one client
UNKNOWN = (
    "Fu et al., NDSS 2023: on digits 20 honest servers scored .27 to .46 and 20 hijackers .04 to .09 "
    "(docs/attacks.md); elsewhere that is not known, so it accuses nobody"
)
Floats = NDArray[np.floating[Any]]


class HijackedImages(ActivationInversion):
    needs_layers = False
    of_batches = ActivationInversion.of_batches | {"answered", "batch"}
    card = Card(
        title="Images read from hijacked layers",
        source="arXiv:2012.02670, sec. 3",
        aim=Aim.INVERSION,
        threat=ThreatModel(position=Position.SERVER, conduct=Conduct.MALICIOUS),
        requires=(Kind.SMASHED,),
        also_reads=(Kind.SMASHED_GRADIENT, Kind.GLOBAL_MODEL),  # the model for its control alone
        aids=(Kind.SMASHED_GRADIENT, Kind.GLOBAL_MODEL),
        control="activations",
        rounds="all",
        learns="each image of a batch, because it trained clients' layers to show them",
        does_not_show="what a server finds that evades detectors (SplitSpy), nor what an honest server finds",
        remedy="let clients test the gradients that they receive with batches of false labels; clip and noise "
        "activations",
        effort=Effort(seconds=8, grows=("pixels",)),
    )

    def invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[list[Floats]]:
        assert knowledge.hijacker is not None, "not_applicable says so"
        sent = [np.asarray(b.artifact.payload["activations"], np.float32) for group in groups for b in group]
        images = knowledge.hijacker(np.concatenate(sent))
        split = iter(np.split(images, np.cumsum([len(z) for z in sent])[:-1]))
        return [[next(split) for _ in group] for group in groups]

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        pairs = pair_answers(view)
        answered, batches = zip(*pairs, strict=True) if pairs else ((), ())
        return {
            **super().run(view, knowledge, rng),
            "answered": np.array(answered, str),
            "batch": np.array(batches, str),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        return [*super().measure(claim, truth, rng), *judge_detectors(claim, truth, rng)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        reason = why_unreadable(view, knowledge, needs_layers=False)
        if not reason and knowledge.hijacker is None:
            return "the server trained nobody's layers for itself (adversary: feature_hijack does)"
        return reason


class BatchAnswers(NamedTuple):
    """What clients can tell of the answers to their batches."""

    means: Floats  # [n, D], each batch's mean gradient
    is_false: NDArray[np.bool_]  # [n], whether its labels were
    likeness: Sequence[Similarities]  # of batches with true labels, of which two are equal

    @property
    def suffices_splitguard(self) -> bool:
        """Whether a batch had false labels, and two had true ones."""
        return bool(0 < self.is_false.sum() < len(self.is_false) - 1)

    def score_scrutinizer(self) -> float:
        means = Similarities(*np.mean(self.likeness, axis=0))
        return score_scrutinizer(means, measure_fit([s.same for s in self.likeness]))


def read_answers(claim: Claim, truth: Truth) -> BatchAnswers:
    """Of all batches of which the labels are known."""
    means, is_false, likeness = list[Floats](), list[bool](), list[Similarities]()
    for answered, batch in zip(claim["answered"].tolist(), claim["batch"].tolist(), strict=True):
        true = truth.find_batch(answered)
        gradient = np.asarray(truth.read_upload(answered)["gradient"], np.float64)
        if true is None or len(true.rows) != len(gradient):
            continue
        labels = np.asarray(true.images.y)
        means.append(to_rows(gradient).mean(axis=0))
        is_false.append(bool((np.asarray(truth.read_upload(batch).get("labels", labels)) != labels).all()))
        if not is_false[-1] and len(np.unique(labels)) < len(labels):
            likeness.append(compare_gradients(gradient, labels))
    return BatchAnswers(np.stack(means) if means else np.zeros((0, 0)), np.array(is_false, bool), likeness)


def judge_detectors(claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
    """The scores of both detectors of all that clients were sent; nothing where nobody knows the labels."""
    answers, found = read_answers(claim, truth), list[Evidence]()
    if answers.likeness:
        judge = Judge(condition={"detector": "Gradients Scrutinizer"}, note=UNKNOWN)
        score = answers.score_scrutinizer()
        found.append(judge.state("gradient_score", score, len(answers.likeness), None))
    if answers.suffices_splitguard:
        found.append(_judge_guard(score_choices(answers.means, answers.is_false, rng), answers.is_false))
    return found


def _judge_guard(scores: Floats, is_false: NDArray[np.bool_]) -> Evidence:
    """SplitGuard's score beside those of random choices of batches, as a server that ignores labels has them."""
    value, random, p = float(scores[0]), scores[1:], compute_chance(scores)
    heeds = "the server heeds labels" if p <= 0.05 else "nothing shows that the server heeds labels"
    low, middle, high = np.quantile(random, (0.025, 0.5, 0.975)).tolist()
    note = (
        f"arXiv:2108.09052; {is_false.sum()} batches had false labels; a server that ignores labels scores as "
        f"high with chance {p:.3f}: {heeds}"
    )
    judge = Judge(condition={"detector": "SplitGuard"}, note=note)
    ignoring = Baseline(name="other choices of as many batches", value=middle, interval=(low, high))
    return judge.state("gradient_score", value, len(is_false), None, [ignoring])


def pair_answers(view: Sequence[Artifact]) -> list[tuple[str, str]]:
    """Each message of gradients from the server, with the batch that it answers, but a client's first ones."""
    seen = index(view)
    sent, answers = (defaultdict[tuple[str, int], list[str]](list) for _ in range(2))
    for a in seen.select(kind=Kind.SMASHED, channel=Channel.UPLINK, origin="recorded"):
        sent[str(a.sender), a.round].append(a.id)
    for a in seen.select(kind=Kind.SMASHED_GRADIENT, channel=Channel.DOWNLINK, origin="recorded"):
        answers[a.seen_by[0] if a.seen_by else "", a.round].append(a.id)
    found = defaultdict[str, list[tuple[str, str]]](list)
    for (client, round), ids in sorted(answers.items(), key=lambda item: (item[0][0], item[0][1])):
        batches = sent.get((client, round), [])
        if len(batches) == len(ids):
            found[client] += zip(ids, batches, strict=True)
    return [pair for pairs in found.values() for pair in pairs[AFTER:]]
