"""Adapter span: tokens in the span of what all of a client's rounds changed in the first block's adapters.

With adapters the base and its embeddings stand still, so what the first block reads of a token at its position
is the same in every round, and the rows of A's changes lie in one span (Hu et al., LoRA, arXiv:2106.09685, sec.
4.1: W + B A, so the gradient of A is B^T G X^T, with rows in the span of the inputs). A message of rank r and q
maps adds up to q r directions; stacked over the rounds they grow until they reach tokens + positions -
components (evaluation/span.py), where the test of DAGER (arXiv:2405.15586) is exact. A low rank delays that and
does not prevent it. In the first round of a run B is 0 and A does not move; in the next ones its change drowns in
rounding, and takes nothing from later rounds. Where A is frozen, rows of B's changes lie in the span of A's
outputs, of no more than r directions however many rounds.

Left out: what sums of several clients tell where single uploads are hidden, unless the server reads them as one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, Knowledge
from fedaudit.attacks.evaluation.sources import UPLOADS
from fedaudit.attacks.text._inputs import compute_inputs
from fedaudit.attacks.text._reading import Network, read_first
from fedaudit.attacks.text._tokens import TokenAttack, TokenReading, make_claim
from fedaudit.attacks.text._uploads import Change, explain_absence, iterate_changes
from fedaudit.attacks.text.span_check import NO_MAP
from fedaudit.attacks.text.token_set import CARD
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

MOVES = (
    "what the first trained map reads changes from round to round, since what comes before it is trained as well"
)


class AdapterSpan(TokenAttack):
    card = replace(
        CARD,
        title="Tokens in the span of a client's rounds",
        source="arXiv:2405.15586, algorithm 1; arXiv:2106.09685, sec. 4.1",
        control="series",
        learns="the words of a client's texts, rare ones such as names among them, from adapters of all rounds",
        does_not_show="their order; nor that adapters of a lower rank, fewer rounds or an adaptive optimiser "
        "protect: they delay or silence this test",
        remedy="take part in fewer rounds or on other texts in each, sum adapters securely, freeze A at a rank "
        "below the number of distinct tokens, or noise adapters with a stated epsilon (dp_sgd)",
        effort=Effort(seconds=10, grows=("parameters", "updates", "rounds")),
    )

    @settings
    class Config:
        clients: AtLeastOne = Field(default=1000, description="clients to attack, at most")
        planted: AtLeastOne = Field(default=1000, description="planted series to attack, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        readings, vocabulary = list[TokenReading](), 1
        groups = [g for g in _group(view, knowledge).values() if g[0].origin == "recorded"][: self.config.clients]
        planted = [g for g in _group(view, knowledge).values() if g[0].origin != "recorded"]
        for changes in [*groups, *planted[: self.config.planted]]:
            network = find_still_network(changes, knowledge)
            found = None if network is None else read_first(network, changes)
            if network is None or found is None:
                continue
            vocabulary, last = network.vocabulary, changes[-1]
            readings.append(
                TokenReading(
                    artifact=last.artifact,
                    kind=last.kind,
                    origin=last.origin,
                    sender=last.sender,
                    round=last.round,
                    n=last.n,
                    messages=len(changes),
                    rank=found.rank,
                    full=found.full,
                    tokens=found.tokens,
                    ranked=found.ranked,
                )
            )
        return make_claim(readings, view, UPLOADS, vocabulary, knowledge)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := explain_absence(view, knowledge):
            return reason
        groups = list(_group(view, knowledge).values())
        if Network.from_change(groups[0][-1], knowledge) is None:
            return NO_MAP
        is_still = any(find_still_network(changes, knowledge) is not None for changes in groups)
        return "" if is_still else MOVES


def _group(view: Sequence[Artifact], knowledge: Knowledge) -> dict[tuple[str, int, str], list[Change]]:
    """Changes that are read together, in the order of their rounds: a client's recorded ones, and each series."""
    groups: dict[tuple[str, int, str], list[Change]] = {}
    for change in iterate_changes(view, knowledge):
        alone = "" if change.origin == "recorded" or change.series else change.artifact
        groups.setdefault((change.origin, change.sender, change.series or alone), []).append(change)
    return {key: sorted(some, key=lambda c: c.round) for key, some in groups.items()}


def find_still_network(changes: Sequence[Change], knowledge: Knowledge) -> Network | None:
    """The network whose first input is the same before and after all these changes; None where there is none."""
    network = Network.from_change(changes[-1], knowledge)
    if network is None or knowledge.architecture is None:
        return None
    first, last = changes[0], changes[-1]
    ends = [
        last.start,
        {**last.start, **{k: np.asarray(last.start[k] + v, np.float32) for k, v in last.change.items()}},
    ]
    probe = np.arange(1, network.length + 1, dtype=np.int64)[None] % network.vocabulary
    probe[probe == 0] = 1
    inputs = [
        compute_inputs(knowledge.architecture(weights).module(), network.sites[0], probe)
        for weights in (first.start, *ends)
    ]
    is_still = all(np.allclose(inputs[0], other, atol=1e-5) for other in inputs[1:])
    return network if is_still else None
