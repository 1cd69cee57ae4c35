"""Property inference: does a client's class contain a subgroup, such as the images of one site?

Ateniese et al. Hacking Smart Machines with Smarter Ones. IJSN 10(3), 2015, arXiv:1306.4447, sec. 3 (a
meta-classifier trained on models with and without a property), on prototypes as Melis, Song, De
Cristofaro, Shmatikov, IEEE S&P 2019, arXiv:1805.04049, sec. 4.4, do on updates. The adversary names a
subgroup of its own images of the class (attacks/prototypes/_subgroups.py), averages their features over groups
of
n with and without it, using the client's model, and fits a logistic regression that it then applies to
the client's prototype. Left out: properties of the whole update.

Prototypes that contain the subgroup are compared with those that do not, by n. Where every client has
some of it, recorded prototypes cannot show anything; replayed ones of few samples do. The planted leak
is made of each client's own images, with and without the subgroup, at the same n and with its model
(no protection applies to it); the negative control shuffles which prototype contains it.

Claim: score [k], coefficient [k, D], intercept [k], label, n, sender, model [k], artifact, origin
[k]; extractors [models] and subgroups [k], objects.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.membership import Scores
from fedaudit.attacks.evaluation.trials import size_range
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes._playing import read
from fedaudit.attacks.prototypes._subgroups import Property, Subgroup, find
from fedaudit.attacks.prototypes._weights import Prototype, columns, prototypes, unreadable
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


class PropertyInference(Attack):
    card = Card(
        title="Subgroup of a class, from prototypes",
        source="arXiv:1306.4447, sec. 3; arXiv:1805.04049, sec. 4.4",
        aim=Aim.ATTRIBUTE,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.LOCAL_PROTOTYPES,),
        also_reads=(Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GLOBAL_MODEL, Kind.PROTO_COUNTS, Kind.LABEL_COUNTS),
        aids=(Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GLOBAL_MODEL, Kind.PROTO_COUNTS, Kind.LABEL_COUNTS),
        control="prototypes",
        learns="whether a client's images of a class include a subgroup",
        does_not_show="subgroups that the adversary has no images of, nor which images are in it",
        remedy="clip and noise prototypes with a stated epsilon, or send them through secure aggregation",
        uncounted="it ranks prototypes by how likely they hold a subgroup, and states of none that it does",
        effort=Effort(seconds=1.5, grows=("network", "replays"), examples=500),
    )

    @settings
    class Config:
        subgroup: Property = Field(
            default="cluster", description="what defines the subgroup: a cluster of features, or brightness"
        )
        clusters: int = Field(
            default=4, ge=2, description="clusters of a class, of which the smallest is the subgroup"
        )
        simulated: int = Field(
            default=200,
            ge=10,
            description="prototypes a classifier is trained on, half of them with the subgroup",
        )
        least_auxiliary: int = Field(default=40, ge=10, description="auxiliary images that a class needs")
        assumed_samples: AtLeastOne = Field(
            default=100, description="number of samples behind a prototype where nothing visible states it"
        )
        max_clients: AtLeastOne = Field(
            default=20, description="models to attack, at most; those with replays and the smallest classes first"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        aux = knowledge.granted_auxiliary
        sources = prototypes(view)[: self.config.max_clients]
        extractors = np.empty(len(sources), dtype=object)
        subgroups: dict[int, Subgroup] = {}
        rows: list[tuple[int, Prototype, Floats]] = []  # model, prototype, classifier [D + 1]
        found, _ = read(sources, knowledge)
        for m, r in enumerate(found):
            source, extractors[m] = r.source, r.extractor
            features: dict[int, Floats] = {}
            fitted: dict[tuple[int, int], Floats] = {}
            for p in source.prototypes:
                c, images = p.label, aux.of_class(p.label)
                if len(images) < self.config.least_auxiliary:
                    continue
                if c not in subgroups:
                    config = self.config
                    subgroups[c] = find(images, config.subgroup, config.clusters, rng)
                if c not in features:
                    features[c] = extractors[m].features(images).astype(np.float64)
                key = (c, p.samples or self.config.assumed_samples)
                if key not in fitted:
                    inside = subgroups[c].holds(images)
                    fitted[key] = self._classifier(features[c], inside, key[1], rng)
                rows.append((m, p, fitted[key]))
        if not rows:
            raise UserError(
                "no class of a prototype has enough auxiliary images",
                hint="hold back more auxiliary data, or lower property_inference.least_auxiliary",
            )
        every, weights = [p for _, p, _ in rows], np.stack([w for _, _, w in rows])
        held = np.empty(len(rows), dtype=object)
        held[:] = [subgroups[p.label] for p in every]
        return {
            "score": (np.stack([p.feature for p in every]) * weights[:, :-1]).sum(1) + weights[:, -1],
            "coefficient": weights[:, :-1],
            "intercept": weights[:, -1],
            **columns(every),
            "model": np.array([m for m, _, _ in rows]),
            "extractors": extractors,
            "subgroups": held,
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        cases: dict[tuple[str, int], list[tuple[int, bool, int]]] = defaultdict(list)
        for row, (artifact, label) in enumerate(zip(claim["artifact"], claim["label"], strict=True)):
            own = truth.members(str(artifact), int(label))
            if len(own):
                origin, inside = str(claim["origin"][row]), claim["subgroups"][row].holds(own)
                cases[origin, size_range(origin, len(own))].append((row, bool(inside.any()), len(own)))
        both = {k: c for k, c in cases.items() if len({has for _, has, _ in c}) == 2}
        found: list[Evidence] = []
        for origin, n in sorted(both):
            samples = float(np.median([k for _, _, k in both[origin, n]]))
            scores = _scores(claim, [(r, has) for r, has, _ in both[origin, n]])
            found.append(_area(scores, looks=len(both), condition={"n": samples, "origin": origin}))
        answers = [(r, has) for c in both.values() for r, has, _ in c]
        if answers:
            shuffled = rng.permutation([has for _, has in answers])
            wrong = [(r, bool(s)) for (r, _), s in zip(answers, shuffled, strict=True)]
            found.append(
                _area(_scores(claim, wrong), control="negative", note="which prototypes contain it, shuffled")
            )
        planted = self._score_planted_leak(claim, truth, rng)
        if planted is not None:
            found.append(_area(planted, control="positive", note="of each client's own images"))
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return unreadable(view, knowledge.auxiliary)

    def _classifier(
        self, features: Floats, inside: NDArray[np.bool_], n: int, rng: np.random.Generator
    ) -> Floats:
        """Coefficients and intercept, [D + 1], of "a mean of n contains the subgroup"."""
        from sklearn.linear_model import LogisticRegression

        half = self.config.simulated // 2
        means = [features[draw(inside, n, has, rng)].mean(0) for has in [True] * half + [False] * half]
        x, y = np.stack(means), np.repeat([1, 0], half)
        spread = x.std(axis=0)
        scale = np.where(spread > 1e-6 * spread.max(), spread, np.inf)  # dead units say nothing
        model = LogisticRegression(C=0.1, max_iter=500).fit((x - x.mean(0)) / scale, y)
        weight = model.coef_[0] / scale
        return np.append(weight, model.intercept_[0] - weight @ x.mean(0))

    def _score_planted_leak(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> Scores | None:
        members: list[float] = []
        others: list[float] = []
        senders: list[int] = []
        for row, (sender, label) in enumerate(zip(claim["sender"], claim["label"], strict=True)):
            own = truth.client_images(int(sender)).of_class(int(label))
            inside = claim["subgroups"][row].holds(own)
            n = int(claim["n"][row])
            if n < 1 or inside.all() or not inside.any():
                continue
            groups = [draw(inside, n, has, rng) for has in (True, False)]
            chosen = own[np.concatenate(groups)]
            features = claim["extractors"][claim["model"][row]].features(chosen).astype(np.float64)
            for mean, where in ((features[:n].mean(0), members), (features[n:].mean(0), others)):
                where.append(float(claim["coefficient"][row] @ mean + claim["intercept"][row]))
            senders.append(int(sender))
        if not senders:
            return None
        return Scores(
            members=np.array(members),
            others=np.array(others),
            member_groups=np.array(senders),
            other_groups=np.array(senders),
        )


def draw(inside: NDArray[np.bool_], n: int, has: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """n rows: any of which at least one is inside the subgroup, or none of which is.

    Without repetition where there are rows enough.
    """
    if not has:
        rows = np.flatnonzero(~inside)
        return np.asarray(rng.choice(rows, n, replace=len(rows) < n))
    chosen = rng.choice(len(inside), n, replace=len(inside) < n)
    if not inside[chosen].any():
        chosen[0] = rng.choice(np.flatnonzero(inside))
    return np.asarray(chosen)


def _scores(claim: Claim, answers: Sequence[tuple[int, bool]]) -> Scores:
    rows, has = np.array([r for r, _ in answers]), np.array([h for _, h in answers])
    score, sender = claim["score"][rows], claim["sender"][rows]
    return Scores(members=score[has], others=score[~has], member_groups=sender[has], other_groups=sender[~has])


def _area(scores: Scores, **settings: Any) -> Evidence:
    found = membership.evidence(scores, {}, others="prototypes without the subgroup", **settings)
    return replace(found[0], measure="property_auc")
