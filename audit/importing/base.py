"""The base: weights that every client has and nobody sends, beside the part of the network that is trained.

A subject names it; whoever has its weights gives them, and the network is built on them. Where they are not
given, what needs the network is not tried: it would be asked of another one.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from fedaudit.audit.importing.layout import Shapes
from fedaudit.audit.importing.message_file import header
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import DELTAS, UPDATES, Kind
from fedaudit.fl.model import Net
from fedaudit.fl.recording.recorder import load_arrays
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import CheckedStatement

MOST_BYTES = 64 * 2**30


def read_base(path: Path, network: Shapes) -> bytes:
    """The file of a base; raises UserError where it is none, or does not fit the stated network."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path} is no safetensors file of less than 64 GiB", hint="write it with safetensors")
    shapes = {name: shape for name, (_, shape) in header(path).items()}
    if not network:
        raise UserError("a base was given, and no network to build on it is stated", key="subject.model")
    for name, shape in shapes.items():
        if network.get(name) != shape:
            has = f"{list(network[name])} there" if name in network else "unknown to it"
            raise UserError(
                f"the base holds {name!r:.80} {list(shape)}, and subject.model: {has}",
                hint="arrays are named as in the network's state_dict()",
                key="subject.model",
            )
    data = path.read_bytes()
    try:
        load_arrays(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path} is damaged: {error}", hint="write it with safetensors") from error
    return data


def check_base(
    subject: RecordedSubject, network: Callable[[], Net] | None, latest: list[Artifact], *, given: bool
) -> list[CheckedStatement]:
    """What of the network was sent, and whether more than the stated part was trained; nothing without a base.

    `given`: the auditor has its weights.
    """
    if not subject.base:
        return []
    sent = {n: v.size for a in latest if a.kind in UPDATES for n, v in a.payload.items()}
    text = f"Clients sent {fmt.plural(len(sent), 'array')} of {sum(sent.values()):,} numbers"
    if network is not None:
        every = [v.numel() for v in network().state_dict().values()]
        text += f", of {len(every):,} of {sum(every):,} that the network has"
    text += f"; the rest is {subject.base}, "
    text += "of which the weights were given." if given else "of which no weights were given."
    start = {a.round: a.payload for a in latest if a.kind == Kind.GLOBAL_MODEL}
    moved = {n for a in latest if a.kind in UPDATES for n, v in a.payload.items() if _is_moved(a, n, v, start)}
    stray = sorted(n for n in moved if not any(fnmatchcase(n, p) for p in subject.trained))
    if subject.trained and stray:
        text += f" Stated as trained is {', '.join(subject.trained)}; {stray[0]!r:.80} was trained as well."
        return [CheckedStatement(id="base", title="Base and trained part", status="contradicted", text=text)]
    is_stated = bool(subject.trained)
    return [
        CheckedStatement(
            id="base", title="Base and trained part", status="holds" if is_stated else "open", text=text
        )
    ]


def _is_moved(
    a: Artifact, name: str, value: NDArray[np.generic], start: Mapping[int, Mapping[str, NDArray[np.generic]]]
) -> bool:
    before = 0 if a.kind in DELTAS else start.get(a.round, {}).get(name, value)
    return not np.array_equal(value, np.broadcast_to(before, value.shape))
