"""Makes an inbox of the global models that a federation kept, where nothing else was recorded.

    python fedaudit_recorder.py CHECKPOINTS INBOX [CLIENTS]

CHECKPOINTS holds round_0.npz, round_1.npz, ... (or .safetensors, or .pt or .ckpt with a state_dict, which may
stand among other things, as Lightning writes it): the model that round K began with, or the last one. Runs
where they were made: a .pt is loaded there, by torch with `weights_only`. What cannot be read is an error line
of the inbox. CLIENTS, where given, is how many clients trained in every round; each model after the first is
then recorded as made of all their examples, client-0 to client-(CLIENTS - 1), which is yours to know. No
upload is in such an inbox: what the models leak to everybody who gets them can be audited, what the server
reads of a client cannot.
"""

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fedaudit.audit.importing.recorders.plain import Inbox

NAME = re.compile(r"\D*(\d+)\.(npz|safetensors|pt|pth|ckpt)")


def arrays(path: Path) -> dict[str, Any]:
    """The arrays of one checkpoint, by name."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except (AttributeError, KeyError, TypeError):  # a type that numpy has not
            from safetensors.torch import load_file as load_tensors

            return dict(load_tensors(path))
    import torch

    return find_state(torch.load(path, map_location="cpu", weights_only=True))


def find_state(found: Any) -> dict[str, Any]:
    """The largest mapping of names to tensors in what was saved, at any depth; raises ValueError without any."""
    left, best = [found], dict[str, Any]()
    while left:
        here = left.pop()
        if isinstance(here, Mapping):
            left += here.values()
            if any(hasattr(value, "detach") for value in here.values()) and len(here) > len(best):
                best = {str(name): value for name, value in here.items()}
    if not best:
        raise ValueError("it holds no mapping of names to tensors")
    return best


def convert(folder: Path, inbox: Inbox, clients: int = 0) -> int:
    """Records every checkpoint of the folder as a broadcast; the number of those that are recorded."""
    rounds = {int(m[1]): path for path in sorted(folder.iterdir()) if (m := NAME.fullmatch(path.name))}
    parties = [inbox.client(f"client-{k}") for k in range(clients)]
    behind = list(range(len(parties)))
    made = 0
    for t, path in sorted(rounds.items()):
        more: dict[str, Any] = {"behind": {"global_model": behind}} if behind and t else {}
        way: dict[str, Any] = {"round": t, "channel": "downlink", "sender": "server", "seen_by": ["client"]}
        lost = {**way, "bytes": path.stat().st_size}
        if model := inbox.safely(f"checkpoint {path.name}", partial(arrays, path), **lost):
            made += inbox.message(**way, kinds={"global_model": model}, **more)
    return made


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(str(__doc__))
    made = convert(Path(sys.argv[1]), Inbox(sys.argv[2], "checkpoints"), int(sys.argv[3]) if sys.argv[3:] else 0)
    print(f"{made} checkpoints recorded; next: fedaudit plan {sys.argv[2]}")
