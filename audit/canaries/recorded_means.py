"""The noise in the means a run really released: each recorded model less what the recorded uploads come to.

Noise that the server adds to a round's mean (central_dp) is what is left of

    w_{t+1} - w_t - (1/m) sum_k (w_k - w_t)

where the models are those broadcast or released, w_k the clipped uploads of round t, and m the fixed
denominator, from the ledger's two norms. Only rounds of which every upload was recorded can be used. Under
secure aggregation the auditor, who runs the federation, reads the uploads all the same.
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.canaries.recorded_uploads import MOST_COORDINATES, Found
from fedaudit.audit.canaries.residuals import Floats
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.recorder import manifest, read
from fedaudit.fl.runtime.streams import Streams

MOST_ROUNDS, MOST_UPLOADS = 8, 400
SPACING = 2.0**-22  # of single precision, relative: what rounding adds to the noise


def recorded_means(run: RunDir) -> list[Artifact]:
    """The latest recorded global models, and the uploads of the rounds between them."""
    lines = [x for x in manifest(run.artifacts) if "message" in x]
    models = {
        x["round"]: x["message"]
        for x in lines
        if x["channel"] != Channel.UPLINK and Kind.GLOBAL_MODEL in x["kinds"]
    }
    names: set[str] = set()
    uploads = 0
    for t in sorted((t for t in models if t + 1 in models), reverse=True)[:MOST_ROUNDS]:
        sent = [x["message"] for x in lines if x["round"] == t and x["channel"] == Channel.UPLINK]
        uploads += len(sent)
        if uploads > MOST_UPLOADS:
            break
        names |= {*sent, models[t], models[t + 1]}
    return read(run.artifacts, lambda x: x["message"] in names)


def noise(recorded: Sequence[Artifact], releases: Sequence[Release], streams: Streams) -> Found | None:
    """[rounds, coordinates] what is left, on coordinates drawn at random; None of no whole round."""
    recorded = index(recorded)
    models = {a.round: a for a in recorded.select(kind=Kind.GLOBAL_MODEL)}
    means = {r.round: r for r in releases if r.kind == Kind.GLOBAL_MODEL.value and r.clip_norm}
    rows: list[Floats] = []
    gap, chosen = 0.0, None
    for t in sorted(t for t in means if t in models and t + 1 in models):
        listed = {r.sender: r for r in releases if r.round == t and r.source == means[t].source and r != means[t]}
        sent = {str(a.sender): a for a in recorded.select(round=t, kind=Kind.LOCAL_MODEL)}
        norms = {r.clip_norm for r in listed.values()}
        if sent.keys() != listed.keys() or len(norms) > 1:
            continue  # not every upload was kept
        bound = next(iter(norms), None)  # none where nobody answered, and the noise is all there is
        share = (means[t].clip_norm or 0.0) / (bound or np.inf)
        before, after = _flat(models[t]), _flat(models[t + 1])
        total = sum((_flat(a) - before for a in sent.values()), np.zeros_like(before))
        if chosen is None:
            chosen = streams.numpy("recorded_means").permutation(len(before))[:MOST_COORDINATES]
        rows.append((after - before - share * total)[chosen])
        gap = max(gap, SPACING * float(np.abs(after).max()))
    return Found(np.stack(rows), gap) if rows else None


def _flat(artifact: Artifact) -> Floats:
    """All floating-point arrays, by name."""
    arrays = [v for _, v in sorted(artifact.payload.items()) if v.dtype.kind == "f"]
    return np.concatenate([v.astype(np.float64).ravel() for v in arrays])
