"""Reach: how far one client alone moves what a rule makes, and the clients that an unlucky draw leaves out.

Malicious clients are drawn at random. A rule that hears some clients more than others breaks under these alone,
so that a draw without them finds nothing. Whoever moves the rule twice as far as every client that was drawn
leads runs of its own.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedaudit.audit.robustness.finished_runs import FinishedRun
from fedaudit.audit.robustness.plan import LED, PLANTED, MatrixPlace, ServerRule
from fedaudit.fl.aggregation.aggregator import Aggregator, Context
from fedaudit.fl.runtime.errors import UserError, describe_unexpected
from fedaudit.fl.runtime.streams import Streams

WIDTH = 64  # numbers of an upload
PARTS = {"body": (8, 3), "head.weight": (4, 9), "head.bias": (4,)}  # of its layers
UPLOADS = 120  # honest ones that are drawn, of all clients together; more where there are more clients
FORGED = (-10.0, -1.0, 1.0)  # in honest uploads; 1: another honest one
FURTHER = 2.0  # times as far as any client that was drawn


def measure_reach(rule: Aggregator, weights: Mapping[int, float]) -> dict[int, float]:
    """Client -> how far its upload alone moves what the rule makes, the largest over what it forges.

    `weights` are the clients' numbers of examples. Uploads are invented: a common step and noise of its length.
    Whoever is forged, the others send the same in the same order, so that a rule that treats clients alike gives
    one number for all. Raises UserError as the rule does.
    """
    moved: dict[int, list[list[float]]] = {k: [] for k in weights}
    clients = sorted(weights)
    for draw in range(max(3, UPLOADS // max(1, len(clients)))):
        rng = np.random.default_rng((WIDTH, draw))
        step, noise = rng.normal(size=WIDTH), rng.normal(size=(len(clients) + 2, WIDTH))
        rows = torch.from_numpy(step + noise).float()
        honest, own, other = list(rows[2:]), rows[0], rows[1]
        for k in clients:
            others = [honest[i] for i in range(len(clients) - 1)]
            at = clients.index(k)
            before = _combine(rule, weights, [*others[:at], own, *others[at:]], draw, step)
            forged = [other if f == 1 else f * own for f in FORGED]
            after = [_combine(rule, weights, [*others[:at], x, *others[at:]], draw, step) for x in forged]
            moved[k].append([float((x - before).norm()) for x in after])
    return {k: float(np.mean(found, axis=0).max()) for k, found in moved.items()}


def _combine(
    rule: Aggregator, weights: Mapping[int, float], uploads: Sequence[Tensor], draw: int, step: Any
) -> Tensor:
    """[WIDTH] what the rule makes of the clients' uploads, as of a body and a head."""
    context = Context(
        round=draw,
        name="model",
        streams=Streams(WIDTH),
        state={},
        parameters=tuple(PARTS),
        root=_split(torch.from_numpy(step).float()) if rule.needs_root else {},
        head=tuple(PARTS)[1:],
    )
    made, start = rule.begin(context), _split(torch.ones(WIDTH))
    for k, upload in zip(sorted(weights), uploads, strict=True):
        made.add(k, _split(1 + upload), weights[k], start)
    found = made.value()
    return torch.cat([found[name].flatten() for name in PARTS])


def _split(upload: Tensor) -> dict[str, Tensor]:
    """An upload [WIDTH] as the arrays of a small network."""
    sizes = [math.prod(shape) for shape in PARTS.values()]
    ends = list(accumulate(sizes))
    return {k: upload[end - n : end].reshape(PARTS[k]) for k, n, end in zip(PARTS, sizes, ends, strict=True)}


def choose_leaders(reach: Mapping[int, float], drawn: Collection[int]) -> tuple[int, ...]:
    """As many clients as were drawn, those that reach furthest; nobody where the draw holds one of their kind."""
    furthest = sorted(reach, key=lambda k: (-reach[k], k))[: len(drawn)]
    own = max((reach[k] for k in drawn if k in reach), default=0.0)
    return tuple(sorted(furthest)) if furthest and reach[furthest[0]] > FURTHER * own else ()


def plan_leaders(
    ended: Mapping[MatrixPlace, FinishedRun], ran: Mapping[str, object]
) -> tuple[list[MatrixPlace], dict[str, str]]:
    """The runs still to make: every attack by as many clients that move its rule further than those drawn.

    Beside them the rules whose clients could not be compared, each with what went wrong.
    """
    drawn = [(p, run) for p, run in ended.items() if p.adversary not in ("", PLANTED)]
    most: dict[tuple[str, str], int] = {}
    for place, _ in drawn:
        most[place.setting, place.rule.name] = max(place.malicious, most.get((place.setting, place.rule.name), 0))
    found, failed = dict[str, MatrixPlace](), dict[str, str]()
    known = dict[tuple[str, str, int], tuple[int, ...]]()  # every attack of a seed is by the same clients
    for place, run in drawn:
        if place.malicious < most[place.setting, place.rule.name]:
            continue
        key = place.setting, place.rule.name, place.seed
        if key not in known:
            sizes = run.case.population.counts.sum(1)
            weights = {k: float(n) for k, n in enumerate(sizes) if n}
            try:
                known[key] = find_leaders(place.rule, weights, run.case.compromise.clients)
            except Exception as error:  # noqa: BLE001 - the rule may be a user's own
                known[key] = ()
                sentence = error.sentence if isinstance(error, UserError) else describe_unexpected(error)[0]
                failed[f"{place.setting}/{place.rule.name}/reach"] = sentence
        attack = {**place.changes["adversary"], "clients": list(known[key])}
        new = replace(place, adversary=place.adversary + LED, changes={**place.changes, "adversary": attack})
        if known[key] and new.folder not in ran:
            found[new.folder] = new
    return list(found.values()), failed


def find_leaders(rule: ServerRule, weights: Mapping[int, float], drawn: Collection[int]) -> tuple[int, ...]:
    """Clients that move a rule, for models or for prototypes, further than those drawn; nobody where these do."""
    made = rule.build()
    leaders = (choose_leaders(measure_reach(r, weights), drawn) for r in (made, made.of_prototypes))
    return next(filter(None, leaders), ())
