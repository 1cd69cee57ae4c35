"""Membership from public outputs: a malicious server asks clients about their own examples, as public ones.

Shi et al., arXiv:2502.08001, with the score of LiRA (Carlini et al., arXiv:2112.03570, sec. V.C, offline): how
much surer one client's model is of an image than the other clients' are, over their spread. The other clients, of
very many `MOST`, are the shadow models, which cost nothing. Candidates have to stand among the public examples
(`candidates` of FedMD); public data of an honest server hold nobody's examples, and there is nothing to find.

Members are images that a client holds, non-members public images that it does not, **as many of each class**. A
client is surer of the classes that it trained on, whoever's images they are: among non-members of any class
this is mistaken for membership, and a note says what would have been reported. Blind adversaries score with the
outputs of another client. The planted leak is outputs that are surer of a client's own images by `PLANTED`.

Claim: score [k, m] of each client on the public images asked about, NaN where it was not asked; label [m] and
image hashes [m]; client [k].
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.membership import Scores, curve, evidence, halves, score_clusters
from fedaudit.attacks.evaluation.scores import lira_offline, scaled_logit
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.summaries._public import ClientAnswers, read_answers
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel

PLANTED = 10.0  # on ln(p / (1 - p)) of a client's own images
FEWEST = 3  # clients: one is asked about, and two make a mean and a spread
MOST = 500  # other clients that one is compared with
Values = NDArray[np.float64]


class PublicMembership(Attack):
    card = Card(
        title="Membership from outputs on public data",
        source="Shi et al., arXiv:2502.08001; Carlini et al., arXiv:2112.03570, sec. V.C",
        aim=Aim.MEMBERSHIP,
        needs=("groups",),
        threat=ThreatModel(position=Position.SERVER, conduct=Conduct.MALICIOUS),
        requires=(Kind.PUBLIC_LOGITS,),
        rounds="all",
        learns="which of the images that it put among the public ones a client trained on",
        does_not_show="anything of examples that the server does not have; nor which client's model is surer of "
        "a class, which is no membership",
        control="",  # planted in measure()
        remedy="take public data that the server does not choose, or send the likeliest class alone",
        effort=Effort(seconds=0.3, grows=("clients", "rounds")),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        public, sent = knowledge.public, read_answers(view, knowledge)
        assert public is not None, "outputs are read with public images alone"
        clients = sorted({a.client for a in sent})
        places, rounds = {k: i for i, k in enumerate(clients)}, dict[int, list[ClientAnswers]]()
        for a in sent:
            rounds.setdefault(a.round, []).append(a)
        total = np.zeros((len(clients), len(public)))
        asked = np.zeros_like(total)
        surer = np.zeros_like(total)  # as `total`, of models with the planted leak
        for _, own in sorted(rounds.items()):
            phi = np.full(total.shape, np.nan)
            for a in own:
                phi[places[a.client], a.places] = scaled_logit(a.logits, public.y[a.places])
            for row in range(len(clients)):
                rest = phi[list_others(row, len(clients))]
                known = np.isfinite(phi[row]) & (np.isfinite(rest).sum(axis=0) >= FEWEST - 1)
                if known.any():
                    outs = rest[:, known]
                    total[row, known] += lira_offline(phi[row, known], outs, shared=True)
                    surer[row, known] += lira_offline(phi[row, known] + PLANTED, outs, shared=True)
                    asked[row] += known
        with np.errstate(invalid="ignore"):
            score, planted = total / asked, surer / asked
        return {
            "score": score,
            "planted": planted,
            "label": public.y,
            "image": np.array([_name(x) for x in public.x]),
            "client": np.array(clients),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        held = _find_held(claim, truth)
        rows = range(len(held))
        scores, unmatched = _gather(claim["score"], held, claim, rng), _area(claim["score"], held)
        another = _gather(np.roll(claim["score"], 1, axis=0), held, claim, rng)
        note = f"against non-members of any class, whose classes show, the AUC would be {unmatched:.2f}"
        against = "public images of the same classes that the client does not hold"
        found = evidence(scores, {"another client's outputs": another}, note=note, others=against)
        lifted = np.where(held, claim["planted"], claim["score"])
        planted = _gather(lifted, held, claim, rng)
        note = f"outputs made surer of a client's own images by {PLANTED:g}"
        found += evidence(planted, {}, note=note, control="positive", others=against)[:1]
        silent = [halves(claim["score"][k][~held[k] & np.isfinite(claim["score"][k])], rng) for k in rows]
        nobody = score_clusters([a for a, _ in silent], [b for _, b in silent])
        note = "images that a client does not hold in the place of members"
        return [*found, *evidence(nobody, {}, control="negative", note=note)[:1]]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whom the scores flag, of the candidates alone, beside public images of the same classes of nobody's."""
        held = _find_held(claim, truth)
        recorded, is_nobodys = list[ScoredPeople](), ~held.any(axis=0)
        for row, client in enumerate(claim["client"].tolist()):
            asked = np.isfinite(claim["score"][row])
            own = held[row] & asked
            others = is_nobodys & asked & np.isin(claim["label"], claim["label"][own])
            whose = {
                _name(x): r
                for x, r in zip(truth.client_examples(client).x, truth.client_rows(client), strict=True)
            }
            recorded.append(
                ScoredPeople(
                    client=client,
                    rows=[whose[name] for name in claim["image"][own].tolist()],
                    scores=claim["score"][row][own],
                    held_out=claim["image"][others].tolist(),
                    held_out_scores=claim["score"][row][others],
                )
            )
        return count_flagged(recorded, [], claim["client"].tolist(), truth)

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        held = _find_held(claim, truth)
        scores = _gather(claim["score"], held, claim, np.random.default_rng(0))
        return [curve("public outputs", scores)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.public is None:
            return "nobody knows which public examples outputs are of"
        if not knowledge.public.candidates.any():
            return "the server put nobody's examples among the public ones (method.candidates is 0)"
        by_round: dict[int, set[int]] = {}
        for a in read_answers(view, knowledge):
            by_round.setdefault(a.round, set()).add(a.client)
        if max(map(len, by_round.values()), default=0) < FEWEST:
            return "fewer than three clients send outputs on the same public examples"
        return ""


def list_others(row: int, clients: int) -> NDArray[np.int64]:
    """Rows of the other clients; MOST of them, the next ones, where there are more."""
    return np.sort((row + 1 + np.arange(min(clients - 1, MOST))) % clients)


def _name(image: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()


def _find_held(claim: Claim, truth: Truth) -> NDArray[np.bool_]:
    """[k, m] which public images each client holds: those that are equal to one of its own."""
    found = np.zeros(claim["score"].shape, bool)
    for row, client in enumerate(claim["client"].tolist()):
        own = {_name(x) for x in truth.client_examples(client).x}
        found[row] = [name in own for name in claim["image"].tolist()]
    return found


def _gather(score: Values, held: NDArray[np.bool_], claim: Claim, rng: np.random.Generator) -> Scores:
    """Members and as many non-members of each class, client by client."""
    sides: list[tuple[Values, Values]] = []
    for own, asked in zip(held, score, strict=True):
        known = np.isfinite(asked)
        pairs = [_draw_pairs(asked, known & own & here, known & ~own & here, rng) for here in _classes(claim)]
        sides.append((np.concatenate([m for m, _ in pairs]), np.concatenate([o for _, o in pairs])))
    return score_clusters([m for m, _ in sides], [o for _, o in sides])


def _classes(claim: Claim) -> list[NDArray[np.bool_]]:
    return [claim["label"] == c for c in np.unique(claim["label"])]


def _draw_pairs(
    score: Values, members: NDArray[np.bool_], others: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Values, Values]:
    """As many of both sides, at random."""
    few = int(min(members.sum(), others.sum()))
    own, rest = (score[rng.permutation(np.flatnonzero(side))[:few]] for side in (members, others))
    return own, rest


def _area(score: Values, held: NDArray[np.bool_]) -> float:
    """Mean over clients of the AUC against all public images that they do not hold, of whatever class."""
    areas = [
        stats.auc(s[own & np.isfinite(s)], s[~own & np.isfinite(s)], groups=stats.INDEPENDENT).value
        for s, own in zip(score, held, strict=True)
        if (own & np.isfinite(s)).any() and (~own & np.isfinite(s)).any()
    ]
    return float(np.mean(areas)) if areas else float("nan")
