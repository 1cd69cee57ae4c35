"""Charged bytes are the size of what crosses: written bit by bit here, and read back."""

from collections.abc import Mapping, Sequence
from math import ceil
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedaudit.attacks.evaluation.sources import several
from fedaudit.fl.artifact import SERVER, Artifact
from fedaudit.fl.families.widths import masks
from fedaudit.fl.kinds import MODELS, Kind
from fedaudit.fl.recording.coded import Coded, largest, levels, part, rice, size_of
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.shared_pipe import SharedPipe
from fedaudit.fl.wire.protection import Protection
from tests.fl.test_all_methods import NAMES, method
from tests.fl.worlds import TinyNet, data, parts, run

# The formats, by a second hand: a message is a text of bits


def bits_of(value: Tensor) -> str:
    return "".join(f"{byte:08b}" for byte in value.contiguous().numpy().tobytes())


def number(bits: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(int(bits, 2).to_bytes(4, "big"), np.float32).copy())[0]


def write_largest(flat: Tensor, share: float, ternary: bool) -> str:
    """Numbers of which all but the kept ones are 0."""
    kept, b, text, last = flat.nonzero()[:, 0].tolist(), rice(share), "", -1
    for k in kept:
        units, rest = divmod(k - last - 1, 2**b)
        text += "1" * units + "0" + (f"{rest:0{b}b}" if b else "")
        text += ("1" if flat[k] > 0 else "0") if ternary else bits_of(flat[k])
        last = k
    return text + (bits_of(flat.abs().max()) if ternary else "")


def read_largest(text: str, size: int, share: float, ternary: bool) -> Tensor:
    b, found, at, last = rice(share), torch.zeros(size), 0, -1
    end = len(text) - 32 if ternary else len(text)
    magnitude = number(text[end:]) if ternary else torch.tensor(1.0)
    while at < end:
        units = text.index("0", at) - at
        at += units + 1 + b
        last += units * 2**b + (int(text[at - b : at], 2) if b else 0) + 1
        size = 1 if ternary else 32
        said, at = text[at : at + size], at + size
        found[last] = magnitude * (1 if said == "1" else -1) if ternary else number(said)
    return found


@pytest.mark.parametrize("ternary", [False, True])
@pytest.mark.parametrize("share", [0.004, 0.05, 0.3, 0.7, 1.0])
def test_the_largest_numbers_are_read_back_from_as_many_bytes_as_are_charged(share: float, ternary: bool) -> None:
    arrays = {"a": torch.randn(40, 9), "b": torch.randn(7), "n": torch.tensor([3, 4])}
    arrays["a"][:30] = 0.0
    sent = largest(arrays, share, ternary)
    flat = torch.cat([sent["a"].flatten(), sent["b"]])
    text = write_largest(flat, share, ternary)
    assert torch.equal(read_largest(text, len(flat), share, ternary), flat)
    assert torch.equal(sent["n"], arrays["n"])
    assert sent.size == 16 + min(ceil(len(text) / 8), 4 * 367)


def test_levels_are_read_back_from_as_many_bytes_as_are_charged() -> None:
    arrays = {
        "a": torch.randn(30, 3),
        "one": torch.randn(1),
        "flat": torch.full((50,), 0.5),
        "n": torch.tensor(7),
    }
    for bits in (1, 3, 8, 31):
        coded = [len(bits_of(v[:2])) + bits * v.numel() for v in (arrays["a"].flatten(), arrays["flat"])]
        wanted = [min(ceil(c / 8), 4 * n) for c, n in zip(coded, (90, 50), strict=True)]
        assert levels(arrays, bits) == sum(wanted) + 4 + 8


def test_a_part_is_charged_without_what_is_around_it_and_a_copy_of_it_whole() -> None:
    arrays = {"w": torch.randn(4, 4), "count": torch.tensor(3)}
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[:2, :2] = True
    sent = part(arrays, {"w": mask})
    assert size_of(sent) == 4 * 4 + 8 and size_of(dict(sent)) == 4 * 16 + 8
    assert size_of(sent | {"w": arrays["w"]}) == 4 * 16 + 8


def test_an_empty_upload_takes_no_bytes() -> None:
    assert largest({}, 0.1, True).size == levels({}, 4) == size_of({}) == part({}, {}).size == 0
    nothing = {"w": torch.zeros(0)}
    assert largest(nothing, 0.1, True).size == levels(nothing, 4) == size_of(nothing) == 0


# What runs charge, method by method

PROTECTIONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "none": [],
    "noise": [("dp_gaussian", {"clip_norm": 0.5, "noise_multiplier": 0.1})],
    "ternary": [("top_k", {"share": 0.1, "values": "ternary"})],
    "quantised": [("quantise", {"bits": 3})],
    "quantised, then noised": [
        ("quantise", {"bits": 3}),
        ("dp_gaussian", {"clip_norm": 0.5, "noise_multiplier": 0.1}),
    ],
}


