"""Sizes: of how many examples recorded messages are made, as far as messages say it: their place on a curve."""

import math
from pathlib import Path

import numpy as np

from fedaudit.audit.case.messages import messages
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig

BY_CLASS = {Kind.PROTO_COUNTS: "counts", Kind.LABEL_COUNTS: "counts"}
OF_CLIENT = {Kind.NUM_EXAMPLES: "count"}
OF_CONTROL = {  # what the n of a control's curve counts
    "prototypes": BY_CLASS,
    "pairs": BY_CLASS,
    "condensed": BY_CLASS,
    "updates": OF_CLIENT,
    "memorised": OF_CLIENT,
}


def sizes(artifacts: Path | None, control: str) -> list[int]:
    """Examples behind each client's latest messages, in order; empty where no message says it."""
    said = OF_CONTROL.get(control, {})
    if artifacts is None or not said:
        return []
    sent = messages(artifacts, set(said), "latest")
    found = [n for a in sent for n in np.ravel(a.payload[said[a.kind]]).astype(np.int64).tolist()]
    return sorted(n for n in found if n > 0)


def steps(training: LocalConfig | None, n: int) -> int:
    """Steps that a client of n examples trains; 0 where its training was not stated."""
    if training is None:
        return 0
    return training.local_epochs * math.ceil(n / max(1, training.batch_size))
