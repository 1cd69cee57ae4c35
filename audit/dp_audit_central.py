"""Noise that the server adds to the mean of the uploads, put to the test by canary clients.

The claim is made to the other clients and the public; the server reads the uploads themselves. Canaries
take part in every round, so what they show is held against the releases without credit for sampling.
"""

from collections.abc import Sequence

from audit.config import DPAuditSettings
from audit.dp_audit_entry import record, unaudited, whole_run
from audit.empirical import central
from audit.empirical.carrier import Carrier
from audit.empirical.neighbours import replay
from audit.empirical.panel import judge
from audit.world import World
from fl.artifact import Kind
from fl.ledger import Release
from fl.streams import Streams
from reports.result import DPAudit

NO_PASSAGE = "The auditor's canaries do not pass this protection: {}: {}."


def central_noise(
    world: World, streams: Streams, releases: Sequence[Release], settings: DPAuditSettings
) -> list[DPAudit]:
    """One audit where a central protection acts and adds noise, else none."""
    acting = [p for p in world.protections if p.central]
    if not acting:
        return []
    kind, title, delta = Kind.GLOBAL_MODEL, acting[0].title, world.config.delta
    ran = [r for r in releases if r.kind == kind.value and r.noise_multiplier]
    whole = whole_run(ran, delta, "another client")
    rounds = max(1, min(settings.rounds, whole.releases))
    canaries, alpha = settings.canaries, 1 - settings.confidence
    try:
        played = central.play(acting, streams, canaries=canaries, rounds=rounds)
        if played is None:
            return []  # clipped at most: no noise, no claim
        carrier = Carrier.of(Kind.LOCAL_MODEL, canaries)
        measured, check = replay(carrier, acting, streams, played.declared)
        rng = streams.numpy("panel", kind.value)
        panel = judge(played, measured, delta, rng, alpha, [check])
    except Exception as error:
        return [unaudited(kind, title, ran, delta, NO_PASSAGE.format(type(error).__name__, error))]
    return [record(kind, title, played.declared, panel, rounds, whole, delta)]
