"""Token set: which tokens a client's texts have, read off the rows of the embedding that moved.

A row of an untied input embedding gets a gradient only where its token was read (Melis, Song, De Cristofaro,
Shmatikov, IEEE S&P 2019, arXiv:1805.04049, sec. 4.1; Gupta et al., FILM, NeurIPS 2022, arXiv:2205.08514, sec.
4.1). Weight decay moves every row by the same factor, so that is taken out first: c = median over rows of <D_v,
w_v> / |w_v|^2 and R = D - c w. What is left of rows that nobody read is rounding, or noise if there is any, and
about the same share of each row's length: a token is claimed where |R_v| / |w_v| is over five times the lower
quartile. Where the embedding is the head as well, every row moves: tokens are then ordered by |R_v|, and as
many claimed as stand before the widest gap of that order.

What differs from the papers: the median and the quartile, which let decay, several steps and clipping pass.
Left out: the rows of an untied head where the embedding is frozen.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge
from fedaudit.attacks.evaluation.sources import UPLOADS
from fedaudit.attacks.text._inputs import find_token_embedding, name_parameters
from fedaudit.attacks.text._tokens import TokenAttack, TokenReading, make_claim
from fedaudit.attacks.text._uploads import AIDS, READ, explain_absence, iterate_changes
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
MOVED = 5.0  # times the lower quartile of all rows' moves, each as a share of the row's length: a row moved

CARD = Card(
    title="",
    source="",
    aim=Aim.RECONSTRUCTION,
    needs=("tokens",),
    threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
    requires=(Kind.GLOBAL_MODEL,),
    also_reads=READ,
    aids=AIDS,
    control="updates",
    rounds="all",
    learns="",
    does_not_show="",
    remedy="",
    effort=Effort(seconds=10, grows=("parameters", "updates")),
)


class TokenSet(TokenAttack):
    card = replace(
        CARD,
        title="Tokens from the rows of an embedding",
        source="arXiv:1805.04049, sec. 4.1; arXiv:2205.08514, sec. 4.1",
        learns="which words a client's texts have, rare ones such as names among them",
        does_not_show="their order; nor which text has which word, where there are several",
        remedy="freeze the embedding and train adapters of low rank, sum updates securely, or noise all rows of "
        "the embedding with a stated epsilon (dp_sgd); noise on the rows that moved alone hides nothing",
        effort=Effort(seconds=1, grows=("parameters", "updates")),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        readings, vocabulary, place = [], 1, None
        for change in iterate_changes(view, knowledge):
            if place is None:
                module = knowledge.granted_architecture(change.start).module()
                name, shared = find_token_embedding(module, int(knowledge.shape[0]))
                place = name_parameters(module, change.start).get(name, ""), shared
            key, shared = place
            if key not in change.change:
                continue
            start = np.asarray(change.start[key], np.float64)
            moves = measure_moves(change.change[key], start)
            vocabulary = len(moves)
            readings.append(
                TokenReading(
                    artifact=change.artifact,
                    kind=change.kind,
                    origin=change.origin,
                    sender=change.sender,
                    round=change.round,
                    n=change.n,
                    tokens=select_before_gap(moves) if shared else select_moved(moves, start),
                    ranked=moves,
                )
            )
        return make_claim(readings, view, UPLOADS, vocabulary, knowledge)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := explain_absence(view, knowledge):
            return reason
        change = next(iterate_changes(view, knowledge))
        module = knowledge.granted_architecture(change.start).module()
        name, _ = find_token_embedding(module, int(knowledge.shape[0]))
        key = name_parameters(module, change.start).get(name, "")
        moved = (c.change.get(key) for c in iterate_changes(view, knowledge))
        if not key or not any(m is not None and m.any() for m in moved):
            return "clients do not train an embedding of tokens, so no row of one moves"
        return ""


def measure_moves(change: Values, weights: Values) -> Values:
    """[V, d] twice -> [V]: how far each row moved, beyond the factor by which half of all rows moved or less."""
    squares = (weights**2).sum(axis=1)
    known = squares > 0
    factor = np.median((change * weights).sum(axis=1)[known] / squares[known]) if known.any() else 0.0
    moves = np.linalg.norm(change - factor * weights, axis=1)
    moves[:1] = 0.0  # padding
    return np.asarray(moves)


def select_moved(moves: Values, weights: Values) -> NDArray[np.bool_]:
    """[V] and [V, d] -> [V]: rows that moved far more than a quarter of all did, as a share of their length."""
    length = np.linalg.norm(weights, axis=1)
    share = moves[1:] / np.maximum(length[1:], 1e-30)
    found = np.zeros(len(moves), np.bool_)
    found[1:] = (share > MOVED * np.quantile(share, 0.25)) & (moves[1:] > 0)
    return found


def select_before_gap(moves: Values) -> NDArray[np.bool_]:
    """[V]: rows before the widest gap, as a ratio, in the order of their moves; none where no row moved."""
    order = np.argsort(-moves[1:], kind="stable") + 1  # padding is no token
    held = np.maximum(moves[order], 1e-30)
    found = np.zeros(len(moves), np.bool_)
    if moves.max(initial=0.0) > 0 and len(moves) > 2:
        found[order[: int(np.argmax(held[:-1] / held[1:])) + 1]] = True
    return found
