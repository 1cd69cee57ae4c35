"""Below: what releases of Gaussian noise cost at least, for the worst data that their sensitivity allows.

Telling cells of an outcome apart, and rounding losses down, shows no more than the outcome itself, so what is
composed of that bounds the loss from below.
"""

import math
from typing import TYPE_CHECKING

from fedaudit.audit.accounting.terms import Term, Terms

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf

CELLS, LONGEST_TAIL = 60_000, 9.0  # of a density that is cut into pieces
MOST_LOSSES, ROUNDED = 1e6, 2e-3  # of one release; the second relative to the bound from above
LARGEST_COMPOSED = 500.0  # beyond it a loss is composed on no grid
LEAST_DELTA = 1e-10  # what is lost of the tails is far less
TAIL = 1e-15


def tell_apart(counts: Terms, delta: float, upper: float, sums: tuple[float, float] = (1.0, 0.0)) -> float:
    """epsilon of Gaussian terms, Poisson-sampled or not, is no smaller; 0 where nothing is known.

    `sums` are those of a draw that has the unit, and of the same draw without it: 1 and 0 where all others send
    zeros; 2 and 1 where a fixed number is drawn, a unit that may send up to 1 is zeroed out and others send -1.
    Else a release is N(0). `upper` bounds the loss from above, and says how finely it is computed.
    """
    known = all(t.mechanism == "gaussian" and t.sampling in ("none", "poisson") for t in counts)
    if not counts or not known or delta <= LEAST_DELTA or not 0 < upper <= LARGEST_COMPOSED:
        return 0.0
    losses = {t: _measure_cells(t, sums) for t in counts}
    longest = max(abs(loss).max() for _, loss in losses.values())
    step = max(ROUNDED * upper / sum(counts.values()), float(longest) / MOST_LOSSES)
    most = 0.0
    for way in (0, 1):
        composed: PLDPmf | None = None
        for term, count in sorted(counts.items()):
            one = _round_down(*losses[term], step, way).self_compose(count, TAIL)
            composed = one if composed is None else composed.compose(one, TAIL)
        # what is cut from the tails is counted as lost
        assert composed is not None
        most = max(most, float(composed.get_epsilon_for_delta(delta + 2 * len(counts) * TAIL)))
    return most


def _measure_cells(term: Term, sums: tuple[float, float]) -> "tuple[Cells, Cells]":
    """ln of the probability of each cell with the unit, and that minus the same without it; [CELLS - 1] each."""
    import numpy as np
    from scipy.special import log_ndtr

    z, q = term.z, term.rate
    edges = np.linspace(-LONGEST_TAIL * z, max(sums) + LONGEST_TAIL * z, CELLS)
    inner = edges[:-1]

    def log_mass(mean: float) -> "Cells":
        left, right = (inner - mean) / z, (edges[1:] - mean) / z
        flip = left > 0  # of the smaller tail
        low, high = np.where(flip, -right, left), np.where(flip, -left, right)
        tail = log_ndtr(high)
        return tail + np.log(-np.expm1(np.minimum(log_ndtr(low) - tail, -1e-300)))  # type: ignore[no-any-return]

    apart = math.log1p(-q) + log_mass(0.0) if q < 1 else np.full(inner.shape, -math.inf)
    there, gone = (np.logaddexp(apart, math.log(q) + log_mass(total)) for total in sums)
    return there, there - gone


def _round_down(there: "Cells", loss: "Cells", step: float, way: int) -> "PLDPmf":
    """Losses of the unit's presence (`way` 0) or absence, on a grid."""
    import numpy as np
    from dp_accounting.pld import pld_pmf

    first = there if way == 0 else there - loss
    losses = np.floor((loss if way == 0 else -loss) / step - 1e-9).astype(int)
    low = int(losses.min())
    return pld_pmf.DensePLDPmf(step, low, np.bincount(losses - low, weights=np.exp(first)), 0.0, False)


if TYPE_CHECKING:
    import numpy as np

    Cells = np.ndarray[tuple[int], np.dtype[np.float64]]