def written(
    a: Artifact, bases: Sequence[Mapping[str, Any]], width: float | None, last: tuple[str, Any] | None
) -> int:
    """Bytes of a recorded payload, in the format that its sender and receiver agree on.

    A model is a change from one of `bases`, from that it differs least from.
    """
    own = {} if width is None else masks(TinyNet(), width)
    order = {k: i for i, k in enumerate(TinyNet().state_dict())}
    names = sorted(a.payload, key=lambda k: order.get(k, 0))
    arrays = {k: torch.from_numpy(np.array(a.payload[k])) for k in names}
    inside = {k: v[own[k]] if k in own else v for k, v in arrays.items()}
    if width is not None:
        assert all(not v[~own[k]].any() for k, v in arrays.items() if k in own), f"{a.id}: more than its part"
    moving = {k: v for k, v in inside.items() if v.is_floating_point()}
    plain = sum(v.numel() * v.element_size() for v in inside.values())
    if last is None or not moving:
        return plain
    name, settings = last
    if name == "quantise":
        return levels(inside, settings["bits"])
    changes = [] if bases else [torch.cat([v.flatten() for v in moving.values()])]
    for base in bases:
        start = {k: torch.from_numpy(np.array(base[k])) for k in moving if k in base}
        start = {k: v[own[k]] if k in own else v for k, v in start.items()}
        changes.append(torch.cat([(v - start[k] if k in start else v).flatten() for k, v in moving.items()]))
    flat = min(changes, key=lambda c: int((c != 0).sum()))
    text = write_largest(flat.sign(), settings["share"], True)
    assert int((flat != 0).sum()) <= ceil(settings["share"] * len(flat)), a.id
    whole = plain - sum(v.numel() * v.element_size() for v in moving.values())
    return whole + min(ceil(len(text) / 8), plain - whole)


def traffic(folder: Path) -> dict[tuple[int, str, str, str], int]:
    found: dict[tuple[int, str, str, str], int] = {}
    for line in manifest(folder):
        if "traffic" in line:
            key = line["round"], line["channel"], line["traffic"], line["sender"]
            found[key] = found.get(key, 0) + line["bytes"]
    return found


PARTLY = (
    "fedavg",
    "freezefl",
    "fjord",
    "heterofl",
)  # all others, and what they send of themselves, in slow tests
PAIRS = [(n, p) for n in NAMES for p in PROTECTIONS]
QUICK = {*((n, p) for n in PARTLY for p in PROTECTIONS), ("fednova", "ternary")}


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("name", "protection"), [pytest.param(*p, marks=() if p in QUICK else pytest.mark.nightly) for p in PAIRS]
)
def test_charged_bytes_are_those_of_what_crosses(name: str, protection: str, tmp_path: Path) -> None:
    chosen = PROTECTIONS[protection]
    active = [
        plugin.configure(plugin.load("fedaudit.fl.protections", p, Protection), settings, "protections")
        for p, settings in chosen
    ]
    acts = {p: plugin.load("fedaudit.fl.protections", p, Protection) for p, _ in chosen}
    world = run(
        method(name),
        folder=tmp_path,
        protections=active,
        d=data(n=100),
        index=parts(data(n=80)),
        script=[([0, 1, 2, 4], [0, 1, 2, 4])],
    )
    counted: dict[tuple[int, str, str, str], int] = {}
    lines = manifest(tmp_path / "artifacts")
    copies = {line["message"]: len(line["receivers"]) for line in lines if "message" in line}
    sent = [a for a in world.artifacts if a.kind == Kind.GLOBAL_MODEL]
    every = [m for a in sent for m in several(a.payload)]
    for a in world.artifacts:
        message = a.id.rpartition("/")[0]
        said = [b for b in world.artifacts if b.id == f"{message}/{Kind.WIDTH}"]
        width = float(said[0].payload["width"]) if said and a.kind in (Kind.GLOBAL_MODEL, *MODELS) else None
        up = a.sender != SERVER and a.channel in ("uplink", "relay")
        touched = [(p, s) for p, s in chosen if up and a.kind in acts[p].Config(**s).kinds]  # type: ignore[attr-defined]
        last = touched[-1] if touched and touched[-1][0] in ("top_k", "quantise") else None
        to_it = {"client", str(a.sender)}
        own = [b.payload for b in sent if b.round == a.round and to_it & set(b.seen_by)]
        # an asynchronous client began with an older model, one of IFCA's with one of several
        bases = (every if name in ("fedasync", "ifca") else own) if a.kind in MODELS else []
        if name == "stc" and a.kind == Kind.MODEL_DELTA and not touched:
            last = "top_k", {"share": 0.01}  # its own code
        key = (a.round, str(a.channel), str(a.kind), str(a.sender.role))
        counted[key] = counted.get(key, 0) + copies[message] * written(
            a, bases if a.kind in MODELS else [], width, last
        )
    charged = traffic(tmp_path / "artifacts")
    if name == "stc":  # what a client missed is not the model that it then has (tests/fl/methods/test_stc.py)
        counted = {k: v for k, v in counted.items() if k[1:3] != ("downlink", str(Kind.GLOBAL_MODEL))}
    assert charged and {k: v for k, v in counted.items() if charged[k] != v} == {}
    uplinks = sum(v for k, v in charged.items() if k[1] == "uplink")
    assert uplinks == sum(h["bytes_up"] for h in world.history)


@pytest.mark.parametrize("name", ["fedavg", "stc"])
def test_what_is_summed_securely_is_masked_and_so_takes_all_its_bytes(name: str) -> None:
    sparse = plugin.configure(plugin.load("fedaudit.fl.protections", "top_k", Protection), {"share": 0.1}, "x")
    hidden = plugin.configure(plugin.load("fedaudit.fl.protections", "secure_aggregation", Protection), {}, "x")
    world = run(method(name), protections=[sparse, hidden], script=[([0, 1], [0, 1])])
    numbers = sum(v.numel() for v in TinyNet().state_dict().values())
    assert {h["bytes_up"] for h in world.history} == {2 * (4 * numbers + 8)}


def test_a_coded_payload_is_not_lost_between_processes() -> None:
    ends = [SharedPipe(end) for end in Pipe()]
    sent = largest({"w": torch.randn(50)}, 0.1, True)
    ends[0].send(sent)
    back = ends[1].receive()
    assert isinstance(back, Coded) and back.size == sent.size and torch.equal(back["w"], sent["w"])
