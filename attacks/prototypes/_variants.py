"""What a client averages: an adversary tries several readings of its prototypes, and attacks with the likeliest.

"Prototype" may mean the mean of the head's inputs, or of those at length one, of their squares, of another layer
of the same width; the mean may be sent as a sum, at length one, or times a constant of the sender's own. Attacks
that assume the first alone call all the others safe. Each reading says where auxiliary images would put the
prototype of a class of n: at the mean of what it reads, as near as the variance over n has it. The likeliest one
(diagonal Gaussian; a freer one only where it gains MARGIN nats a number) is taken for all clients of the view.

It is chosen on what clients sent, before any image is looked for, and by one adversary: no further look is
corrected for. Without auxiliary images nothing can be compared, and the first reading stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Extractor, Images, Knowledge
from fedaudit.attacks.prototypes._weights import Source
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]

HEAD = ""  # the layer whose output enters the head
FORMS = ("plain", "at length one", "squared")  # what is done to the features of an image
BY_NUMBER = "scaled and shifted number by number"
# what is done to their mean, and how free the adversary is to make it fit
SCALES = {"mean": 0, "sum": 1, "times a constant": 1, "mean at length one": 2, BY_NUMBER: 2}
MARGIN = 0.1  # nats a number
# by which any reading has to beat the first: auxiliary images may be of another kind than clients' own
LEAD = 0.5
# a factor nearer to a simpler one is what a client's own images make of it, and no scale that it chose
NEAR = 1.25
MOST_SOURCES, MOST_LAYERS = 4, 6  # that are compared
LEAST = 6  # prototypes to fit two numbers for each of the features
_ASSUMED = 20  # samples behind a prototype where nothing visible tells it


@dataclass(frozen=True)
class Reading:
    """From the features of images to prototypes: p = factor * mean + shift."""

    layer: str = HEAD
    form: str = "plain"
    scale: str = "mean"
    factor: Floats | float = 1.0  # [D] where it differs by number; else found for each client's prototypes
    shift: Floats | float = 0.0

    @property
    def plain(self) -> bool:
        return (self.layer, self.form, self.scale) == (HEAD, "plain", "mean")

    @property
    def freedom(self) -> int:
        return SCALES[self.scale] + (self.form != "plain")

    def __str__(self) -> str:
        where = f"features of {self.layer}" if self.layer else "features"
        return ", ".join([where, *(w for w in (self.form, self.scale) if w not in ("plain", "mean"))])


@dataclass(frozen=True)
class Read:
    """One client's prototypes on the scale of the extractor's features, and that extractor."""

    source: Source
    extractor: Extractor


def read(sources: Sequence[Source], knowledge: Knowledge) -> tuple[list[Read], Reading]:
    """All sources under the likeliest reading, in their order; UserError where no layer is as wide."""
    assert knowledge.architecture is not None, "the threat model grants the architecture"
    extractors = [knowledge.architecture(s.weights.values) for s in sources]
    reading = likeliest(sources, extractors, knowledge.auxiliary)
    if reading.plain:
        return [Read(s, e) for s, e in zip(sources, extractors, strict=True)], reading
    found = [
        Read(unscaled(s, reading, _typical(s, adapted(e, reading), knowledge.auxiliary)), adapted(e, reading))
        for s, e in zip(sources, extractors, strict=True)
    ]
    return found, reading


def likeliest(sources: Sequence[Source], extractors: Sequence[Extractor], aux: Images | None) -> Reading:
    """On recorded prototypes of at most MOST_SOURCES clients."""
    pairs = [(replace(s, prototypes=_sent(s)), e) for s, e in zip(sources, extractors, strict=True) if _sent(s)]
    pairs = pairs[:MOST_SOURCES]
    if aux is None or not len(aux) or not pairs:
        return Reading()
    best, most = None, -np.inf
    for layer in _layers(pairs[0][1], aux, pairs[0][0].features.shape[1]):
        plain = [adapted(e, Reading(layer)).features(aux.x) for _, e in pairs]
        for form in FORMS:
            tables = [_Table.of(s, _of_form(f, form), aux) for (s, _), f in zip(pairs, plain, strict=True)]
            whole = _Table.joined(tables)
            if (layer, form) == (HEAD, "plain") and not whole.equally_long and whole.apart(whole.prototypes) <= 1:
                return Reading()  # they lie where plain means are expected to: there is nothing to explain
            for reading, likelihood in _scaled(layer, form, tables, whole):
                likelihood += LEAD * reading.plain
                worth = likelihood - MARGIN * reading.freedom
                if worth > most:
                    best, most = reading, worth
    if best is None:
        raise UserError(
            f"prototypes hold {pairs[0][0].features.shape[1]} numbers, and no layer of the network gives as many",
            hint="federation.model in the config must be the model that was trained",
        )
    return best


def unscaled(source: Source, reading: Reading, typical: Floats) -> Source:
    """The prototypes as means of what the reading's extractor gives; `typical` [k, D]: mean of each class."""
    features, factor = source.features.astype(np.float64), reading.factor
    n = np.array([p.samples or _ASSUMED for p in source.prototypes], np.float64)
    if reading.scale != BY_NUMBER:
        factor = _factors(reading.scale, features, typical, n)[:, None]
    means = (features - reading.shift) / factor
    changed = [replace(p, feature=m.astype(np.float32)) for p, m in zip(source.prototypes, means, strict=True)]
    return replace(source, prototypes=changed)


