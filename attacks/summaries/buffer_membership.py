"""Buffer membership: was this image among those whose statistics a client's normalisation layer kept?

Batch normalisation keeps running means of its input, and clients send them with the model. After s steps the
buffer is (1 - m)^s of what was broadcast and the rest means of the client's batches (m is the layer's momentum),
so the server knows the mean input of the client's images to the first such layer, under the weights it sent out.
Of a client with one image this is that image's own input. The score is the log-likelihood ratio that a mean of n
holds an example, with means and covariances of auxiliary images (as prototype_membership's, after Homer et al.,
PLoS Genetics 2008).

Left out: running variances, and later layers, whose input moves as the weights do.

Clients of one image stand beside clients of many, whose scores hide them in any average. So it is also asked of
every client whether one image's own input is what was sent, and no non-member's (attacks/evaluation/ranking.py).

The planted leak is the statistics of a client with one image: the input of a single image of each client. People
are planted through clients' own code besides, to be counted (audit/controls/updates.py). The
negative control puts images that nobody trained on in the place of members.

Claim: a rule, since any image can be queried. mean [k, D] whitened, n (MANY: not said), client [k], and as text
artifact and origin [k]; senders [s]: all clients that sent a model; layer [1], an
object: images to whitened inputs [n, D].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Floats, Knowledge, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.artifacts import index, list_senders
from fedaudit.attacks.evaluation.counting import split_kinds
from fedaudit.attacks.evaluation.decoder import find_device
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.last_layer import schedule
from fedaudit.attacks.evaluation.matching import score_client
from fedaudit.attacks.evaluation.ranking import find_present
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY, compute_change, global_model, read_examples, uploads
from fedaudit.attacks.evaluation.sums import find_kind
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED, Evidence, Series
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
MANY = 1e6
NO_LAYER = "the model has no layer that keeps running means of its input, or clients keep them"


class BufferMembership(Attack):
    card = Card(
        title="Membership from normalisation statistics",
        source="likelihood ratio of a mean (Homer et al., PLoS Genetics 2008) on running means",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(*UPDATES, Kind.NUM_EXAMPLES),
        aids=(Kind.GLOBAL_MODEL, Kind.NUM_EXAMPLES),
        learns="whether a given image was in a client's training data, from the statistics its model keeps",
        does_not_show="what running variances and statistics of later layers reveal",
        control="updates",
        remedy="normalise by group or layer, which keep no statistics, or keep the buffers with the clients",
        effort=Effort(seconds=1.0, grows=("network", "clients"), examples=20),
    )

    @settings
    class Config:
        members: AtLeastOne = Field(default=200, description="images of each client that are scored, at most")
        others: AtLeastOne = Field(default=1000, description="non-members scored for each client, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent = _statistics(view, knowledge)
        layer = np.empty(1, object)
        layer[0] = _Layer(sent[0].start, knowledge)
        return {
            "client": np.array([s.client for s in sent]),
            "artifact": np.array([s.artifact for s in sent]),
            "origin": np.array([s.origin for s in sent]),
            "kind": np.array([s.kind.value for s in sent]),
            **list_senders(view, *UPDATES),
            "mean": np.stack([layer[0].white(s.mean[None])[0] for s in sent]),
            "n": np.array([s.n for s in sent]),
            "layer": layer,
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        layer, claim = claim["layer"][0], _drop_planted(claim)
        others = layer(truth.reference.x[: self.config.others])
        n = float(np.median([len(truth.client_examples(int(k))) for k in claim["client"]]))
        real, planted, silent, stand, alone = [], [], [], [], []
        for k, mean, size in zip(claim["client"], claim["mean"], claim["n"], strict=True):
            own = truth.client_examples(int(k))
            chosen = layer(own.x[rng.permutation(len(own))[: self.config.members]])
            scores = _ratio(others, mean, size)
            real.append((_ratio(chosen, mean, size), scores))
            planted.append((_ratio(chosen[:1], chosen[0], 1), _ratio(others, chosen[0], 1)))
            silent.append(membership.halves(scores, rng))
            stand.append(find_present(_measure_distance(chosen, mean), _measure_distance(others, mean)))
            alone.append(find_present(_measure_distance(chosen, chosen[0]), _measure_distance(others, chosen[0])))
        found = membership.evidence(_scores(real), {}, condition={"n": n}, others="images of no client")
        found.append(
            Judge(note="clients of whom a single image's statistics are what was sent").judge_present(
                stand,
                groups=INDEPENDENT,  # a client each
            )
        )
        note = "statistics of a client with one image"
        planted_at: dict[str, float | str] = {"n": 1.0, "origin": "planted"}
        found += membership.evidence(_scores(planted), {}, condition=planted_at, control="positive", note=note)[
            :1
        ]
        found.append(
            Judge(control="positive", condition=planted_at, note=note).judge_present(
                alone,
                groups=INDEPENDENT,  # a client each
            )
        )
        found += membership.evidence(_scores(silent), {}, control="negative", note="non-members as members")[:1]
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of everybody whose client sent statistics; single people are planted through every client's code."""
        layer, planted = claim["layer"][0], list[ScoredPeople]()
        recorded: dict[int, ScoredPeople] = {}  # by row
        columns = (claim[name].tolist() for name in ("client", "n", "artifact", "origin"))
        for row, (mean, client, n, artifact, origin) in enumerate(zip(claim["mean"], *columns, strict=True)):
            score = partial(_score, layer, mean, n)
            if origin == "recorded":
                recorded[row] = score_client(client, truth, rng, score)
                continue
            unseen = truth.unseen([client]).images
            labels = np.unique(truth.client_examples(client).y).tolist()
            members = np.concatenate([truth.members(artifact, label) for label in labels])
            alike = unseen.only(np.isin(unseen.y, labels))
            planted.append(
                ScoredPeople(
                    client=client,
                    rows=range(len(members)),
                    scores=score(Examples(x=members, y=np.zeros(len(members), np.int64))),
                    held_out=range(len(alike)),
                    held_out_scores=score(alike),
                )
            )
        found = list[PeopleCount]()
        for kind, rows, senders in split_kinds(claim):
            of_kind = [scored for row, scored in recorded.items() if rows[row]]
            found += count_flagged(of_kind, planted, senders, truth, kind)
        return found

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        layer, rows, claim = claim["layer"][0], list[tuple[Values, Values]](), _drop_planted(claim)
        others = layer(truth.reference.x[: self.config.others])
        for k, mean, size in zip(claim["client"], claim["mean"], claim["n"], strict=True):
            own = layer(truth.client_examples(int(k)).x[: self.config.members])
            rows.append((_ratio(own, mean, size), _ratio(others, mean, size)))
        return [membership.curve("statistics as sent", _scores(rows))]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        if not uploads(view, knowledge.training, UPDATES):
            return "no client sends its model, or what changed in it, that the server could read"
        sent = _statistics(view, knowledge)
        return "" if any(s.origin == "recorded" for s in sent) else NO_LAYER


