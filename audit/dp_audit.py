"""Empirical audits of a run's noise: what the ledger claims, against what canaries and replays show.

For every kind that the run's protections noise on the wire, the auditor's own clients send canaries
through the very same protection objects and streams (audit/empirical/game.py), and every audit that
this allows is taken (audit/empirical/panel.py). The claim is the ledger's: a lower bound above its
upper bound, or noise that is not what it says, refutes it. Noise inside local training does not pass
the wire as noise: there the canaries are records, in the run's own private training
(audit/empirical/records.py).
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

import numpy as np

from audit.accountants.auto import Auto
from audit.budget import rounded_up, towards
from audit.config import DPAuditSettings
from audit.dp_audit_recorded import checks, residuals
from audit.dp_audit_training import replay_training
from audit.empirical.carrier import COUNTS, Carrier
from audit.empirical.columns import Credible, Lower, Number
from audit.empirical.game import Played, play
from audit.empirical.neighbours import replay
from audit.empirical.panel import ADDITIVE, Panel, Shown, from_residuals, judge, listed, upper
from audit.empirical.residuals import checks as noise_checks
from audit.terms import terms
from audit.world import World
from fl.artifact import Artifact, Kind
from fl.ledger import Release
from fl.protection import Protection
from fl.streams import Streams
from reports.result import DPAudit, DPCheck, DPNumber

GAME = 0.8  # share of the failure rate that the game gets; the record gets the rest


def dp_audits(
    world: World,
    releases: Sequence[Release],
    settings: DPAuditSettings,
    recorded: Sequence[Artifact] = (),
) -> list[DPAudit]:
    """One audit for each kind that a protection of this run acts on; none where none does.

    `recorded` are uploads and the broadcasts of their rounds, whose own noise is tested too.
    """
    if settings.canaries == 0:
        return []
    streams = Streams(world.streams.key("dp_audit"))
    delta, found = world.config.delta, []
    for kind in _sent(world):
        acting = [p for p in world.protections if kind in acts_on(p)]
        training = [p for p in acting if p.training() is not None]
        wired = [p for p in world.protections if p.training() is None]
        ran = [r for r in releases if r.kind == kind.value and r.noise_multiplier]
        sources = {type(p).__module__.rpartition(".")[2] for p in training}
        if training:
            stepped = [r for r in ran if r.source in sources]
            found.append(_trained(kind, training[0], streams, stepped, delta, settings))
        if any(p in wired for p in acting):
            title = " and ".join(p.title for p in acting if p in wired)
            sent = [r for r in ran if r.source not in sources]
            found += _wired(world, kind, title, wired, streams, sent, settings, recorded)
    covered = {a.kind for a in found}
    noised = [r for r in releases if r.noise_multiplier and r.kind not in covered]
    for name in dict.fromkeys(r.kind for r in noised):
        own = [r for r in noised if r.kind == name]
        reason = "No protection of the wire adds this noise; canaries pass no others."
        found.append(_unaudited(name, own[0].source or "the method", own, delta, reason))
    return found


def _sent(world: World) -> list[Kind]:
    card = world.method.card
    return list(dict.fromkeys((*card.uplink, *card.relay)))


def acts_on(protection: Protection) -> tuple[Kind, ...]:
    """The kinds a protection is set to change."""
    return tuple(getattr(protection.config, "kinds", ()) or protection.kinds)


def _wired(
    world: World, kind: Kind, title: str, protections: Sequence[Protection], streams: Streams,
    ran: Sequence[Release], settings: DPAuditSettings, recorded: Sequence[Artifact],
) -> list[DPAudit]:  # fmt: skip
    delta, alpha = world.config.delta, 1 - settings.confidence
    whole = whole_run(ran, delta)
    rounds = max(1, min(settings.rounds, whole.releases))
    canaries = settings.canaries
    try:
        played = play(kind, protections, streams, canaries=canaries, rounds=rounds)
        if played is None:
            return []  # clipped at most: no noise, no claim
        said = played.declared
        if said.unit == "record" and kind not in COUNTS:
            panel = of_records(world, kind, played, streams, delta, alpha)
            return [_record(kind, title, said, panel, rounds, whole, delta)]
        measured, check = replay(Carrier.of(kind, canaries), protections, streams, said)
        tests = [check]
        if found := residuals(world, recorded, kind) if said.mechanism in ADDITIVE else None:
            rng = streams.numpy("recorded", kind.value)
            tests += checks(found, said, rng, (1 - GAME) * alpha)
        rng = streams.numpy("panel", kind.value)
        panel = replace(judge(played, measured, delta, rng, GAME * alpha, tests), alpha=alpha)
    except Exception as error:
        reason = (
            f"The auditor's canaries do not pass this protection: {type(error).__name__}: {error}."
        )
        return [_unaudited(kind, title, ran, delta, reason)]
    return [_record(kind, title, said, panel, rounds, whole, delta)]


def of_records(
    world: World, kind: Kind, played: Played, streams: Streams, delta: float, alpha: float
) -> Panel:
    """A claim per record about a whole update: canary clients are no neighbours, so trainings are."""
    measured, check = replay_training(world, kind, played.declared)
    said, rng = played.declared, streams.numpy("panel", kind.value)
    tests = [check, listed(played)]
    shown: list[Shown] = []
    if said.mechanism in ADDITIVE:
        tests += noise_checks(played.residuals, said.mechanism, said.noise_std, rng, alpha / 2)
    if said.mechanism == "gaussian":
        bound = from_residuals(played, measured, delta, alpha / 2)
        shown.append(Shown(observer="single uploads", number=bound))
    return Panel(
        upper=upper(played.releases, delta), single=upper([said], delta), shown=tuple(shown),
        checks=tuple(tests), alpha=alpha,
    )  # fmt: skip


def _trained(
    kind: Kind, protection: Protection, streams: Streams, ran: Sequence[Release], delta: float,
    settings: DPAuditSettings,
) -> DPAudit:  # fmt: skip
    """Noise that is added in the steps of local training: canary records, in one training."""
    private, whole = protection.training(), whole_run(ran, delta)
    if private is None or whole.one is None:
        reason = "No training of this run added noise."
        return _unaudited(kind, protection.title, ran, delta, reason)
    from audit.empirical import records

    alpha, canaries = 1 - settings.confidence, settings.canaries
    panel = records.audit(
        private, whole.one, Streams(streams.key("records")), delta, canaries=canaries, alpha=alpha
    )
    found = _record(kind, protection.title, whole.one, panel, 1, whole, delta)
    return found.model_copy(update={"id": f"{found.id}-training"})


class Whole(NamedTuple):
    """All noised releases of one kind by the sender with the largest loss towards the server."""

    releases: int
    epsilon: float
    one: Release | None  # one of them


def whole_run(ran: Sequence[Release], delta: float) -> Whole:
    """As the accountants see it, sampling credited where the server cannot see it."""
    worst = Whole(0, 0.0, None)
    known: dict[object, float] = {}  # many clients release the same
    for unit in sorted({r.unit for r in ran}):
        for group in towards("server", [r for r in ran if r.unit == unit], unit)[1].values():
            cost = frozenset(terms(group).items())
            if cost not in known:
                known[cost] = Auto().epsilon(group, delta).epsilon
            if worst.one is None or known[cost] > worst.epsilon:
                worst = Whole(sum(r.count for r in group), known[cost], group[0])
    return worst


def _record(
    kind: Kind, title: str, said: Release, panel: Panel, rounds: int, whole: Whole,
    delta: float,
) -> DPAudit:  # fmt: skip
    return DPAudit(
        **_claim(kind, title, said, whole, delta),
        single=rounded_up(panel.single),
        composed=rounded_up(panel.upper),
        rounds=rounds,
        failure_rate=round(panel.alpha, 12),
        refuted=panel.refuted,
        sentence=sentence(panel, _what(said, rounds)),
        numbers=[number(s) for s in panel.shown],
        checks=[
            DPCheck(name=c.name, passed=c.passed, text=c.text, failure_rate=c.failure_rate)
            for c in panel.checks
        ],
    )


def _unaudited(kind: str, title: str, ran: Sequence[Release], delta: float, reason: str) -> DPAudit:
    whole = whole_run(ran, delta)
    return DPAudit(
        **_claim(kind, title, whole.one, whole, delta),
        single=rounded_up(upper([whole.one], delta)) if whole.one else 0.0,
        composed=0.0, rounds=0, failure_rate=0.0, refuted=False,
        sentence=f"Not audited. {reason}", not_audited=reason,
    )  # fmt: skip


def _claim(
    kind: str, title: str, said: Release | None, whole: Whole, delta: float
) -> dict[str, Any]:
    """What the ledger says."""
    return {
        "id": f"dp-audit-{kind}",
        "kind": str(kind),
        "protection": title,
        "mechanism": said.mechanism if said else "none",
        "unit": said.unit if said else "client",
        "adjacency": said.adjacency if said else "add_or_remove_one",
        "delta": delta,
        "multiplier": said.noise_multiplier if said else 0.0,
        "claimed": said.claimed_epsilon if said else None,
        "run_releases": whole.releases,
        "run_composed": rounded_up(whole.epsilon),
    }


def _what(said: Release, rounds: int) -> str:
    if said.count > 1:
        return f"one training of {said.count} steps"
    return "1 release" if rounds == 1 else f"{rounds} releases"


def sentence(panel: Panel, what: str) -> str:
    """What the panel says of what was audited, for people."""
    claim = f"The ledger allows a loss of {rounded_up(panel.upper):g} for {what}."
    parts = [f"{c.name.capitalize()} failed: {c.text}." for c in panel.failed]
    if panel.refuting:
        top = max(panel.refuting, key=lambda s: s.number.epsilon)
        parts.append(
            f"The run as executed loses at least {rounded_down(top.number.epsilon):g} "
            f"({top.number.audit}, {top.observer}; {100 * (1 - panel.alpha):g} % confidence over all "
            f"audits). {claim}"
        )
    if parts:
        return " ".join(parts)
    best = panel.best
    if best is None or best.number.epsilon == 0:
        most = max((_ceiling(b.number) for b in panel.bounds), default=0.0)
        return f"No leakage was demonstrated; these audits could have shown {most:.3g} at most. {claim}"
    return (
        f"Consistent with the ledger, which is no confirmation: at least {rounded_down(best.number.epsilon):g} "
        f"is lost ({best.number.audit}, {best.observer}). {claim}"
    )


def _ceiling(number: Number) -> float:
    return number.ceiling if isinstance(number, Lower) and np.isfinite(number.ceiling) else 0.0


def number(shown: Shown) -> DPNumber:
    """One number in its column."""
    n: Number = shown.number
    if isinstance(n, Lower):
        return DPNumber(
            audit=n.audit, observer=shown.observer, column="bound", epsilon=rounded_down(n.epsilon),
            trials=n.trials, level=n.confidence, ceiling=n.ceiling, assumes=n.assumes, note=n.note,
        )  # fmt: skip
    return DPNumber(
        audit=n.audit, observer=shown.observer, trials=n.trials, epsilon=n.epsilon,
        column="credible" if isinstance(n, Credible) else "estimate",
        level=n.level if isinstance(n, Credible) else None,
        assumes=n.prior if isinstance(n, Credible) else n.model,
    )  # fmt: skip


def rounded_down(epsilon: float, digits: int = 3) -> float:
    """Down to so many significant digits: a lower bound that is rounded up is none."""
    if epsilon == 0 or not np.isfinite(epsilon):
        return epsilon
    exact = Decimal(repr(float(epsilon)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_FLOOR))
