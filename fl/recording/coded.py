"""Payloads that cross the wire in fewer bytes than their arrays take, and how many those are.

Everybody computes with whole arrays; of a sparse or quantised one less is sent. Formats, of which a sender uses
the plain one where it is shorter:

    plain      every number as it is
    part       the numbers where a mask that both sides know is true
    largest    of N numbers the ceil(share N) largest in magnitude that are not 0, in order: the distance d to the
               one before, Golomb-Rice coded ((d - 1) / 2^b in unary, the rest in b bits), and the number, or its
               sign and, once for all, their magnitude
    levels     of each array its least and its largest number, then `bits` for each: the level between the two

Sattler, Wiedemann, Mueller, Samek. IEEE TNNLS 2020. arXiv:1903.02891, eq. 15 to 17 for the third: b is the best
for numbers that lie at random. A dict made of a coded payload is plain again, so whatever changes it later is
charged as it is. Of a part the protections on the wire see the numbers inside alone, as flat arrays: what a
client does not hold it neither clips nor noises nor counts. Under secure aggregation everything is plain, because
masks are.
"""

from collections.abc import Mapping
from math import ceil, floor, log, log2, sqrt
from typing import Any

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind

Message = dict[Kind, dict[str, Tensor]]


class Coded(dict[str, Tensor]):
    """Arrays that are sent in `size` bytes; of a part, the numbers where `masks` are true. Nothing changes it."""

    def __init__(
        self, arrays: Mapping[str, Tensor], size: int, masks: Mapping[str, Tensor] | None = None
    ) -> None:
        super().__init__(arrays)
        self.size, self.masks = size, masks or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Coded, (dict(self), self.size, self.masks)


def size_of(payload: Mapping[str, Tensor]) -> int:
    """Bytes of a payload as it is sent."""
    return payload.size if isinstance(payload, Coded) else _count_bytes(payload)


def part(arrays: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> Coded:
    """Arrays without the numbers outside of the masks; arrays that have none are whole."""
    cut = {k: v * masks[k].to(v.device) if k in masks else v for k, v in arrays.items()}
    each = (
        int(masks[k].sum()) * v.element_size() if k in masks else _count_bytes({k: v}) for k, v in cut.items()
    )
    return Coded(cut, sum(each), masks)


def masks_of(message: Message) -> Mapping[str, Tensor]:
    """The masks of a message of which a payload is a part; none of others."""
    return next((p.masks for p in message.values() if isinstance(p, Coded) and p.masks), {})


def flat(message: Message, masks: Mapping[str, Tensor]) -> Message:
    """The same with the numbers inside of the masks alone, an array each of one dimension."""
    if not masks:
        return message
    cut = {}
    for kind, payload in message.items():
        cut[kind] = {k: v[masks[k].to(v.device)] if k in masks else v for k, v in payload.items()}
    return cut


def spread(sent: Message, masks: Mapping[str, Tensor]) -> Message:
    """A message that flat() made, with zeros around its parts."""
    if not masks:
        return sent
    found: Message = {}
    for kind, payload in sent.items():
        if not payload.keys() & masks.keys():
            found[kind] = payload
            continue
        whole = {k: _pad_mask(v, masks[k]) if k in masks else v for k, v in payload.items()}
        found[kind] = Coded(whole, size_of(payload), masks)
    return found


def _pad_mask(inside: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=inside.dtype).masked_scatter(mask, inside.cpu())


def largest(arrays: Mapping[str, Tensor], share: float, ternary: bool) -> Coded:
    """The largest numbers of all floating-point arrays together, or their signs and one magnitude; others are 0.

    Ties keep the first. Whole-number arrays stay as they are.
    """
    moving = {k: v for k, v in arrays.items() if v.is_floating_point()}
    if not sum(v.numel() for v in moving.values()):
        return Coded(arrays, _count_bytes(arrays))
    flat = torch.cat([v.detach().cpu().flatten().double() for v in moving.values()])
    kept = flat.abs().argsort(descending=True, stable=True)[: ceil(share * len(flat))].sort().values
    kept = kept[flat[kept] != 0]
    sent = torch.zeros_like(flat)
    sent[kept] = flat[kept].sign() * flat[kept].abs().mean() if ternary else flat[kept]
    found, at, value_bits, width = dict(arrays), 0, 0, 0
    for name, value in moving.items():
        end = at + value.numel()
        found[name] = sent[at:end].reshape(value.shape).to(value)
        here = int(((kept >= at) & (kept < end)).sum())
        value_bits += here * (1 if ternary else 8 * value.element_size())
        width, at = max(width, value.element_size()), end
    bits = value_bits + _count_place_bits(kept, share)
    whole = _count_bytes({k: v for k, v in arrays.items() if k not in moving})
    short = -(-bits // 8) + (width if ternary else 0)
    return Coded(found, whole + min(short, _count_bytes(moving)))


def keep_largest(
    arrays: Mapping[str, Tensor], residual: Mapping[str, Tensor], share: float, ternary: bool
) -> tuple[Coded, dict[str, Tensor]]:
    """The largest numbers of arrays and of what was left out of others before, and the residual then."""
    wanted = {k: v + residual[k] if k in residual else v for k, v in arrays.items()}
    sent = largest(wanted, share, ternary)
    return sent, {**residual, **{k: v - sent[k] for k, v in wanted.items()}}


def levels(arrays: Mapping[str, Tensor], bits: int) -> int:
    """Bytes of arrays whose floating-point numbers are levels between the least and the largest of each array."""
    total = 0
    for value in arrays.values():
        plain = _count_bytes({"": value})
        coded = 2 * value.element_size() + -(-value.numel() * bits // 8)
        total += min(plain, coded) if value.is_floating_point() else plain
    return total


def rice(share: float) -> int:
    """b: bits of the rest of a distance, where that share of the numbers is sent."""
    if share >= 1:
        return 0  # every distance is 1
    golden = (sqrt(5) - 1) / 2
    return max(0, 1 + floor(log2(log(golden) / log(1 - share))))


def _count_place_bits(kept: Tensor, share: float) -> int:
    """Bits of the places of the kept numbers, ascending."""
    b = rice(share)
    before = torch.cat([torch.tensor([-1]), kept[:-1]])
    return int(((kept - before - 1) >> b).sum()) + len(kept) * (1 + b)


def _count_bytes(arrays: Mapping[str, Tensor]) -> int:
    return sum(v.numel() * v.element_size() for v in arrays.values())