@dataclass(frozen=True, kw_only=True)
class _SentMean:
    """The mean input that one client's buffer tells, and the model it was made with."""

    client: int
    artifact: str
    kind: Kind
    origin: str
    start: Mapping[str, NDArray[Any]]
    mean: Values  # [D]
    n: float  # images behind it; MANY where the client does not say


def _statistics(view: Sequence[Artifact], knowledge: Knowledge) -> list[_SentMean]:
    """Of every upload that holds the running means of the first layer that keeps some, and moved them.

    Of replayed ones those of one step on one image.
    """
    view, found = index(view), []
    for a in uploads(view, knowledge.training, UPDATES):
        start = global_model(view, a.round, a)
        if start is None or start.round != a.round or a.sender.index is None:
            continue
        is_planted = a.origin in (REPLAYED, UNPROTECTED)
        if a.origin != "recorded" and not (is_planted and a.note.get("batch") == a.note.get("steps") == 1):
            continue
        named = _find_first_norm(knowledge.granted_architecture(start.payload).module())
        key = _running_mean(a.payload, named[0]) if named else ""
        if not named or not key or key not in start.payload:
            continue
        n = 1 if is_planted else read_examples(a, view)
        steps = 1 if is_planted else max(1, schedule(knowledge.training, a.round, n)[1])
        new = 1 - (1 - float(named[1].momentum or 0.1)) ** steps
        change = compute_change(a, start.payload, view, knowledge.training)[key]
        if change.any():
            mean = np.asarray(start.payload[key], np.float64) + change / new
            found.append(
                _SentMean(
                    client=a.sender.index,
                    artifact=a.id,
                    kind=find_kind(a),
                    origin=a.origin,
                    start=start.payload,
                    mean=mean,
                    n=n or MANY,
                )
            )
    return sorted(found, key=lambda s: s.origin != "recorded")


