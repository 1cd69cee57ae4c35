"""Empirical audits of a run's noise: what the ledger claims, against what canaries and replays show.

For every kind that the run's protections noise on the wire, the auditor's own clients send canaries
through the very same protection objects and streams (audit/canaries/game.py), and every audit that
this allows is taken (audit/canaries/panel.py). The claim is the ledger's: a lower bound above its
upper bound, or noise that is not what it says, refutes it. Noise inside local training does not pass
the wire as noise: there the canaries are records, in the run's own private training
(audit/canaries/records.py). Noise that the server adds to the mean of the uploads comes after the wire:
there canaries are clients again, and what is read is the mean (audit/canaries/run_central.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedaudit.audit.canaries.carrier import COUNTS, Carrier, noised_lines
from fedaudit.audit.canaries.entry import record, unaudited, whole_run
from fedaudit.audit.canaries.game import Played, play
from fedaudit.audit.canaries.neighbours import replay
from fedaudit.audit.canaries.panel import ADDITIVE, Panel, Shown, from_residuals, judge, listed, upper
from fedaudit.audit.canaries.payload import up_to_noise
from fedaudit.audit.canaries.recorded_uploads import GAME, RECORD, checks, residuals
from fedaudit.audit.canaries.residuals import checks as noise_checks
from fedaudit.audit.canaries.run_central import NO_PASSAGE, central_noise
from fedaudit.audit.canaries.run_payload import PAYLOAD, Payloads, payloads
from fedaudit.audit.canaries.trained_neighbours import replay_training
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.settings.controls import DPAuditSettings
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import name_of
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.result import DPAudit


def dp_audits(
    protections: Sequence[Protection],
    sends: Sequence[Kind],
    releases: Sequence[Release],
    settings: DPAuditSettings,
    recorded: Sequence[Artifact] = (),
    *,
    streams: Streams,
    delta: float,
    lab: Callable[[], Lab | None] = lambda: None,
    law: Callable[[int | None], Drawn] = lambda _: Drawn(),
) -> list[DPAudit]:
    """One audit for each kind of `sends` that a protection of this run acts on; none where none does.

    `recorded` are uploads and the broadcasts of their rounds (of central noise, the models before and
    after them too), whose own noise is tested too. `streams` are the audit's; `lab` opens the clients that can
    be trained once more, where there are any; `law` is how they come to take part.
    """
    if settings.canaries == 0:
        return []
    found = central_noise(protections, streams, releases, settings, delta, recorded, lab, law)
    if found:  # a central clip comes after noise on the uploads
        recorded = ()
    wired = [p for p in protections if p.training() is None and not p.central]
    tried: Payloads | None = None
    if any(kind in acts_on(p) for kind in sends for p in wired):
        tried = payloads(lab, law, wired, streams)
    for kind in dict.fromkeys(sends):
        acting = [p for p in protections if kind in acts_on(p)]
        if not acting and tried and tried.noises(kind):  # it lists what it does not say it acts on
            acting = wired
        training = [p for p in acting if p.training() is not None]
        ran = [r for r in releases if r.kind == kind.value and r.noise_multiplier]
        sources = {name_of(type(p)) for p in training}
        if training:
            stepped = [r for r in ran if r.source in sources]
            found.append(_trained(kind, training[0], streams, stepped, delta, settings))
        if any(p in wired for p in acting):
            title = " and ".join(p.title for p in acting if p in wired)
            sent = [r for r in ran if r.source not in sources]
            found += _wired(lab, kind, title, wired, streams, sent, settings, delta, recorded, tried)
    covered = {a.kind for a in found}
    noised = [r for r in releases if r.noise_multiplier and r.kind not in covered]
    for name in dict.fromkeys(r.kind for r in noised):
        own = [r for r in noised if r.kind == name]
        reason = "No protection of the wire adds this noise; canaries pass no others."
        found.append(unaudited(name, own[0].source or "the method", own, delta, reason))
    return found


def acts_on(protection: Protection) -> tuple[Kind, ...]:
    """The kinds a protection is set to change."""
    return tuple(getattr(protection.config, "kinds", ()) or protection.kinds)


def hidden_noise(protection: Protection) -> str:
    """What a protection of ours does after its noise that canaries cannot undo; nobody else's is excused so."""
    return protection.after_noise if type(protection).__module__.startswith("fedaudit.fl.protections.") else ""


