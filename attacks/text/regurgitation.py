"""Regurgitation: texts that a language model goes on with word for word, given how they begin.

Carlini, Ippolito, Jagielski, Lee, Tramer, Zhang. Quantifying Memorization Across Neural Language Models. ICLR
2023. arXiv:2202.07646, sec. 3.1: a text is extractable where its beginning makes the model emit the rest. Here
the first half is given, and the rest must come as the likeliest continuation, or in at least `least` of
`samples` drawn ones (Hayes et al., Measuring Memorization through Probabilistic Discoverable Extraction,
arXiv:2410.19482, definition 3). Templates are emitted for texts that nobody trained on as well, so both stand
beside it: held-out texts of the same model, and the same texts of the model that training began with.

Claim: a rule. models and starts [k], objects (None: no earlier model); artifact, origin, kind, model and sender
[k]; senders [s]; classes, end and seed [].
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Claim, Effort, Extractor, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import CountedPeople, gather_people
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.targets import BLIND, GLOBAL, targets
from fedaudit.attacks.evidence import REPLAYED, Evidence, is_replay
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.modality.text import PADDING, strip
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.text._language import score_continuations
from fedaudit.attacks.text.sequence_membership import CARD, explain_network
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm

HELD_OUT = "texts that nobody trained on"
BEFORE = "the model that training began with"
HIT = "the rest of the text is emitted, word for word, after its first half"
Prefix = tuple[int, ...]


class Regurgitation(Attack):
    card = replace(
        CARD,
        title="Texts emitted word for word",
        source="arXiv:2202.07646, sec. 3.1; arXiv:2410.19482, definition 3",
        aim=Aim.REGURGITATION,
        rounds="latest",
        learns="the rest of a text whose beginning is known, such as what a note says of a patient of that name",
        does_not_show="what other beginnings, more samples or a search would bring out; nor texts that come back "
        "changed in a word",
        remedy="remove repeated texts before training, train fewer epochs, or with dp_sgd for a stated epsilon",
        effort=Effort(seconds=10, grows=("parameters", "clients")),
    )

    @settings
    class Config:
        texts: AtLeastOne = Field(default=100, description="texts to begin for one model, at most")
        models: AtLeastOne = Field(default=10, description="models of clients to attack, at most")
        samples: AtLeastZero = Field(default=8, description="m: drawn continuations of each beginning")
        least: AtLeastOne = Field(default=2, description="k: of these, how many must be the text's own")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        chosen = [t for t in targets(view, rng, self.config.models, knowledge.training) if t.origin != BLIND]
        models, starts = np.empty(len(chosen), object), np.empty(len(chosen), object)
        for i, t in enumerate(chosen):
            models[i] = knowledge.granted_architecture(t.weights)
            starts[i] = knowledge.granted_architecture(t.start) if t.start else None
        return {
            "models": models,
            "starts": starts,
            "artifact": np.array([t.artifact for t in chosen]),
            "origin": np.array([t.origin for t in chosen]),
            "kind": np.array([t.kind.value for t in chosen]),
            "model": np.array([t.model for t in chosen]),
            "sender": np.array([t.sender for t in chosen], np.int64),
            **list_senders(view, *self.card.targets),
            "classes": np.array(knowledge.classes),
            "end": np.array(PADDING if knowledge.schema is None else knowledge.schema.end),
            "seed": np.array(rng.integers(2**62)),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        places: dict[tuple[str, str], list[_TriedPrompt]] = defaultdict(list)
        for t in self._tried(claim, truth):
            places[t.model, t.origin].append(t)
        looks = sum(not is_replay(origin) for _, origin in places)
        return [e for place in sorted(places) for e in _judge(places[place], *place, max(1, looks))]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        every, found = self._tried(claim, truth), list[PeopleCount]()
        for kind in dict.fromkeys(t.kind for t in every if t.origin == "recorded"):
            counted = CountedPeople(HIT, Harm.RECONSTRUCTION, Kind(kind))
            held, behind = dict[tuple[int, bytes], bool](), dict[int, set[int]]()
            for t in every:
                if t.origin == "recorded" and t.kind == kind:
                    for client in np.unique(t.owners).tolist():
                        own = t.owners == client
                        counted.test(client, t.rows[own], t.rows[own & t.hits])
                    behind.setdefault(t.sender, set()).update(t.owners.tolist())
                    for mark, hit in zip(t.held_marks, t.held_hits.tolist(), strict=True):
                        held[t.sender, mark] = held.get((t.sender, mark), False) or hit
                elif t.origin == REPLAYED:
                    counted.plant(t.sender, float(t.hits.sum()), len(t.hits))
            for (sender, mark), hit in held.items():
                counted.luck(float(hit), 1, person=mark, clients=behind[sender])
            for client in claim["senders"].tolist():
                if not counted.holds(client):
                    counted.hold_at_least(client, len(truth.client_examples(client)))
            found += counted.people(truth)
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not targets(view, np.random.default_rng(0), self.config.models, knowledge.training):
            return "no model was recorded that could emit anything"
        return explain_network(view, knowledge)

    @cached_property
    def _tried(self) -> "BuiltOnce[list[_TriedPrompt]]":
        return BuiltOnce(lambda claim, truth, _: self._try_models(claim, truth))

    def _try_models(self, claim: Claim, truth: Truth) -> "list[_TriedPrompt]":
        found, rng = list[_TriedPrompt](), np.random.default_rng(int(claim["seed"]))
        for i, artifact in enumerate(claim["artifact"].tolist()):
            behind, owners, rows = gather_people(truth, artifact, range(int(claim["classes"])))
            if not len(behind):
                continue
            some = np.sort(rng.permutation(len(behind))[: self.config.texts])
            unseen = truth.unseen(np.unique(owners[some]).tolist()).images.x
            marks = set(fingerprints(behind.x))
            free = [j for j, m in enumerate(fingerprints(unseen)) if m not in marks]
            held = unseen[[free[j] for j in rng.permutation(len(free))[: max(20, len(some))]]]
            texts = [self._strip(claim, x) for x in behind.x[some]]
            start = claim["starts"][i]
            found.append(
                _TriedPrompt(
                    model=str(claim["model"][i]),
                    origin=str(claim["origin"][i]),
                    kind=str(claim["kind"][i]),
                    sender=int(claim["sender"][i]),
                    owners=owners[some],
                    rows=rows[some],
                    hits=self.find_emitted(claim["models"][i], texts, rng),
                    before=None if start is None else self.find_emitted(start, texts, rng),
                    held_hits=self.find_emitted(claim["models"][i], [self._strip(claim, x) for x in held], rng),
                    held_marks=tuple(fingerprints(held)),
                )
            )
        return found

    def _strip(self, claim: Claim, text: NDArray[Any]) -> Prefix:
        return strip(text.astype(np.int64), int(claim["end"]))

    def find_emitted(
        self, model: Extractor, texts: Sequence[Prefix], rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Of each text, whether the model emits its second half after its first.

        How many of `samples` drawn continuations are the text's own is drawn by the chance of one.
        """
        found = np.zeros(len(texts), np.bool_)
        rows = [i for i, text in enumerate(texts) if len(text) > 1]
        some = [texts[i] for i in rows]
        likeliest, odds = score_continuations(model, some, [-(-len(text) // 2) for text in some])
        found[rows] = likeliest | (rng.binomial(self.config.samples, np.exp(odds)) >= self.config.least)
        return found


@dataclass(frozen=True, kw_only=True)
class _TriedPrompt:
    """What one model emitted of the texts behind it [n] and of held-out ones [m]."""

    model: str
    origin: str
    kind: str
    sender: int
    owners: NDArray[np.int64]
    rows: NDArray[np.int64]
    hits: NDArray[np.bool_]
    before: NDArray[np.bool_] | None
    held_hits: NDArray[np.bool_]
    held_marks: tuple[bytes, ...]


def _judge(tried: Sequence[_TriedPrompt], model: str, origin: str, looks: int) -> list[Evidence]:
    """The share of texts that are emitted, and of held-out ones as the negative control of recorded models."""
    hits = np.concatenate([t.hits for t in tried]).astype(np.float64)
    held = np.concatenate([t.held_hits for t in tried]).astype(np.float64)
    owners = np.concatenate([t.owners if t.model == GLOBAL else np.full(len(t.hits), t.sender) for t in tried])
    blind, groups = {HELD_OUT: held}, {"": owners, HELD_OUT: np.arange(len(held))}
    before = [t.before for t in tried]
    if all(b is not None for b in before):
        blind[BEFORE] = np.concatenate([b for b in before if b is not None]).astype(np.float64)
        groups[BEFORE] = owners
    planted = is_replay(origin)
    judge = Judge(
        looks=looks, control="positive" if planted else "none", condition={"model": model, "origin": origin}
    )
    note = "made by the auditor: what the attack can do" if planted else "the second half after the first"
    found = [judge.judge_hits("text_emitted", hits, blind, groups=groups, note=note)]
    if not planted and len(held) > 1:
        half = len(held) // 2
        silent = Judge(control="negative", condition={"model": model}, note=HELD_OUT)
        found.append(
            silent.judge_hits(
                "text_emitted", held[:half], {"as many others": held[half:]}, groups=np.arange(half)
            )
        )
    return found
