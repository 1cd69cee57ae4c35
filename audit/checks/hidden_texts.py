"""Hidden texts: a client's own text stands among the numbers that it sends, as ids of its tokens in their order.

A client's code may write a text into what is called a factor, a bias or a mean; nothing of what the numbers are
called says so. Every message is held against the first tokens of each text that its sender holds: each array row
by row and column by column, as it is and, of a model, what it changed by. Tokens stand there where they and a
stretch of numbers correlate by EXACT, whatever scale and offset they were written with: of LEAST unlike numbers
that happens by chance in fewer than one of 10^12 stretches. As a control, texts that no client holds are held
against the same messages; where one of those stands there too, nothing is said.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.payloads import make_small, read_numbers, read_spelled, subtract_arrays
from fedaudit.audit.case.case import ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.reports.result import Finding, Severity

Values = NDArray[np.float64]
EXACT = 0.9995  # correlation
LEAST = 12  # tokens of a text, the first so many
FLAT = 1e-9  # standard deviation, as a share of the largest of the array, below which numbers are all one
MOST_TEXTS, MOST_NUMBERS = 100, 4_000_000  # of a client, and of a message: what is read of larger ones


class HiddenTexts(Check):
    """One result for all kinds in which a text stands."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        data, parts = federation.data, federation.examples.parts
        if federation.artifacts is None or not data.is_text or not parts:
            return
        sent_kinds = {*federation.card.uplink, *federation.card.relay}
        recorded = messages(federation.artifacts, {*sent_kinds, Kind.GLOBAL_MODEL}, "all")
        starts = {a.round: a for a in recorded if a.kind == Kind.GLOBAL_MODEL}
        uploads = [a for a in recorded if a.from_client and a.sender.index in parts and a.kind.arrays]
        nobody = begin_texts(data.test.x)
        found: dict[int, int] = {}
        kinds: dict[Kind, None] = {}
        for sent in uploads:
            start = starts.get(sent.round) if sent.kind in UPDATES else None
            own = begin_texts(data.train.x[parts[sent.sender.number]])
            here = count_standing(sent, start, own)
            if here and not count_standing(sent, start, nobody):
                found[sent.sender.number] = max(here, found.get(sent.sender.number, 0))
                kinds[sent.kind] = None
        if not found:
            return
        yield Finding(
            id="hidden-texts",
            title="Clients' own texts stand among the numbers that they send",
            summary=f"Token ids of {sum(found.values()):,} texts of {len(found)} clients stand, in their order, "
            f"in what is sent as {', '.join(k.words for k in kinds)}; of texts that no client holds none does.",
            severity=Severity.CRITICAL,
            reason="No attack is needed to have them, and none can show more.",
            artifacts=[*map(str, kinds)],
            does_not_show="texts in an order or a code that only their reader knows, or over several messages",
            remedy="look at what the client's code writes there; no training makes numbers that are a text's ids",
        )


def begin_texts(x: NDArray[np.int64]) -> Values:
    """[m, LEAST] the first tokens of texts [n, T] that have as many and not all alike, each text once."""
    if x.shape[1] < LEAST:
        return np.zeros((0, LEAST))
    first = np.unique(x[(x[:, :LEAST] != 0).all(axis=1), :LEAST], axis=0)[:MOST_TEXTS].astype(np.float64)
    unlike: Values = first[first.std(axis=1) > 0]
    return unlike


def count_standing(sent: Artifact, start: Artifact | None, texts: Values) -> int:
    """How many of these beginnings of texts [m, LEAST] stand somewhere in a message."""
    if not len(texts):
        return 0
    there = np.zeros(len(texts), bool)
    moved = {} if start is None else subtract_arrays(sent.payload, start.payload)
    own = read_numbers(sent.payload)
    for some in ([*own, *read_spelled(own)], read_numbers(moved)):
        left = MOST_NUMBERS
        for _, values in some:
            if (left := left - values.size) < 0:
                break
            numbers = make_small(values).astype(np.float64)
            there |= find_standing(numbers.ravel(), texts)
            if numbers.ndim > 1:
                there |= find_standing(numbers.T.ravel(), texts)
    return int(there.sum())


def find_standing(numbers: Values, texts: Values) -> NDArray[np.bool_]:
    """[m] Which texts [m, LEAST] some stretch of these numbers equals, up to scale, offset and sign."""
    if numbers.size < LEAST:
        return np.zeros(len(texts), bool)
    stretches = np.lib.stride_tricks.sliding_window_view(numbers, LEAST)
    unit = texts - texts.mean(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    best = np.zeros(len(texts))
    for some in np.array_split(stretches, -(-len(stretches) // 100_000)):
        centred = some - some.mean(axis=1, keepdims=True)
        length = np.linalg.norm(centred, axis=1)
        wide = length > FLAT * max(1e-30, float(np.abs(numbers).max()))
        if wide.any():
            fit = np.abs(centred[wide] @ unit.T) / length[wide, None]
            best = np.maximum(best, fit.max(axis=0))
    return best >= EXACT