def adapted(extractor: Extractor, reading: Reading) -> Extractor:
    """An extractor whose features are those that the reading averages."""
    if (reading.layer, reading.form) == (HEAD, "plain"):
        return extractor
    return _Adapted(extractor, reading)


class _Adapted:
    def __init__(self, extractor: Extractor, reading: Reading) -> None:
        self._extractor, self._module = extractor, _module(extractor.module(), reading)

    def features(self, images: Floats) -> Floats:
        import torch

        with torch.no_grad():
            parts = torch.split(torch.from_numpy(np.ascontiguousarray(images)), 500)
            return np.asarray(torch.cat([self._module.features(x) for x in parts]).numpy())

    def logits(self, images: Floats) -> Floats:
        return self._extractor.logits(images)

    def module(self) -> Any:
        return self._module


def _module(inner: Any, reading: Reading) -> Any:
    """The network with other features, differentiable as the network is."""
    from torch import nn

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def features(self, x: "Tensor") -> "Tensor":
            h = inner.features(x) if reading.layer == HEAD else _output(inner, reading.layer, x)
            return _formed(h, reading.form)

        def forward(self, x: "Tensor") -> "Tensor":
            out: Tensor = inner(x)
            return out

    return Other()


def _output(module: Any, layer: str, x: "Tensor") -> "Tensor":
    """What a layer gives, [N, D]: maps of features as their means."""
    caught: list[Tensor] = []
    hook = module.get_submodule(layer).register_forward_hook(lambda _, __, out: caught.append(out))
    try:
        module(x)
    finally:
        hook.remove()
    return _flat(caught[-1])


def _flat(out: "Tensor") -> "Tensor":
    return out.flatten(2).mean(2) if out.dim() > 2 else out


def _formed(h: "Tensor", form: str) -> "Tensor":
    if form == "squared":
        return h.square()
    return h / h.norm(dim=1, keepdim=True).clamp_min(1e-12) if form == "at length one" else h


def _of_form(features: Floats, form: str) -> Floats:
    import torch

    return np.asarray(_formed(torch.from_numpy(features), form).numpy())


def _layers(extractor: Extractor, aux: Images, width: int) -> list[str]:
    """The head's input if it is so wide, then other layers of that width, the last ones first."""
    import torch

    module, found = extractor.module(), list[str]()
    one = torch.from_numpy(np.ascontiguousarray(aux.x[:2]))
    hooks = [
        m.register_forward_hook(
            lambda _, __, out, name=name: (
                found.append(name)
                if isinstance(out, torch.Tensor) and out.dim() >= 2 and _flat(out).shape[1:] == (width,)
                else None
            )
        )
        for name, m in module.named_modules()
        if name and not list(m.children())
    ]
    try:
        with torch.no_grad():
            module(one)
    finally:
        for hook in hooks:
            hook.remove()
    own = [HEAD] if extractor.features(aux.x[:2]).shape[1] == width else []
    return [*own, *found[::-1][:MOST_LAYERS]]


@dataclass(frozen=True)
class _Table:
    """Prototypes [k, D] and what auxiliary images of their classes have for them."""

    prototypes: Floats
    mean: Floats
    variance: Floats
    n: Floats  # [k]

    @classmethod
    def of(cls, source: Source, features: Floats, aux: Images) -> "_Table":
        """`features` [N, D] of the auxiliary images, as the source's extractor gives them."""
        features, rows = features.astype(np.float64), []
        for p in source.prototypes:
            own = aux.y == p.label
            here = features[own] if own.sum() > 2 else features
            rows.append((here.mean(0), here.var(0)))
        n = np.array([p.samples or _ASSUMED for p in source.prototypes], np.float64)
        mean, variance = (np.stack(column) for column in zip(*rows, strict=True))
        return cls(source.features.astype(np.float64), mean, variance, n)

    @property
    def variance_of_means(self) -> Floats:
        """[k, D]; a twentieth of a class's variance is added: clients may differ so far from auxiliary images."""
        own = np.maximum(0.01 * self.variance.mean() + 1e-12, 0.05 * self.variance)
        return np.asarray(self.variance / self.n[:, None] + own)

    def apart(self, means: Floats) -> float:
        """How far these means [k, D] are from the auxiliary images' on the whole, 1 where as far as expected."""
        return float(((means - self.mean) ** 2 / self.variance_of_means).mean())

    @property
    def equally_long(self) -> bool:
        """Means hardly have the same length by themselves."""
        lengths = np.linalg.norm(self.prototypes, axis=1)
        return bool(len(lengths) > 1 and lengths[0] > 0 and np.allclose(lengths, lengths[0], rtol=3e-4))

    @classmethod
    def joined(cls, tables: "Sequence[_Table]") -> "_Table":
        return cls(
            *(np.concatenate([getattr(t, f) for t in tables]) for f in ("prototypes", "mean", "variance", "n"))
        )