def _wired(
    lab: Callable[[], Lab | None],
    kind: Kind,
    title: str,
    protections: Sequence[Protection],
    streams: Streams,
    ran: Sequence[Release],
    settings: DPAuditSettings,
    delta: float,
    recorded: Sequence[Artifact],
    tried: Payloads | None,
) -> list[DPAudit]:
    alpha = 1 - settings.confidence
    whole = whole_run(ran, delta)
    rounds = max(1, min(settings.rounds, whole.releases))
    canaries = settings.canaries
    if words := " and ".join(filter(None, (hidden_noise(p) for p in protections if kind in acts_on(p)))):
        return [unaudited(kind, title, ran, delta, f"After the noise {words}, which canaries cannot undo.")]
    try:
        payload = tried.checks(kind, streams, PAYLOAD * alpha) if tried else []
    except Exception as error:
        return [unaudited(kind, title, ran, delta, NO_PASSAGE.format(type(error).__name__, error))]
    try:
        stand_in = Carrier.of(kind, canaries)
        protections = up_to_noise(protections, lambda some: noised_lines(stand_in, some, streams))
        played = play(kind, protections, streams, canaries=canaries, rounds=rounds)
        if played is None:
            return []  # clipped at most: no noise, no claim
        said = played.declared
        if said.unit == "record" and kind not in COUNTS:
            panel = of_records(lab(), kind, played, streams, delta, (1 - PAYLOAD) * alpha)
            panel = replace(panel, checks=(*panel.checks, *payload), alpha=alpha)
            return [record(kind, title, said, panel, rounds, whole, delta)]
        measured, check = replay(stand_in, protections, streams, said)
        tests = [check, *payload]
        if found := residuals(lab(), recorded, kind) if said.mechanism in ADDITIVE and recorded else None:
            rng = streams.numpy("recorded", kind.value)
            rounded = max((r.resolution for r in ran), default=0.0)
            tests += checks(found, replace(said, resolution=rounded), rng, RECORD * alpha)
        rng = streams.numpy("panel", kind.value)
        panel = replace(judge(played, measured, delta, rng, GAME * alpha, tests), alpha=alpha)
    except Exception as error:
        if whole.one is None or not any(c.failure_rate for c in payload):
            return [unaudited(kind, title, ran, delta, NO_PASSAGE.format(type(error).__name__, error))]
        said, shown = whole.one, upper([whole.one], delta)  # no game, and the run's own shape passed
        panel = Panel(upper=shown, single=shown, shown=(), checks=tuple(payload), alpha=PAYLOAD * alpha)
        rounds = 1
    return [record(kind, title, said, panel, rounds, whole, delta)]


def of_records(
    lab: Lab | None, kind: Kind, played: Played, streams: Streams, delta: float, alpha: float
) -> Panel:
    """A claim per record about a whole update: canary clients are no neighbours, so trainings are."""
    if lab is None:
        raise UserError("no client of this federation can be trained again", hint="state its method and model")
    measured, check = replay_training(lab, kind, played.declared)
    said, rng = played.declared, streams.numpy("panel", kind.value)
    tests = [check, listed(played)]
    shown: list[Shown] = []
    if said.mechanism in ADDITIVE:
        tests += noise_checks(played.residuals, said.mechanism, said.noise_std, rng, alpha / 2)
    if said.mechanism == "gaussian":
        bound = from_residuals(played, measured, delta, alpha / 2)
        shown.append(Shown(observer="single uploads", number=bound))
    return Panel(
        upper=upper(played.releases, delta),
        single=upper([said], delta),
        shown=tuple(shown),
        checks=tuple(tests),
        alpha=alpha,
    )


def _trained(
    kind: Kind,
    protection: Protection,
    streams: Streams,
    ran: Sequence[Release],
    delta: float,
    settings: DPAuditSettings,
) -> DPAudit:
    """Noise that is added in the steps of local training: canary records, in one training."""
    private, whole = protection.training(), whole_run(ran, delta)
    if private is None or whole.one is None:
        reason = "No training of this run added noise."
        return unaudited(kind, protection.title, ran, delta, reason)
    from fedaudit.audit.canaries import records

    alpha, canaries = 1 - settings.confidence, settings.canaries
    panel = records.audit(
        private, whole.one, Streams(streams.key("records")), delta, canaries=canaries, alpha=alpha
    )
    found = record(kind, protection.title, whole.one, panel, 1, whole, delta)
    return found.model_copy(update={"id": f"{found.id}-training"})
