"""Gaussian protection: clip what a client sends, add Gaussian noise, and say what that is worth.

Dwork, Roth. The Algorithmic Foundations of Differential Privacy. 2014, A.1; with client-level
clipping as in McMahan, Ramage, Talwar, Zhang. ICLR 2018. arXiv:1710.06963, sec. 2.

Everything one chosen kind holds is one vector v per message, and each kind is a release of its own: a
model counts as its change from the model received (w_k - w), other kinds as they are.

    v <- v * min(1, clip_norm / ||v||) + N(0, (noise_multiplier * clip_norm)^2)   per coordinate

With `clip: row` every row is a vector of its own and clipped alone, such as one prototype of [c, D]: one
class with large features then does not shrink the others. The whole message of r rows has sensitivity
sqrt(r) * clip_norm, which is what the ledger gets; r is the largest number of rows, `most_rows`.

With `contributors: n` each client adds one part in n of the variance, for a server that reads only the sum
(secure_aggregation; Dwork et al. Our Data, Ourselves. EUROCRYPT 2006): the ledger counts the noise of as many as
answered, n at most. Whoever reads single uploads is left with one part. A client knows the noise that it made
itself and subtracts it, with what its `colluders` made: towards clients the ledger's line counts the parts of
all others, n at most, and towards the server and the public, who are taken to collude with nobody, all.

The noise is added on the way to the server, so the guarantee is local: the unit is the client, and
the server itself is an observer. Integer arrays beside the vector (which classes a client has) are
not noised, and the ledger says so. noise_multiplier 0 with clip_norm inf changes nothing.
"""

import math
from typing import Any, Literal

from pydantic import Field

from fedaudit.fl.kinds import UPDATES, Kind, Summed
from fedaudit.fl.ledger import Adjacency, Release
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.noising import base_of, in_clear, perturb
from fedaudit.fl.wire.protection import Payload, Protection, Sending, Uploads

LITTLE_NOISE, ROW_NOISE = 0.01, 0.5  # multipliers to try: of a whole model, and of the row of a class


class DPGaussian(Protection):
    title = "Clipping and Gaussian noise"
    source = "arXiv:1710.06963, sec. 2"
    answers = frozenset({Aim.EXFILTRATION, Aim.INVERSION, Aim.MEMBERSHIP, Aim.RECONSTRUCTION})
    strength = "noise_multiplier"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(
            default=UPDATES, description="kinds of messages that are clipped and get noise"
        )
        clip_norm: float = Field(
            default=1.0, gt=0, description="C: largest L2 norm of what one client sends; .inf means no clipping"
        )
        noise_multiplier: Amount = Field(
            default=1.0, description="z: standard deviation of the noise over C; 0 adds no noise"
        )
        adjacency: Adjacency = Field(default="add_or_remove_one", description="how neighbouring data sets differ")
        clip: Literal["message", "row"] = Field(
            default="message", description="what has a norm of at most C: the whole message, or each of its rows"
        )
        most_rows: AtLeastOne = Field(
            default=10,
            description="rows that a message may have, with clip: row; more are refused; use the number of "
            "classes",
        )

        contributors: AtLeastOne = Field(
            default=1,
            description="honest clients of a round that make the noise together, each 1 / contributors of "
            "its variance; above 1 it takes secure_aggregation, and fewer answers make less noise",
        )
        colluders: AtLeastOne = Field(
            default=1,
            description="clients that put together what they know, the observing one among them: their "
            "parts of noise made together are not counted towards clients",
        )

        def __post_init__(self) -> None:
            if self.noise_multiplier and math.isinf(self.clip_norm):
                raise UserError(
                    "dp_gaussian: noise without a finite clip_norm protects nothing",
                    hint="set clip_norm, or noise_multiplier: 0",
                )

    @classmethod
    def propose(cls, uploads: Uploads) -> dict[str, Any] | None:
        """Clipping at the median norm, of rows or of whole messages, with noise that a model may survive.

        Few numbers bear more of it than many.
        """
        able = [k for k in uploads.kinds if uploads.norms.get(k)]
        if not able:
            return None
        kind = able[0]
        settings = {"kinds": [kind.value], "clip_norm": uploads.norms[kind], "noise_multiplier": LITTLE_NOISE}
        if kind.summed is Summed.BY_CLASS_WEIGHTED:
            settings |= {"clip": "row", "most_rows": uploads.classes, "noise_multiplier": ROW_NOISE}
        return settings

    def describe(self) -> str:
        c = self.config
        return (
            f"{', '.join(c.kinds)} clipped to norm {c.clip_norm:g}"
            f"{', row by row,' if c.clip == 'row' else ''} with Gaussian noise of "
            f"standard deviation {c.noise_multiplier * c.clip_norm:g} (multiplier "
            f"{c.noise_multiplier:g}), added before the server receives it"
            + (_describe_contributors(c.contributors, c.colluders) if c.contributors > 1 else "")
        )

    def noise_std(self, kind: Kind) -> float:
        c = self.config
        if not c.noise_multiplier or kind not in c.kinds:
            return 0.0
        return float(c.noise_multiplier * c.clip_norm) / math.sqrt(c.contributors)

    def apply(self, sending: Sending) -> None:
        for kind in self.config.kinds:
            if kind in sending.message:
                releases, base = self._releases(kind, sending), base_of(kind, sending.reference)
                sending.message[kind] = self._add_noise(sending.message[kind], base, sending.noise, releases[0])
                sending.protected.add(kind)
                sending.releases += releases

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        rows = self.config.clip == "row"
        longest = max((len(v) for v in payload.values() if v.dim()), default=0)
        if rows and longest > self.config.most_rows:
            raise UserError(
                f"dp_gaussian: a message has {longest} rows, most_rows is {self.config.most_rows}",
                hint="set most_rows to the number of classes",
            )
        return perturb(payload, base, self.config.clip_norm, noise, line, rows=rows)

    def _releases(self, kind: Kind, sending: Sending) -> list[Release]:
        """The line of the noised vector, and lines of what lies beside it in clear."""
        c = self.config
        factor = 1.0 if c.adjacency != "replace_one" else 2.0
        bounded = not math.isinf(c.clip_norm)
        bound = c.clip_norm * (math.sqrt(c.most_rows) if c.clip == "row" else 1.0)
        noised = Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="gaussian" if c.noise_multiplier else "none",
            noise_std=c.noise_multiplier * c.clip_norm if c.noise_multiplier else 0.0,
            sensitivity=factor * bound if bounded else None,
            adjacency=c.adjacency,
            clipped=_WHERE[c.clip] if bounded else "",
            source="dp_gaussian",
            clip_norm=bound if bounded else None,
            clip_of="update" if bounded else "",
            derived="clip" if bounded else "declared",
            aggregated=c.contributors,
            colluders=c.colluders,
        )
        return [noised, *in_clear(kind, sending, "dp_gaussian")]


def _describe_contributors(contributors: int, colluders: int) -> str:
    """Who makes the noise, and how many of them know it, in words."""
    among = f", at most {colluders} of them colluding" if colluders > 1 else ", none colluding with another"
    return f" by {contributors} clients together, each a part{among}"


_WHERE = {
    "message": "on the client's whole vector, before noise",
    "row": "on each row of the client's array, before noise; the norm is that of all rows",
}
