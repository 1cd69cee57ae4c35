"""Prototype membership: was this image among those that a prototype averages?

Tracing from a released mean, with the likelihood ratio of Sankararaman, Obozinski, Jordan, Halperin,
Nature Genetics 2009, after Homer et al., PLoS Genetics 2008; for correlated features with the
covariance in it, as Dwork, Smith, Steinke, Ullman, Vadhan, FOCS 2015, analyse. With f = features of
the candidate and p the prototype of n samples of a class with mean mu and covariance S,

    out:  p ~ N(mu, S/n + t^2 I)         in:  p ~ N(mu + (f - mu)/n, S (n-1)/n^2 + t^2 I)

and the score is the log-likelihood ratio, where t is the deviation of noise that was added (0: none;
then n = 1 scores -(f - p)' S^-1 (f - p)). Features are those of the client's own model; mu and S
(Ledoit-Wolf) come from auxiliary images of the class. Expected: AUC = Phi(sqrt(d / 2n)) with d the
effective number of features. The distance to the prototype, which most papers try, sees nothing
beyond n = 20.

Claim: a rule, since any image can be queried. prototype [k, D], label, n (-1 unknown), model,
population, sender, artifact, origin [k]; extractors [models], objects; law [k], objects, None
where the prototype is the mean of the features that the extractor gives; mean [q, D], axes [q, D, D],
spread [q, D]: eigenvectors and eigenvalues of S for each model and class;
reading: how prototypes were read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.covariance import shrink_covariance
from fedaudit.attacks.evaluation.features import extract_each
from fedaudit.attacks.evaluation.membership import judge_buckets
from fedaudit.attacks.evaluation.prototype_laws import Law
from fedaudit.attacks.evaluation.prototype_plays import describe, read
from fedaudit.attacks.evaluation.sources import columns, prototypes, unreadable
from fedaudit.attacks.evaluation.tracing import OTHER, TracedMembership
from fedaudit.attacks.evaluation.trials import count_looks
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]

_AIDS = (Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GLOBAL_MODEL, Kind.PROTO_COUNTS, Kind.LABEL_COUNTS)


class PrototypeMembership(TracedMembership):
    what = "prototypes"
    card = Card(
        title="Membership from prototypes (likelihood ratio)",
        needs=("numbers", "classes"),
        source="Sankararaman et al., Nature Genetics 2009; Dwork et al., FOCS 2015",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.LOCAL_PROTOTYPES,),
        also_reads=(*_AIDS, Kind.AGGREGATE),
        aids=_AIDS,
        control="prototypes",
        rounds="all",
        learns="whether a given example was in a client's training data",
        does_not_show="membership under auxiliary data unlike the clients', which weakens the test; it "
        "is no proof of privacy",
        remedy="clip and noise prototypes with a stated epsilon, or send them through secure aggregation",
        effort=Effort(seconds=2, grows=("network", "replays"), examples=500),
    )

    @settings
    class Config:
        max_clients: AtLeastOne = Field(
            default=1000,
            description="models to attack, at most; those with replays and the smallest classes first",
        )
        members: AtLeastOne = Field(default=500, description="members scored for one prototype, at most")
        others: AtLeastOne = Field(
            default=1000, description="non-members of the class scored for one prototype, at most"
        )
        least_auxiliary: int = Field(
            default=20, ge=3, description="auxiliary images that a class needs for its mean and covariance"
        )
        noise_std: Amount = Field(
            default=0.0,
            description="standard deviation of the noise on each feature, unless a protection publishes its own",
        )
        assumed_samples: AtLeastOne = Field(
            default=100, description="number of samples behind a prototype where nothing visible states it"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        aux = knowledge.granted_auxiliary
        images = {
            c: x for c in np.unique(aux.y).tolist() if len(x := aux.of_class(c)) >= self.config.least_auxiliary
        }
        sources = prototypes(view)[: self.config.max_clients]
        extractors = np.empty(len(sources), dtype=object)
        rows: list[tuple[int, int, Any]] = []  # model, population, prototype
        laws: list[Law | None] = []
        means: list[Floats] = []
        axes: list[Floats] = []
        spreads: list[Floats] = []
        found, reading = read(sources, knowledge)
        for m, r in enumerate(found):
            source, extractors[m] = r.source, r.extractor
            labels = list(dict.fromkeys(p.label for p in source.prototypes if p.label in images))
            known = {label: len(means) + i for i, label in enumerate(labels)}
            for some in extract_each(r.extractor, [images[label] for label in labels]):
                features = some.astype(np.float64)
                spread, axis = np.linalg.eigh(shrink_covariance(features))
                means.append(features.mean(axis=0))
                axes.append(axis)
                # dead units: no variance, so any deviation would be infinitely telling
                spreads.append(np.maximum(spread, 1e-6 * spread.mean()))
            for p, law in zip(source.prototypes, r.laws, strict=True):
                if p.label in known:
                    rows.append((m, known[p.label], p))
                    laws.append(law)
        if not rows:
            raise UserError(
                "no class of a prototype has enough auxiliary examples",
                hint="hold back more auxiliary data, or lower prototype_membership.least_auxiliary",
            )
        every = [p for _, _, p in rows]
        return {
            "prototype": np.stack([p.feature for p in every]).astype(np.float64),
            **columns(every),
            "model": np.array([m for m, _, _ in rows]),
            "population": np.array([q for _, q, _ in rows]),
            "extractors": extractors,
            "law": np.fromiter(laws, object, len(laws)),
            "mean": np.stack(means),
            "axes": np.stack(axes),
            "spread": np.stack(spreads),
            "reading": np.array(str(reading)),
            **list_senders(view, Kind.LOCAL_PROTOTYPES),
            "noise_std": np.array(
                knowledge.training.get(f"noise_std.{Kind.LOCAL_PROTOTYPES}", self.config.noise_std)
            ),
        }

    def score(self, claim: Claim, row: int, features: Floats) -> Floats:
        """How much more likely each candidate is in prototype `row` than not; features [m, D]."""
        q, n = claim["population"][row], int(claim["n"][row])
        if (law := claim["law"][row]) is not None:
            return compare_message(law, claim, q, features)
        return log_likelihood_ratio(
            features,
            claim["prototype"][row],
            claim["mean"][q],
            claim["axes"][q],
            claim["spread"][q],
            n if n > 0 else self.config.assumed_samples,
            float(claim["noise_std"]),
        )

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        buckets = self._tracer(claim, truth, rng).buckets
        reading = describe(claim)
        noted = [replace(b, note="; ".join(filter(None, (b.note, reading)))) for b in buckets]
        return judge_buckets(noted, count_looks(noted), [b.silent for b in noted], OTHER)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return unreadable(view, knowledge.auxiliary)


def compare_message(law: Law, claim: Claim, population: int, phi: Floats) -> Floats:
    """Log-likelihood ratios [m] of a message that a played client explains; phi [m, D]."""
    axes = claim["axes"][population]
    covariance = (axes * claim["spread"][population]) @ axes.T
    return law.compare(phi, claim["mean"][population], covariance)


def log_likelihood_ratio(
    features: Floats,
    prototype: Floats,
    mean: Floats,
    axes: Floats,
    spread: Floats,
    n: int,
    noise_std: float = 0.0,
) -> Floats:
    """Score of each candidate, [m, D] -> [m]; S = axes diag(spread) axes'."""
    candidate = (features - mean) @ axes
    seen = (prototype - mean) @ axes
    out, within = spread / n + noise_std**2, spread * (n - 1) / n**2 + noise_std**2
    if n == 1 and noise_std == 0:
        return np.asarray(-((candidate - seen) ** 2 / spread).sum(axis=1))
    left = seen - candidate / n
    return np.asarray(0.5 * ((seen**2 / out).sum() - (left**2 / within).sum(axis=1)))