def _running_mean(payload: Mapping[str, NDArray[Any]], layer: str) -> str:
    """What an upload calls the running mean of a layer, whose name in the module may have a prefix."""
    end = ".running_mean"
    return next((k for k in payload if k.endswith(end) and f".{layer}".endswith(f".{k.removesuffix(end)}")), "")


def _find_first_norm(module: Any) -> tuple[str, Any] | None:
    """Name and module of the first layer that keeps running means."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return next(((n, m) for n, m in module.named_modules() if isinstance(m, _BatchNorm) and m.momentum), None)


class _Layer:
    """Images to what they put into that layer, averaged over positions, in whitened coordinates."""

    def __init__(self, start: Mapping[str, NDArray[Any]], knowledge: Knowledge) -> None:
        self._module = knowledge.granted_architecture(start).module().eval()
        inputs = self._inputs(knowledge.granted_auxiliary.x)
        self._centre = inputs.mean(axis=0)
        spread = np.cov(inputs.T).reshape(inputs.shape[1], -1)
        spread += 1e-3 * np.trace(spread) / len(spread) * np.eye(len(spread)) + 1e-12 * np.eye(len(spread))
        self._whiten = np.linalg.inv(np.linalg.cholesky(spread)).T

    def _inputs(self, images: Floats) -> Values:
        import torch

        named, kept = _find_first_norm(self._module), list[Any]()
        assert named is not None, "not_applicable() looked for it"
        hook = named[1].register_forward_pre_hook(lambda _, given: kept.append(given[0].detach()))
        try:
            with torch.no_grad():
                for part in torch.split(torch.from_numpy(np.ascontiguousarray(images)), 500):
                    self._module(part.to(find_device(self._module)))
        finally:
            hook.remove()
        found = torch.cat([k.reshape(*k.shape[:2], -1).mean(dim=2) for k in kept])
        return np.asarray(found.cpu().numpy(), np.float64)

    def white(self, inputs: Values) -> Values:
        return np.asarray((inputs - self._centre) @ self._whiten)

    def __call__(self, images: Floats) -> Values:
        return self.white(self._inputs(images))


def _drop_planted(claim: Claim) -> Claim:
    """Without what was planted, which is not measured."""
    recorded = claim["origin"] == "recorded"
    return {name: claim[name][recorded] for name in ("client", "mean", "n")}


def _score(layer: _Layer, mean: Values, n: float, images: Examples) -> Values:
    """Higher for members, without an end: of one image the ratio has its largest value for the image itself."""
    x = layer(images.x)
    if n > 1:
        return _ratio(x, mean, n)
    return np.asarray(-np.log(np.maximum(((x - mean) ** 2).sum(axis=1), 1e-12)))


def _ratio(x: Values, mean: Values, n: float) -> Values:
    """[m] log-likelihood ratio that each of x [m, D] is one of n behind the mean [D], but for a constant."""
    rest = max(n - 1, 1e-3)  # the others, of which n = 1 has none
    inner = n / rest * (x @ mean - (x**2).sum(axis=1) / (2 * n))
    return np.asarray(inner - n * (n - rest) / rest * float(mean @ mean) / 2)


def _measure_distance(x: Values, mean: Values) -> float:
    """How far the nearest of x [m, D] is from a mean [D]."""
    return float(np.linalg.norm(x - mean, axis=1).min())


def _scores(pairs: Sequence[tuple[Values, Values]]) -> membership.Scores:
    names = np.arange(len(pairs))
    return membership.Scores(
        members=np.concatenate([m for m, _ in pairs]),
        others=np.concatenate([o for _, o in pairs]),
        member_groups=np.repeat(names, [len(m) for m, _ in pairs]),
        other_groups=np.repeat(names, [len(o) for _, o in pairs]),
    )
