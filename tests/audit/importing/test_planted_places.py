"""Records of a client in twenty places of what it sends through Flower and NVFlare, in every type of number.

Each is recorded or noted, stopped by the guard and found by the audit.
"""

import base64
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedaudit.attacks.summaries.hidden_images import HiddenImages
from fedaudit.audit.importing.guard import Outgoing, check_outgoing
from fedaudit.fl.artifact import Channel, Role
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.recording.recorder import read
from tests.attacks.world import World
from tests.audit.importing import test_flower_hook, test_nvflare_hook
from tests.audit.importing.test_flower_hook import Hook, hook
from tests.audit.importing.test_nvflare_hook import Dxo, Shareable, tap

__all__ = ["hook", "tap"]  # fixtures
WORLD = World(sizes=(), clients=10)
OWN = WORLD.client_examples(0)
Values = np.ndarray[Any, Any]
DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "bf16")


def numpy_file(x: Values, *, packed: bool = False) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if packed else np.save)(file, x)  # type: ignore[operator]
    return file.getvalue()


def picture(x: Values) -> bytes:
    file = io.BytesIO()
    grey = np.rint(255.0 * x / x.max()).astype(np.uint8)
    Image.fromarray(grey.reshape(8, 8)).save(file, "PNG")
    return file.getvalue()


PLACES: dict[str, Callable[[Values], Any]] = {  # arrays and lists, texts, bytes
    "array": lambda x: x.reshape(1, 8, 8),
    "turned": lambda x: np.ascontiguousarray(x.reshape(8, 8).T),
    "reversed": lambda x: x[::-1].copy(),
    "column": lambda x: np.stack([np.zeros_like(x), x, np.zeros_like(x)], 1),
    "row": lambda x: np.stack([np.zeros_like(x), x]),
    "scaled": lambda x: 3 - 2 * x.astype("f8"),
    "list": lambda x: x.tolist(),
    "nested list": lambda x: x.reshape(8, 8).tolist(),
    "bytes": lambda x: x.tobytes(),
    "bytes behind a header": lambda x: b"v1\x00" + x.tobytes(),
    "bytes, row by row": lambda x: [row.tobytes() for row in x.reshape(8, 8)],
    "base64": lambda x: base64.b64encode(x.tobytes()).decode(),
    "hexadecimal": lambda x: x.tobytes().hex(),
    "JSON": lambda x: json.dumps({"scan": x.tolist()}),
    "text": lambda x: ", ".join(map(str, x.tolist())),
    "texts": lambda x: [str(v) for v in x.tolist()],
    "gzip": lambda x: gzip.compress(x.tobytes()),
    "npy": numpy_file,
    "npz": lambda x: numpy_file(x, packed=True),
    "PNG": picture,
}


def plant(dtype: str) -> dict[str, Any]:
    """Place -> what stands there: in each another image of the client."""
    found = {}
    for i, (place, write) in enumerate(PLACES.items()):
        image = OWN.x[i].ravel()
        if dtype == "bf16":
            halves = (image.view(np.uint32) >> 16).astype("<u2")
            is_bytes = isinstance(write(halves), bytes) and not place.startswith(("npy", "npz", "PNG"))
            found[place] = write(halves if is_bytes or place in ("base64", "hexadecimal") else image)
        else:
            found[place] = write((image * (96 if np.dtype(dtype).kind in "iu" else 1)).astype(dtype))
    return found


def find_in(folder: Path) -> tuple[str, set[int]]:
    """What the guard says of the examples in the last upload, and which of them the audit finds."""
    alarms = check_outgoing(Outgoing.read(folder), Arrays(x=OWN.x, y=OWN.y))
    uploads = [a for a in read(folder) if a.channel == Channel.UPLINK and a.sender.role == Role.CLIENT]
    attack = HiddenImages()
    claim = attack.run(uploads, WORLD.knowledge, np.random.default_rng(0))
    people = attack.count_people(claim, WORLD, np.random.default_rng(1))
    assert not any(p.luck.hits for p in people)
    rows = {row for p in people for row in p.hit.get(0, ())}
    said = [a.text for a in alarms if a.check == "examples"]
    return "; ".join(said), rows


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_twenty_places_of_a_record_dict(dtype: str, hook: Hook, tmp_path: Path) -> None:
    sent = test_flower_hook.message("train", 5, config={"server-round": 1})
    content, planted = sent.content, plant(dtype)
    for i, (place, value) in enumerate(planted.items()):
        if isinstance(value, np.ndarray):
            name = "a" if i % 2 else "optimizer"
            record = content.array_records.setdefault(name, {})
            record[place] = SimpleNamespace(numpy=lambda value=value: value)
        else:
            part = content.metric_records if isinstance(value, list) else content.config_records
            part.setdefault(f"r{i % 3}", {})[place] = value
    lines = test_flower_hook.record(hook, tmp_path, [[sent]])
    assert not [x for x in lines if "error" in x]
    check(tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_twenty_places_of_a_shareable(dtype: str, tap: Any, tmp_path: Path) -> None:
    planted = plant(dtype)
    arrays = {place: torch.tensor(v) for place, v in planted.items() if isinstance(v, np.ndarray)}
    if dtype == "bf16":
        arrays = {place: v.to(torch.bfloat16).requires_grad_() for place, v in arrays.items()}
    rest = [(place, v) for place, v in planted.items() if place not in arrays]
    model = Dxo(data_kind="WEIGHTS", data=arrays, meta={"steps": 3, **dict(rest[::4])})
    statistics = Dxo(data_kind="STATISTICS", data={"histogram": dict(rest[1::4])}, meta={})
    both = Dxo(data_kind="COLLECTION", data={"model": model, "statistics": statistics}, meta={})
    up = Shareable(DXO=both, __headers__=dict(rest[2::4]), **dict(rest[3::4]))
    lines = test_nvflare_hook.exchange(tap, tmp_path, test_nvflare_hook.RESULT, up)
    assert not [x for x in lines if "error" in x]
    check(tmp_path)


def check(folder: Path) -> None:
    said, hit = find_in(folder)
    assert len(hit) == len(PLACES) == 20
    assert sum(int(text.split()[0]) for text in said.split("; ")) == 20
