"""Noise that the server adds to the mean of the uploads, put to the test by canary clients.

The claim is made to the other clients and the public; the server reads the uploads themselves. Canaries
take part in every round, so what they show is held against the releases without credit for sampling.
Besides, the noise of the run's own means is tested, where the record allows it
(audit/canaries/recorded_means.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedaudit.audit.canaries import central
from fedaudit.audit.canaries.carrier import Carrier
from fedaudit.audit.canaries.entry import record, unaudited, whole_run
from fedaudit.audit.canaries.neighbours import replay
from fedaudit.audit.canaries.panel import judge
from fedaudit.audit.canaries.recorded_means import noise
from fedaudit.audit.canaries.recorded_uploads import GAME, RECORD, checks
from fedaudit.audit.canaries.run_payload import PAYLOAD, payloads
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.settings.controls import DPAuditSettings
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.result import DPAudit

NO_PASSAGE = "The auditor's canaries do not pass this protection: {}: {}."


def central_noise(
    protections: Sequence[Protection],
    streams: Streams,
    releases: Sequence[Release],
    settings: DPAuditSettings,
    delta: float,
    recorded: Sequence[Artifact] = (),
    lab: Callable[[], Lab | None] = lambda: None,
    law: Callable[[int | None], Drawn] = lambda _: Drawn(),
) -> list[DPAudit]:
    """One audit where a central protection acts and adds noise, else none."""
    acting = [p for p in protections if p.central]
    if not acting:
        return []
    kind, title = Kind.GLOBAL_MODEL, acting[0].title
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
        payload = payloads(lab, law, protections, streams).checks(kind, streams, PAYLOAD * alpha)
        tests = [check, *payload]
        if ran and (found := noise(recorded, releases, streams)):
            rng = streams.numpy("recorded", kind.value)
            tests += checks(found, ran[0], rng, RECORD * alpha, "rounds")
        rng = streams.numpy("panel", kind.value)
        panel = replace(judge(played, measured, delta, rng, GAME * alpha, tests), alpha=alpha)
    except Exception as error:
        return [unaudited(kind, title, ran, delta, NO_PASSAGE.format(type(error).__name__, error))]
    return [record(kind, title, played.declared, panel, rounds, whole, delta)]
