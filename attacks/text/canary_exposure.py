"""Canary exposure: how far up a planted secret stands among as many random ones, by what a model makes of each.

Carlini, Liu, Erlingsson, Kos, Song. The Secret Sharer. USENIX Security 2019. arXiv:1802.08232, sec. 4.2: of R
secrets of one format, of which one was trained on, exposure = log2 R - log2 rank. It is at most log2 R, which
the evidence says. Controls are secrets that were made in the same way and put into no text; a secret that a
model knows nothing of has an exposure of log2 e = 1.44 on average. What differs: R - 1 alternatives are drawn,
not all counted.

The secrets are those that the data set planted; how many texts hold one is counted in what clients trained on.
Digits are drawn for digits and letters for letters.

Claim: a rule, since any text can be queried. models [k], objects; artifact and round [k]; alternatives, length,
classes and seed [].
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy
from pydantic import Field

from fedaudit.attacks.attack import Attack, Claim, Effort, Extractor, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.trials import find_members
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.modality.text import strip
from fedaudit.attacks.stats import INDEPENDENT, Interval, clopper_pearson
from fedaudit.attacks.text._language import score_tokens
from fedaudit.attacks.text.sequence_membership import CARD, explain_network
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.hf_folder import open_tokenizer
from fedaudit.fl.data.tokens import Canary, Tokens
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim

KNOWING_NOTHING = Baseline(name="a secret that the model knows nothing of", value=math.log2(math.e))
NEVER = "secrets that are in no text"
FEW = 5  # secrets: below, an interval is about these alone, since so few say little of others
THESE = "of other secrets than these it says nothing"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class CanaryExposure(Attack):
    card = replace(
        CARD,
        title="Exposure of planted secrets",
        source="arXiv:1802.08232, sec. 4.2",
        aim=Aim.REGURGITATION,
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(),
        aids=(),
        control="",  # the data set plants it
        rounds="latest",
        learns="a secret of a known format, such as an insurance number, that stands in clients' texts",
        does_not_show="secrets in another context; nor that one which is not exposed here is forgotten",
        remedy="remove repeated texts and numbers before training, train fewer epochs, or with dp_sgd for a "
        "stated epsilon",
        uncounted="its secrets are made up and are nobody's; it shows how much a model remembers",
        effort=Effort(seconds=20, grows=("parameters",)),
    )

    @settings
    class Config:
        alternatives: int = Field(
            default=2000, ge=10, le=1_000_000, description="R: secrets that each is ranked among, with itself"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        assert knowledge.architecture is not None and knowledge.schema is not None
        last = _find_newest(view)
        assert last is not None, "the card requires one"
        model, schema = np.empty(1, object), np.empty(1, object)
        model[0], schema[0] = knowledge.architecture(last.payload), knowledge.schema
        return {
            "models": model,
            "schema": schema,
            "artifact": np.array([last.id]),
            "length": np.array(knowledge.shape[0]),
            "classes": np.array(knowledge.classes),
            "seed": np.array(rng.integers(2**62)),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        if not truth.canaries:
            return []
        behind = find_members(truth, str(claim["artifact"][0]), range(int(claim["classes"])))
        tokens: Tokens = claim["schema"][0]
        texts = [] if behind is None else [strip(x, tokens.end) for x in behind.x.astype(np.int64)]
        draws = np.random.default_rng(int(claim["seed"]))
        exposures: dict[int, list[float]] = {}
        for canary in truth.canaries:
            own = open_tokenizer(tokens).cut(f"{canary.prefix} {canary.secret}")
            copies = sum(_holds(text, own) for text in texts)
            if len(own) <= int(claim["length"]):
                exposure = self.rank_secret(claim["models"][0], tokens, canary, draws)
                exposures.setdefault(copies, []).append(exposure)
        never = exposures.pop(0, [])
        top = math.log2(self.config.alternatives)
        note = f"among {self.config.alternatives:,} of their format, so at most {top:.2f}"
        looks = len(exposures)
        found = []
        for copies, some in sorted(exposures.items()):
            judge = Judge(looks=looks, condition={"copies": copies})
            knowing_nothing, said = KNOWING_NOTHING, note
            interval = judge.bound_mean(np.array(some), rng, groups=INDEPENDENT, bounds=(0, top))
            if len(some) < FEW:
                interval = bound_few(some, self.config.alternatives, judge.alpha)
                knowing_nothing = replace(KNOWING_NOTHING, interval=(0.0, bound_luck(len(some), judge.alpha)))
                said = f"{note}; {THESE}"
            measure = "exposure_of_one" if copies == 1 else "exposure"
            blind = [knowing_nothing, *([Baseline(name=NEVER, value=float(np.mean(never)))] if never else [])]
            found.append(judge.state(measure, float(np.mean(some)), len(some), interval, blind, said))
        if never:
            judge = Judge(control="negative", condition={"copies": 0}, note=NEVER)
            interval = judge.bound_mean(np.array(never), rng, groups=INDEPENDENT, bounds=(0, top))
            found.append(judge.state("exposure", float(np.mean(never)), len(never), interval, [KNOWING_NOTHING]))
        return found

    def rank_secret(self, model: Extractor, tokens: Tokens, canary: Canary, rng: np.random.Generator) -> float:
        """Exposure of one secret, in bits."""
        number = self.config.alternatives
        secrets = [canary.secret, *(_draw_like(canary.secret, rng) for _ in range(number - 1))]
        tokenizer = open_tokenizer(tokens)
        begin = len(tokenizer.cut(canary.prefix))
        cut = [tokenizer.cut(f"{canary.prefix} {secret}") for secret in secrets]
        texts = np.zeros((number, max(map(len, cut))), np.int64)
        for row, ids in zip(texts, cut, strict=True):
            row[: len(ids)] = ids
        scores = np.nansum(score_tokens(model, texts)[:, begin - 1 :], axis=1)
        return compute_exposure(float(scores[0]), scores[1:])

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if _find_newest(view) is None:
            return "no global model was recorded"
        if knowledge.architecture is None or knowledge.schema is None:
            return "nobody said what the ids of tokens stand for, so no secret can be written"
        return explain_network(view, knowledge)


def compute_exposure(own: float, others: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    """log2 R - log2 rank of a score among R - 1 others, higher being likelier; ties are shared out."""
    rank = 1 + int((others > own).sum()) + int((others == own).sum()) / 2
    return math.log2(1 + len(others)) - math.log2(rank)


def bound_few(exposures: Sequence[float], alternatives: int, alpha: float) -> Interval:
    """Of these very secrets: how far up each is among all of its format, by the alternatives that were drawn.

    The mean of exact intervals, each at alpha over their number (Clopper, Pearson 1934).
    """
    low, high = 0.0, 0.0
    for exposure in exposures:
        above = alternatives * 2.0**-exposure - 1
        less, more = clopper_pearson(above, alternatives - 1, alpha / len(exposures))
        low += -math.log2(more) / len(exposures)
        high += min(math.log2(alternatives), -math.log2(max(less, 1 / alternatives))) / len(exposures)
    return low, high


def bound_luck(secrets: int, alpha: float) -> float:
    """What the mean exposure of so many secrets of which a model knows nothing stays below, at 1 - alpha / 2.

    Each is exponential with mean log2 e, since ranks are uniform.
    """
    return float(scipy.stats.gamma.isf(alpha / 2, secrets, scale=math.log2(math.e) / secrets))


def _draw_like(secret: str, rng: np.random.Generator) -> str:
    pools = [str.isdigit, str.isalpha]
    signs = {0: "0123456789", 1: LETTERS}
    drawn = []
    for sign in secret:
        kind = next((i for i, fits in enumerate(pools) if fits(sign)), None)
        drawn.append(sign if kind is None else signs[kind][rng.integers(len(signs[kind]))])
    return "".join(drawn)


def _holds(text: Sequence[int], part: Sequence[int]) -> bool:
    return any(tuple(text[i : i + len(part)]) == tuple(part) for i in range(len(text) - len(part) + 1))


def _find_newest(view: Sequence[Artifact]) -> Artifact | None:
    every = index(view).select(kind=Kind.GLOBAL_MODEL, origin="recorded")
    return max(every, key=lambda a: a.round, default=None)
