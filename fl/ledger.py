"""The ledger: every release of a protected unit's data, noised or not. Accountants read only this.

A release without noise is listed too, because it decides the bound: nothing an accountant says of
the noised weights holds for an observer who also gets counts in clear.
"""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

Mechanism = Literal["none", "gaussian", "laplace", "discrete_laplace", "randomized_response"]
Unit = Literal["record", "client"]
# zero_out: a client's data no longer count, and its message, of noise alone, is there all the same
Adjacency = Literal["add_or_remove_one", "replace_one", "zero_out"]
Sampling = Literal["none", "poisson", "fixed_without_replacement", "shuffle", "unknown"]
ClipOf = Literal["", "record", "update"]
Derived = Literal["clip", "declared", "measured"]
Normaliser = Literal["public", "private"]
Threshold = Literal["fixed", "from_data"]
EVERYONE = ("server", "client", "public")
MEMBER = "member"  # who took part in the same round: under secure aggregation clients agree on keys by name
# kinds of lines about what a server knew of clients' examples without any message
UNSENT = ("selection", "training_statistics", "client_data")
MOST = 10**12  # of anything counted in a line
RATES = ("sample_rate", "uncredited_rate", "claimed_delta")
FROM_A_DRAW = ("poisson", "fixed_without_replacement", "shuffle")
EACH = "each"  # of `count` releases has a draw of its own


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of one unit's data. Noise standard deviation / sensitivity is the multiplier z.

    Amplification by sampling needs two things: noise that is there whether or not the unit takes
    part, and an observer who cannot tell. Only then may a release leave a role out of
    `participation_seen_by`. Noise that each client adds to its own upload is absent with the client,
    so such releases keep the default. Amplified releases count in every round, taking part or not:
    for the unit "client" they are lines of the sender "client/*", one a round.
    """

    round: int
    kind: str  # artifact kind released
    sender: str  # party whose data it is: "client/3"
    observers: tuple[str, ...]  # who could read it, as Artifact.seen_by
    mechanism: Mechanism
    # standard deviation (Gaussian) or scale (Laplace) per coordinate; of randomised response
    # 1 / epsilon of one answer, at sensitivity 1
    noise_std: float = 0.0
    sensitivity: float | None = None  # L2 (Gaussian) or L1 (Laplace); None: nothing bounds it
    unit: Unit = "client"
    adjacency: Adjacency = "add_or_remove_one"
    sampling: Sampling = "none"
    sample_rate: float = 1.0
    uncredited_rate: float = 1.0  # which its maker counted on, where the run draws nobody so; the wire names it
    # the draw that decided whether the unit takes part: releases of one sender and one name share it, and
    # are one release as far as sampling goes. Empty: the round's; EACH: none is shared, as in DP-SGD's steps
    coin: str = ""
    clipped: str = ""  # where the clip is enforced, in words; empty: nowhere
    source: str = ""  # the protection that made it, empty for none
    # roles that can tell who took part; MEMBER: in its own rounds
    participation_seen_by: tuple[str, ...] = EVERYONE
    count: int = 1  # equal releases that this line stands for, such as the steps of DP-SGD
    copies: int = 1  # of the unit that are in it, each drawn by a coin of its own; only accounting counts them
    steps: int = 1  # steps that really touched the data between them; more than `count` is a fault
    clip_norm: float | None = None  # the norm enforced, where one is
    clip_of: ClipOf = ""  # what the clip bounds: one record's gradient, or the whole update
    threshold: Threshold = "fixed"  # how the clip's norm was chosen
    derived: Derived = "declared"  # where the sensitivity comes from
    # contributions summed before an observer reads them. In the line of one sender, each adds 1 / aggregated
    # of the variance, and `noise_std` is what as many honest ones add up to: count no more than surely answer
    aggregated: int = 1
    shares: int = 0  # of noise that are really in such a sum; 0: as many as `aggregated` says
    colluders: int = 1  # clients that put together what they know, the observing one among them
    normaliser: Normaliser = "public"  # whether weights or the denominator depend on private data
    claimed_epsilon: float | None = None  # what the mechanism says one release costs,
    claimed_delta: float | None = None  # and at which delta
    resolution: float = 0.0  # spacing of the numbers sent, where they were rounded after the noise
    precision: str = ""  # type of the numbers sent, such as "float32"; empty: not known
    # of the noise. The wire names it where its own source drew the noise; empty: a generator that nobody knows
    generator: str = ""
    stream: str = ""  # random stream of the noise; a name used twice is noise used twice

    @property
    def shared(self) -> bool:
        """Whether `noise_std` is that of a sum, to which this sender adds one part in `aggregated`."""
        return self.aggregated > 1 and self.mechanism != "none" and not self.sender.endswith("/*")

    def counted_shares(self, single: bool, colluders: int) -> int:
        """How many shares an observer cannot subtract: one of a `single` message, else those of all others."""
        if single:
            return 1
        return min(self.aggregated, max(1, (self.shares or self.aggregated) - colluders))

    @property
    def noise_multiplier(self) -> float:
        """z = noise_std / sensitivity; 0 where nothing bounds the sensitivity or there is no noise."""
        if self.mechanism == "none" or not self.sensitivity:
            return 0.0
        return self.noise_std / self.sensitivity


def to_line(release: Release) -> str:
    fields = dataclasses.asdict(release)
    if not release.shared:  # they say nothing of noise that one party makes
        del fields["shares"], fields["colluders"]
    if not release.generator:
        del fields["generator"]
    if release.uncredited_rate == 1:
        del fields["uncredited_rate"]
    if release.copies == 1:
        del fields["copies"]
    return json.dumps(fields, separators=(",", ":"))


def read(path: Path) -> list[Release]:
    """All releases of a ledger file; raises UserError naming the line that is not one."""
    releases = []
    for number, line in enumerate(_read_lines(path), start=1):
        try:
            fields = parse_json(line)
            releases.append(from_fields(fields))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{path} line {number} is not a release: {error}",
                hint="restore the file, or simulate again into a new folder",
            ) from error
    return releases


def from_fields(fields: dict[str, Any]) -> Release:
    """One line, parsed; raises ValueError, TypeError or KeyError where it is not one."""
    for name in ("observers", "participation_seen_by"):
        if not isinstance(fields.get(name, []), list):
            raise ValueError(f"{name} must be a list")
    seen = tuple(fields.get("participation_seen_by", EVERYONE))
    made = Release(**(fields | {"observers": tuple(fields["observers"]), "participation_seen_by": seen}))
    if reason := invalid(made):
        raise ValueError(reason)
    return made


def invalid(release: Release) -> str | None:
    """What is wrong with a release's fields, which come from a file that anyone may have written; else None."""
    for field in dataclasses.fields(Release):
        name, wanted, value = field.name, field.type, getattr(release, field.name)
        if get_origin(wanted) is Literal:
            fits, words = value in get_args(wanted), f"one of {', '.join(get_args(wanted))}"
        elif wanted is str:
            fits, words = isinstance(value, str), "a text"
        elif wanted == tuple[str, ...]:
            fits, words = isinstance(value, tuple) and all(isinstance(v, str) for v in value), "a list of texts"
        elif wanted is int:
            fits, words = type(value) is int and 0 <= value <= MOST, "a whole number >= 0"
        else:
            most, words = (1, "a number from 0 to 1") if name in RATES else (1e300, "a finite number >= 0")
            number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
            fits = number or (value is None and wanted == float | None)
        if not fits:
            return f"{name} must be {words}, got {value!r:.60}"
    return None


def _read_lines(path: Path) -> Iterable[bytes]:
    if not path.is_file():
        raise UserError(f"no ledger at {path}", hint="`fedaudit run CONFIG --phase simulate` writes it")
    return (line for line in path.read_bytes().splitlines() if line)
