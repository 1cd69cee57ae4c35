"""Public data: examples that the server and every client have, which messages refer to by their places.

They are those of the server's own (federation.holdout.server). A malicious server can put examples into them
about which it wants to know who trained on them: `candidates` of each client's own, the first that it has.
"""

from collections.abc import Iterable

import numpy as np

from fedaudit.fl.data.partition import Index


def list_public_rows(spare: Index, parts: Iterable[Index], candidates: int) -> Index:
    """Rows of the training examples in their order: the server's, then so many of each client's."""
    return np.concatenate([spare, *(part[:candidates] for part in parts)]).astype(np.int64)
