"""Texts read off changes of linear maps: first tokens and their positions, then whole texts block by block."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.span import (
    PREFIX,
    MapChange,
    RowSpace,
    compute_span,
    compute_strengths,
    find_pairs,
    rank_tokens,
    weigh_directions,
)
from fedaudit.attacks.text._inputs import (
    InputSite,
    compute_inputs,
    find_sites,
    find_token_embedding,
    list_first_inputs,
    reads_only_tokens,
)
from fedaudit.attacks.text._uploads import Change

if TYPE_CHECKING:
    from torch import Tensor, nn

Arrays = Mapping[str, NDArray[Any]]
Values = NDArray[np.float64]
Prefix = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A published network with the weights of one broadcast, and where its trained maps read."""

    module: "nn.Module"
    sites: Sequence[InputSite]
    vocabulary: int
    length: int

    @classmethod
    def from_change(cls, change: Change, knowledge: Knowledge) -> "Network | None":
        """None where it has no embedding of tokens, or no map that reads a token at its position was trained."""
        module, length = knowledge.granted_architecture(change.start).module(), int(knowledge.shape[0])
        name, _ = find_token_embedding(module, length)
        if not name:
            return None
        table: Tensor = module.get_submodule(name.removesuffix(".weight")).weight
        vocabulary = len(table)
        sites = find_sites(module, length, {k: v for k, v in change.change.items() if v.any()})
        if not sites or not reads_only_tokens(module, sites[0], length, vocabulary):
            return None
        return cls(module=module, sites=sites, vocabulary=vocabulary, length=length)

    def list_inputs(self) -> Iterator[tuple[slice, Values]]:
        """Tokens, and their first inputs [v, P, d] at every position, a slice of the vocabulary at a time."""
        for rows, inputs in list_first_inputs(self.module, self.sites[0], self.vocabulary, self.length):
            yield rows, inputs.astype(np.float64)


def gather_blocks(changes: Sequence[Change], site: InputSite) -> list[MapChange]:
    """What these messages changed in the maps of a site."""
    return [
        MapChange(change=c.change[name], weights=np.asarray(c.start[name], np.float64))
        for c in changes
        for name in site.names
        if name in c.change
    ]


@dataclass(frozen=True, kw_only=True)
class SpanTokens:
    """What spans tell of the texts behind one message or several."""

    rank: int
    full: bool
    pairs: NDArray[np.bool_]  # [V, P]
    ranked: Values  # [V]

    @property
    def tokens(self) -> NDArray[np.bool_]:
        return np.asarray(self.pairs.any(axis=1))


def read_first(network: Network, changes: Sequence[Change]) -> SpanTokens | None:
    """The tokens that first inputs tell; None where the first map did not change."""
    blocks = gather_blocks(changes, network.sites[0])
    if not any(b.change.any() for b in blocks):
        return None
    span, directions = compute_span(blocks), weigh_directions(blocks)
    residuals, strengths = (np.ones((network.vocabulary, network.length)) for _ in range(2))
    for rows, inputs in network.list_inputs():
        residuals[rows] = span.compute_residuals(inputs)
        strengths[rows] = compute_strengths(directions, inputs)
    residuals[0], ranked = np.inf, rank_tokens(strengths)
    ranked[0] = -np.inf  # padding is no token
    pairs = find_pairs(span, residuals)
    return SpanTokens(rank=span.rank, full=span.is_full, pairs=pairs, ranked=ranked)


def read_texts(
    network: Network, change: Change, pairs: NDArray[np.bool_], beams: int, tries: int
) -> list[Prefix]:
    """Whole texts: prefixes of first tokens whose inputs to a later map lie in the span of its change.

    Of later maps the one whose change has the highest rank, since a last block moves at few positions where a
    class is told from one. `beams` prefixes of each length are kept; nothing is claimed where more than `tries`
    extensions are to be tried, or every span is all there is. A text ends where nothing extends it.
    """
    spans = [] if not pairs.any() else list(_list_spans(network, change))
    if not spans:
        return []
    # the last of equals: attention's own output hardly tells the order of what it averages
    later, span = max(reversed(spans), key=lambda found: found[1].rank)
    kept: list[Prefix] = [()]
    finished: list[Prefix] = []
    for place in range(network.length):
        tokens = np.flatnonzero(pairs[:, place]).tolist()
        longer = [(*prefix, v) for prefix in kept for v in tokens]
        tries -= len(longer)
        if tries < 0:
            return []
        residuals = np.ones(len(longer))
        if longer:
            inputs = compute_inputs(network.module, later, np.array(longer, np.int64))[:, -1]
            residuals = span.compute_residuals(inputs.astype(np.float64))
        order = [int(i) for i in np.argsort(residuals, kind="stable") if residuals[i] < PREFIX][:beams]
        chosen = [longer[i] for i in order]
        went_on = {prefix[:-1] for prefix in chosen}
        finished += [prefix for prefix in kept if prefix and prefix not in went_on]
        kept = chosen
        if not kept:
            break
    return sorted([*finished, *kept])


def _list_spans(network: Network, change: Change) -> Iterator[tuple[InputSite, RowSpace]]:
    """Sites behind the first whose inputs depend on a prefix, and the spans of their changes that can tell it."""
    for site in network.sites[1:]:
        blocks = gather_blocks([change], site)
        if any(b.change.any() for b in blocks):
            span = compute_span(blocks)
            if span.rank > 0 and not span.is_full:
                yield site, span
