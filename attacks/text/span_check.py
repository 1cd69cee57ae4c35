"""Span check: texts whose embedded tokens lie in the span of what one update changed in the first block.

Petrov, Dimitrov, Baader, Mueller, Vechev. DAGER: Exact Gradient Inversion for Large Language Models. NeurIPS
2024, arXiv:2405.15586, algorithm 1, for what is really sent: a difference of float32 weights after any number
of steps of gradient descent. The first block's maps read a norm of e(v) + e(p), of which nothing but the token
v and its position p decide; those that lie in the span of the maps' change are claimed (evaluation/span.py). Then
prefixes are extended token by token as long as what they make of a later map's input lies in the span of that
map's change.

What differs from the paper: the later map is the one whose change has the highest rank, not always the next
block's, whose keys and values move along a few directions only where a class is told from the last token; maps
that read one input are stacked (a first position moves no query); ranks come from rounding and not from a
tolerance; no text is picked with the truth in hand; and where the exact test is silent (adaptive optimisers,
too many texts, noise), tokens are ordered by their residual, which is judged beside the order of the commonest
tokens alone.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, Knowledge
from fedaudit.attacks.evaluation.sources import UPLOADS
from fedaudit.attacks.text._reading import Network, read_first, read_texts
from fedaudit.attacks.text._tokens import TokenAttack, TokenReading, make_claim
from fedaudit.attacks.text._uploads import explain_absence, iterate_changes
from fedaudit.attacks.text.token_set import CARD
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings

NO_MAP = "no map that reads a token and its position alone was trained, so its change spans no tokens"


class SpanCheck(TokenAttack):
    card = replace(
        CARD,
        title="Texts in the span of an update",
        source="arXiv:2405.15586, algorithm 1",
        learns="the words of a client's texts and, of few texts, the texts themselves, letter by letter",
        does_not_show="what an attacker gets who does not follow the steps of gradient descent; nor that a "
        "client with more texts, or one that trains with an adaptive optimiser, is safe: the test is then silent",
        remedy="train on more distinct tokens than the width of the model in every update, sum updates securely, "
        "or noise them with a stated epsilon (dp_sgd); clipping alone changes nothing",
        effort=Effort(seconds=20, grows=("parameters", "updates")),
    )

    @settings
    class Config:
        recorded: AtLeastZero = Field(default=50, description="uploads to attack that crossed the wire, at most")
        replayed: AtLeastOne = Field(default=50, description="replayed uploads to attack, at most")
        beams: AtLeastOne = Field(default=64, description="prefixes of one length that are kept")
        tries: AtLeastZero = Field(
            default=20_000, description="extensions of prefixes to try for one upload; 0: tokens only, no texts"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        readings, vocabulary = list[TokenReading](), 1
        left = {True: self.config.recorded, False: self.config.replayed}
        for change in iterate_changes(view, knowledge):
            is_recorded = change.origin == "recorded"
            if left[is_recorded] == 0:
                continue
            network = Network.from_change(change, knowledge)
            found = None if network is None else read_first(network, [change])
            if network is None or found is None:
                continue
            left[is_recorded] -= 1
            vocabulary = network.vocabulary
            texts = read_texts(network, change, found.pairs, self.config.beams, self.config.tries)
            readings.append(
                TokenReading(
                    artifact=change.artifact,
                    kind=change.kind,
                    origin=change.origin,
                    sender=change.sender,
                    round=change.round,
                    n=change.n,
                    rank=found.rank,
                    full=found.full,
                    tokens=found.tokens,
                    ranked=found.ranked,
                    sentences=texts,
                )
            )
        return make_claim(readings, view, UPLOADS, vocabulary, knowledge)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := explain_absence(view, knowledge):
            return reason
        first = next(iterate_changes(view, knowledge))
        return "" if Network.from_change(first, knowledge) is not None else NO_MAP
