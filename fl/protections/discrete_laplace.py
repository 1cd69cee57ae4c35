"""Discrete Laplace protection: whole-number noise on counts, which stay whole numbers.

Ghosh, Roughgarden, Sundararajan. Universally Utility-maximizing Privacy Mechanisms. STOC 2009
(the geometric mechanism), with the scale b of Inusah, Kozubowski 2006 for its alpha = e^(-1/b):

    n <- n + X,   P[X = x] = (1 - a) / (1 + a) * a^|x|,   a = e^(-1/scale).

The unit is one record: adding or removing one changes one count by 1, replacing one changes two, and one
release of one histogram costs sensitivity / scale at delta = 0. That a client holds many records is
not hidden: nothing bounds what a whole client adds to a count. Kinds are released separately and add up.
Whole-number noise has no float spacing to leak through (Mironov, CCS 2012), which is why counts do
not get dp_gaussian or laplace.

Afterwards counts are raised to 0, or to 1 where a count is only sent for classes that a client has
and for its number of examples: post-processing, which costs nothing and keeps weights usable. With
`floor: false` negative counts are sent. Which classes are listed beside the counts stays in clear,
and the ledger says so. scale 0 changes nothing.
"""

from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Adjacency, Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.noising import leave_in_clear
from fedaudit.fl.wire.protection import Payload, Protection, Sending

COUNTS = (Kind.LABEL_COUNTS, Kind.PROTO_COUNTS, Kind.NUM_EXAMPLES)
ALWAYS_SOME = (Kind.PROTO_COUNTS, Kind.NUM_EXAMPLES)  # sent only where there is something


class DiscreteLaplace(Protection):
    title = "Whole-number noise on counts"
    source = "Ghosh et al., STOC 2009"
    kinds = COUNTS
    answers = frozenset({Aim.ATTRIBUTE})
    strength = "scale"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(default=COUNTS, description="counts that get noise")
        scale: Amount = Field(
            default=1.0, description="b: scale of the noise on each count; epsilon is 1 / b; 0 adds no noise"
        )
        adjacency: Adjacency = Field(default="add_or_remove_one", description="how neighbouring data sets differ")
        floor: bool = Field(default=True, description="whether counts are raised to the least that can be")

        def __post_init__(self) -> None:
            if wrong := [k for k in self.kinds if not k.counted]:
                known = ", ".join(k for k in Kind if k.counted)
                raise UserError(f"discrete_laplace.kinds: {wrong[0]} holds no counts", hint=f"known: {known}")

    def describe(self) -> str:
        c = self.config
        return (
            f"{', '.join(c.kinds)} with discrete Laplace noise of scale {c.scale:g}, added before the "
            "server receives it"
        )

    def adds_noise_to(self, kind: Kind) -> bool:
        return bool(self.config.scale) and kind in self.config.kinds

    def apply(self, sending: Sending) -> None:
        c = self.config
        for kind in c.kinds:
            if kind in sending.message:
                line, beside = self._describe_release(kind, sending), [*sending.message[kind]]
                beside.remove(kind.counted)
                clear = leave_in_clear(kind, beside, sending, "discrete_laplace")
                if c.scale:
                    payload, name = sending.message[kind], kind.counted
                    noised = sending.noise.release(line, {name: payload[name]})
                    sending.message[kind] = payload | (self._raise_to_floor(kind, noised) if c.floor else noised)
                sending.releases += [line, *clear]
                sending.protected.add(kind)

    def _raise_to_floor(self, kind: Kind, counts: Payload) -> Payload:
        return {name: value.clamp(min=1 if kind in ALWAYS_SOME else 0) for name, value in counts.items()}

    def _describe_release(self, kind: Kind, sending: Sending) -> Release:
        c = self.config
        return Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="discrete_laplace" if c.scale else "none",
            noise_std=c.scale,
            sensitivity=1.0 if c.adjacency != "replace_one" else 2.0,
            unit="record",
            adjacency=c.adjacency,
            derived="clip",
            clipped="one record is counted once, in the class that it has",
            clip_norm=1.0,
            clip_of="record",
            source="discrete_laplace",
        )
