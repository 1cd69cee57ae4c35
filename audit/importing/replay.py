"""Training as it is stated: clients are played once more, and what they sent must be one of such plays.

With the recorded model, the stated examples, method and settings, every play of a client differs by its own order
of batches (and noise) alone; if all that is stated is true, what was recorded is one play among R + 1, in no way
remarkable. For each upload the R + 1 changes are ranked by their mean distance to the others, and by length.
Ranks of the recorded ones are then uniform, and their sum over uploads has a law that is computed exactly: two
permutation tests, of two sides each.
Far from the played ones: another learning rate, number of epochs, batch size, network, normalisation, labels or
members. Nearer than they are to each other: noise that is claimed and is not there.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.case import Examples
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import TRAINED, UPDATES, Kind
from fedaudit.fl.recording.recorder import carries_shared_model, is_from_client, manifest, read_message
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.fl.wire.protection import Message
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import CheckedStatement

TITLE, ID = "Training as stated", "training"
LEVEL, TAILS = 0.01, 4  # of both tests together, and their sides
MOST_UPLOADS = 8
MOST_WORK = 1e11  # examples x epochs x parameters of all plays
Values = NDArray[np.float64]


def check_replays(lab: Lab | None, examples: Examples, artifacts: Path, *, foreign: bool) -> CheckedStatement:
    """Whether recorded uploads are what the stated training makes of the stated examples.

    `foreign`: code of others is played, whose errors are a result.
    """
    lines = [x for x in manifest(artifacts) if "message" in x]
    told = _uploads(examples, lines)
    if lab is None:
        return _check("open", "Method, network or first model were not stated: no client can be played.")
    if not told:
        return _check("open", "No client's examples were given: nobody can be played on what it holds.")
    plays = max(4, math.ceil((TAILS / LEVEL) ** (1 / len(told))) - 1)  # as few as can reach the level
    size = sum(v.numel() for v in lab.initial.values())
    count = sum(len(examples.parts[_index(line)]) for line in told)
    many = fmt.plural(len(told), "upload")
    if plays * count * lab.method.config.local_epochs * size > MOST_WORK:
        return _check("open", f"To play {many} {plays} times each is too much work.")
    try:
        found = [_replay_one(artifacts, lab, _with_models(lines, line), plays) for line in told]
    except Exception as error:  # other people's network
        if not isinstance(error, UserError) and not foreign:
            raise
        return _check("open", f"Clients could not be played: {error.args[0] if error.args else error}")
    far, near = tails([p.apart for p in found], plays)
    long, short = tails([p.longer for p in found], plays)
    least = min(far, near, long, short)
    chance = f"probability {min(1.0, TAILS * least):.2g} if all were as stated"
    text = f"Of {many}, each played {plays} times as stated, recorded changes are "
    text += f"{_span([p.ratio for p in found])} times as long as played ones, and "
    if TAILS * least > LEVEL:
        return _check("holds", f"{text}look like one more of them ({chance}).")
    which = {
        far: "lie further from those than they do from each other",
        near: "lie nearer to those than they do to each other",
        long: "are longer than those",
        short: "are shorter than those",
    }[least]
    why = "settings, network, normalisation, labels, members or protections are not as stated"
    return _check("contradicted", f"{text}{which} ({chance}): {why}.")


def tails(ranks: Sequence[int], plays: int) -> tuple[float, float]:
    """P[S >= s] and P[S <= s] of the sum of as many ranks, each uniform on 0..plays."""
    law = np.ones(1)
    for _ in ranks:
        law = np.convolve(law, np.full(plays + 1, 1 / (plays + 1)))
    return float(law[sum(ranks) :].sum()), float(law[: sum(ranks) + 1].sum())


class _Played(NamedTuple):
    """One recorded upload among its plays."""

    apart: int  # plays that lie nearer to the others than it does
    longer: int  # plays that are shorter
    ratio: float  # its length over the plays' mean


def _replay_one(artifacts: Path, lab: Lab, lines: Sequence[Mapping[str, Any]], plays: int) -> _Played:
    """`lines` are those of what was received in that round, and last of the upload."""
    found = [a for x in lines for a in read_message(artifacts, x)]
    upload = next(a for a in found if a.kind in UPDATES)
    got = find_received_message(found, upload)
    start = to_numpy(got[Kind.GLOBAL_MODEL])
    changes = [_change(upload.kind, upload.payload, start)]
    for i in range(plays):
        own = Streams(lab.holdings.streams.key("played", lines[-1]["message"], i))
        sent: Message | None = lab.holding(streams=own).replay(upload, got)
        if sent is None or upload.kind not in sent:
            raise ValueError(f"the stated method does not send {upload.kind}")
        changes.append(_change(upload.kind, to_numpy(sent[upload.kind]), start))
    rows = np.stack(changes)
    apart, lengths = np.linalg.norm(rows[:, None] - rows[None], axis=2).mean(1), np.linalg.norm(rows, axis=1)
    if not np.isfinite(apart).all():
        raise ValueError("training as stated does not stay finite")
    slack = 1e-3 * float(lengths.max())  # full batches: plays differ by the order of sums alone
    return _Played(
        apart=_rank(apart, slack),
        longer=_rank(lengths, slack),
        ratio=float(lengths[0] / max(1e-30, lengths[1:].mean())),
    )


def _rank(values: Values, slack: float) -> int:
    """How many plays have a smaller value than the recorded one, and half of those that have the same."""
    smaller = values[1:] < values[0] - slack
    same = abs(values[1:] - values[0]) <= slack
    return int(smaller.sum()) + int(same.sum()) // 2


def _change(
    kind: Kind, payload: Mapping[str, NDArray[np.generic]], start: Mapping[str, NDArray[np.generic]]
) -> Values:
    names = [n for n in sorted(payload) if n in start and payload[n].dtype.kind == start[n].dtype.kind == "f"]
    base = 1.0 if kind in TRAINED else 0.0
    parts = [
        (np.asarray(payload[n], np.float64) - base * np.asarray(start[n], np.float64)).ravel() for n in names
    ]
    return np.concatenate([np.zeros(0), *parts])


def _uploads(examples: Examples, lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lines of uploads to play: of clients whose examples are known, evenly, the latest first."""
    models = {x["round"] for x in lines if carries_shared_model(x)}
    own = [
        x
        for x in lines
        if is_from_client(x)
        and {*UPDATES} & {*x["kinds"]}
        and x["round"] in models
        and len(examples.parts.get(_index(x), ()))
    ]
    turn: dict[int, int] = {}
    ordered = []
    for x in sorted(own, key=lambda x: -x["round"]):
        k = _index(x)
        turn[k] = turn.get(k, 0) + 1
        ordered.append((turn[k], k, x))
    return [x for *_, x in sorted(ordered, key=lambda o: o[:2])[:MOST_UPLOADS]]


def _with_models(lines: Sequence[Mapping[str, Any]], line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of what its sender had received in that round, and last the line."""
    of_round, to = [x for x in lines if x["round"] == line["round"]], {"client", str(line["sender"])}
    down = [x for x in of_round if x["channel"] == Channel.DOWNLINK and to & {*x["seen_by"]}]
    return [*(down or filter(carries_shared_model, of_round)), line]


def _index(line: Mapping[str, Any]) -> int:
    return int(str(Party.parse(str(line["sender"])).index))


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _check(status: str, text: str) -> CheckedStatement:
    return CheckedStatement.model_validate({"id": ID, "title": TITLE, "status": status, "text": text})
