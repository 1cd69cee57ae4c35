"""Class shares from public outputs: how much of each class a client owns, from what its model answers.

Shi et al., arXiv:2502.08001, infer label distributions from the logits that FedMD, DS-FL and Cronus exchange. A
model that was trained on a client's classes expects them elsewhere too, so on public images with as many of
each class as of any other the mean of its softmax outputs leans to them. Images of a class count as one,
however many there are.

Blind adversaries guess equal shares, the auxiliary images' shares, and the class most frequent there. The
planted leak is a model that learnt nothing but how frequent its classes are; the negative control holds claims
against the largest class of another client. How much is seen depends on how long clients have trained: with the
same models it is nothing at first, most after some epochs, and less where outputs are nearly certain.

Claim: shares float64 [k, C], client [k].
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, PublicExamples, Truth
from fedaudit.attacks.evaluation.assertions import OF_COUNTS, by_client
from fedaudit.attacks.evaluation.groups import LARGEST, count_facts
from fedaudit.attacks.evaluation.judging import Control, Judge
from fedaudit.attacks.evaluation.label_sets import share_evidence
from fedaudit.attacks.evidence import Assertion, Baseline, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.attacks.summaries._public import ClientAnswers, read_answers
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel


class OutputShares(Attack):
    card = Card(
        title="Class shares from outputs on public data",
        source="after Shi et al., arXiv:2502.08001: mean outputs, class by class of the public data",
        aim=Aim.ATTRIBUTE,
        needs=("groups",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(Kind.PUBLIC_LOGITS,),
        learns="which class a client owns most of, and about how much of each",
        does_not_show="which examples those are",
        control="",  # planted in measure()
        remedy="send the likeliest class alone, rounded outputs, or outputs noised with a stated epsilon",
        effort=Effort(seconds=0.1, grows=("clients",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        public, newest = knowledge.public, {a.client: a for a in read_answers(view, knowledge)}
        assert public is not None, "outputs are read with public images alone"
        return {
            "shares": np.stack([mean_output(a, public) for _, a in sorted(newest.items())]),
            "client": np.array(sorted(newest)),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        largest = claim["shares"].argmax(axis=1)
        return by_client(claim["client"], largest, lambda c: f"mostly class {classes[int(c)]}", OF_COUNTS)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        counts = np.stack([truth.label_counts(int(k)) for k in claim["client"]])
        classes, true = counts.shape[1], counts.argmax(axis=1)
        prior = np.bincount(truth.auxiliary.y, minlength=classes).astype(np.float64)

        def judge(shares: np.ndarray, largest: np.ndarray, control: Control = "none", note: str = "") -> Evidence:
            usual = float((largest == prior.argmax()).mean())
            blind = Baseline(name="chance", value=1 / classes), Baseline(name="most frequent class", value=usual)
            hits = shares.argmax(axis=1) == largest
            own = INDEPENDENT  # a client each
            return Judge(control=control, note=note).judge_hits(
                "majority_class", hits, groups=own, baselines=blind
            )

        found = [judge(claim["shares"], true), *share_evidence(claim["shares"], counts, prior, rng)]
        flat = np.log(np.maximum(counts, 1e-9) / counts.sum(axis=1, keepdims=True))
        # answers do not depend on the image: one of each class
        x, y = np.zeros((classes, 1, 1, 1), np.float32), np.arange(classes)
        places, public = np.arange(classes), PublicExamples(x=x, y=y, candidates=np.zeros(classes, bool))
        planted = [mean_output(ClientAnswers(0, 0, "", places, np.tile(z, (classes, 1))), public) for z in flat]
        note = "models that learnt nothing but how frequent their classes are"
        found.append(judge(np.stack(planted), true, "positive", note))
        other = np.array([next((t for t in true if t != own), own) for own in true])
        if (other != true).all():
            note = "claims against the largest class of another client"
            found.append(judge(claim["shares"], other, "negative", note))
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_facts(claim["client"], claim["shares"].argmax(axis=1), LARGEST, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.public is None:
            return "nobody knows which public examples outputs are of"
        return "" if read_answers(view, knowledge) else "no client sends its outputs on public examples"


def mean_output(answers: ClientAnswers, public: PublicExamples) -> np.ndarray:
    """[C] mean softmax output, each class of the public images counting alike."""
    from scipy.special import softmax

    p, y = softmax(answers.logits, axis=1), public.y[answers.places]
    found: np.ndarray = np.mean([p[y == c].mean(axis=0) for c in np.unique(y)], axis=0)
    return found