def _scaled(layer: str, form: str, tables: "Sequence[_Table]", whole: _Table) -> Iterator[tuple[Reading, float]]:
    """Every scale with its log-likelihood a number, the simplest first."""
    if whole.equally_long:
        scales = ["mean at length one"] if form == "plain" else []
    else:
        scales = ["mean", "sum", "times a constant"]
    simpler = [np.ones(len(whole.n))] if "mean" in scales else []
    for scale in scales:
        factors = np.concatenate([_factors(scale, t.prototypes, t.mean, t.n) for t in tables])
        if scale != "mean" and any(_near(factors, other) for other in simpler):
            continue
        simpler.append(factors)
        yield Reading(layer, form, scale), _likelihood(whole, factors[:, None], np.zeros(1))
    if len(whole.n) >= LEAST and not whole.equally_long:
        slope, shift = _by_number(whole)
        paid = np.log(len(whole.n)) / len(whole.n)  # two numbers fitted to each (Schwarz's criterion)
        yield Reading(layer, form, BY_NUMBER, slope, shift), _likelihood(whole, slope[None], shift) - paid


def _near(factors: Floats, others: Floats) -> bool:
    return bool(np.median(np.abs(np.log(np.abs(factors / others)))) < np.log(NEAR))


def _factors(scale: str, prototypes: Floats, mean: Floats, n: Floats) -> Floats:
    """[k], by what the mean behind each prototype of one client was multiplied."""
    along, size = (prototypes * mean).sum(1), (mean**2).sum(1)
    found: dict[str, Floats] = {
        "mean": np.ones(len(n)),
        "sum": n,
        "times a constant": np.full(len(n), along.sum() / max(size.sum(), 1e-24)),
        "mean at length one": along / np.maximum(size, 1e-24),
    }
    return np.where(np.abs(found[scale]) > 1e-12, found[scale], 1e-12)


def _by_number(t: _Table) -> tuple[Floats, Floats]:
    """[D] least-squares factor and shift of each number, over prototypes weighted by n."""
    w = t.n / t.n.sum()
    x, y = (w[:, None] * t.mean).sum(0), (w[:, None] * t.prototypes).sum(0)
    spread = (w[:, None] * (t.mean - x) ** 2).sum(0)
    slope = (w[:, None] * (t.mean - x) * (t.prototypes - y)).sum(0) / np.maximum(spread, 1e-24)
    common = np.sqrt(((t.prototypes - y) ** 2).mean() / max(spread.mean(), 1e-24)) or 1.0
    told = (spread > 1e-4 * spread.mean()) & (np.abs(slope) > 1e-3 * common)  # a dead unit tells nothing
    slope = np.where(told, slope, common)
    return slope, y - slope * x


def _likelihood(t: _Table, factor: Floats, shift: Floats) -> float:
    """Mean log density of the numbers sent, as many times the expected variance apart as they are on the whole.

    So it hardly matters here how many images are behind a message. What lies nearer than expected is no
    better for it: a factor for each prototype always brings means nearer, and hides what tells images apart.
    """
    means = (t.prototypes - shift) / factor
    apart = t.apart(means)
    wide = max(apart, 1.0)
    density = -0.5 * (np.log(2 * np.pi * t.variance_of_means) + np.log(wide) + apart / wide)
    return float((density - np.log(np.abs(factor))).mean())


def _typical(source: Source, extractor: Extractor, aux: Images | None) -> Floats:
    assert aux is not None, "without auxiliary images the first reading stands"
    return _Table.of(source, extractor.features(aux.x), aux).mean


def taken_for(claim: Claim) -> str:
    """For the notes of evidence: what prototypes were read as; empty for the first reading."""
    reading = str(claim.get("reading", Reading()))
    return "" if reading == str(Reading()) else f"taken for {reading}"


def _sent(source: Source) -> list[Any]:
    return [p for p in source.prototypes if p.origin == "recorded"]
