"""The noise that a run draws: where it comes from, and what is tested of it.

Noise is credited where the run's own source drew it. What a protection draws elsewhere, or changes after it was
drawn, is declared, and tested where it leaves: clients send nothing new, and what leaves them, less what they had
received, is noise.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedaudit.audit.accounting.budget import SEES
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.noise_repeats import list_answer_questions
from fedaudit.audit.noise_audit.noise_samples import NoiseSample, build_rows, list_acting
from fedaudit.audit.noise_audit.noise_tests import (
    answer_all,
    bound_below,
    confirm_source,
    record_tests,
    run_tests,
)
from fedaudit.audit.plays.factors import is_of_steps
from fedaudit.audit.plays.run import (
    FAR,
    NOTHING,
    Messages,
    PlayLimits,
    RunPlayer,
    Sent,
    alternate_signs,
    find_clips,
)
from fedaudit.audit.plays.world import CALCULATED, Key, Listener, Probe, copy_payload
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.tap import AddNoise, Message, Payload
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.result import NoiseAuditRecord

SERVER, CLIENT, PUBLIC = SEES  # the observers, by what they read


@dataclass(frozen=True)
class NoiseOrigin:
    """Where noise is made that no tap hears as it leaves."""

    aside: frozenset[str] = frozenset()  # protections that change noise after it was drawn
    trained: frozenset[str] = frozenset()  # kinds that no protection changes: training noises them, or nobody


def find_origin(player: RunPlayer, lines: Sequence[Release]) -> NoiseOrigin:
    """Which protections do more to noised values than to compute with them, and which kinds none changes.

    Two plays in which clients send something else, and noised values are the same: what leaves is the same then,
    but where clean values, or noise by itself, are put to use after noise was drawn.
    """
    central, everybody = any(r.sender.endswith("/*") for r in lines), range(player.case.clients)
    clips = find_clips([r for r in lines if not is_of_steps(r)], central)
    even = Messages(clips, dict.fromkeys(everybody, Sent((FAR,))))
    uneven = Messages(clips, dict.fromkeys(everybody, Sent((0.5, FAR, 0.2), alternate_signs)))
    aside, trained = frozenset[str](), set[str]()
    views = [SERVER, CLIENT] if clips else []
    while views:
        first = player.play(_NoiseListener(views[0], replace(even), aside=aside))
        second = _NoiseListener(views[0], replace(uneven), first, lambda _: float("inf"), aside=aside)
        player.play(second, known=first)
        trained |= second.untouched & {r.kind for r in lines}
        if second.changed <= aside:
            views = views[1:]
        aside |= second.changed
    return NoiseOrigin(aside, frozenset(trained))


@sharing()
def audit_noise(
    case: SimulatedCase, releases: Sequence[Release], delta: float, alpha: float, limits: PlayLimits | None = None
) -> list[NoiseAuditRecord]:
    """Play the run, and once more under another master seed, and test all noise that nobody saw drawn.

    What the run's own source drew, and nobody changed, needs no test. Returns a record for each kind of noised
    values in `releases`. Correct noise is refuted with a chance of at most `alpha`. Raises whatever the
    federation's own code raises.
    """
    noised = [r for r in releases if r.noise_multiplier]
    if not noised:
        return []
    player = RunPlayer(case, limits or PlayLimits())
    origin = find_origin(player, noised)
    plays = [draw_noise(player, noised, origin.aside)]
    is_all_seen = all(s.is_of_source for s in plays[0])
    plays.append([] if is_all_seen else draw_noise(player.reseed(), noised, origin.aside))
    unseen = [[s for s in own if not s.is_of_source] for own in plays]
    ours, other = ([s for s in own if s.line.mechanism in CALCULATED] for own in unseen)
    answers, others = ([s for s in own if s.line.mechanism not in CALCULATED] for own in unseen)
    if trained := origin.trained - {s.line.kind for s in plays[0] if s.is_of_source}:
        ours, other = ([s for s in own if s.line.kind not in trained] for own in (ours, other))
        ours += compare_first_messages(player, noised, trained)
    alpha = alpha / 2 if answers else alpha
    tests = run_tests(ours, other, alpha)
    tests += answer_all([*list_answer_questions(build_rows(answers), build_rows(others))], alpha)
    tests += [confirm_source(kind) for kind in sorted({s.line.kind for s in plays[0] if s.is_of_source})]
    records = record_tests(tests, {s.line.kind for s in [*plays[0], *ours]}, noised, delta)
    heard = [s for s in plays[0] if s.line.mechanism in CALCULATED and s.line.kind not in trained]
    return [r.model_copy(update={"at_least": bound_below(r.kind, heard, noised, delta)}) for r in records]


def draw_noise(
    player: RunPlayer, lines: Sequence[Release], aside: frozenset[str] = frozenset()
) -> list[NoiseSample]:
    """The noise of one play in which everybody takes part.

    `lines` are what the run entered in its ledger. Raises whatever the federation's own code raises.
    """
    central, everybody = any(r.sender.endswith("/*") for r in lines), range(player.case.clients)
    still = Messages(find_clips(lines, central), dict.fromkeys(everybody, NOTHING), lambda _: everybody)
    listener = _NoiseListener("server", still, aside=aside)
    player.play(listener)
    return [s for s in listener.samples if listener.is_noise_alone(s.line, player.case.protections)]


def compare_first_messages(
    player: RunPlayer, lines: Sequence[Release], kinds: Collection[str]
) -> list[NoiseSample]:
    """Half of what first messages differ by under two master seeds, where training adds the noise itself.

    All begin with the same model. Whatever else is drawn can only add to it, so that it is no shorter than noise.
    """
    plays = [p.play(Listener(SERVER, Probe())) for p in (player, player.reseed())]
    samples = []
    for line in (r for r in lines if r.kind in kinds and r.round == 0):
        key = Key(Channel.UPLINK.value, line.round, line.sender, line.kind)
        ours, other = (p.events.get(key) for p in plays)
        if ours is None or other is None or is_of_steps(line):
            continue
        for name, value in ours.payload.items():
            twin = other.payload.get(name)
            if value.is_floating_point() and twin is not None and twin.shape == value.shape:
                apart = (value.double() - twin.double()).flatten().cpu().numpy()
                samples.append(NoiseSample(line, name, apart / 2**0.5))
    return samples


@dataclass
class _NoiseListener(Listener):
    """Keeps the noise of a play in which `probe` lets clients send nothing."""

    samples: list[NoiseSample] = field(default_factory=list)
    _sent: Message = field(default_factory=dict)  # by the client whose message is on its way
    _model: Payload = field(default_factory=dict)  # the latest broadcast
    _seen: dict[str, bool] = field(default_factory=dict)  # kind -> whether all left as they were sent

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        before = copy_payload(clean)  # whoever adds noise may do so in place
        noised = super().add_noise(line, clean, add)
        if (line.round, line.sender, line.source) in self._tapped:
            self._keep(line, before, noised, is_of_source=True)
        return noised

    def send(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        self._sent = super().send(round, sender, message, reference)
        return self._sent

    def average(self, round: int, model: Payload, lines: Sequence[Release]) -> Payload:
        model = super().average(round, model, lines)
        line = next((r for r in lines if r.mechanism in CALCULATED), None)
        if line is not None and (round, line.sender, line.source) not in self._tapped:
            self._keep(line, self._model, model)
        return model

    def carry(
        self, round: int, channel: Channel, sender: Party, seen_by: tuple[str, ...], message: Message
    ) -> Message:
        if channel == Channel.UPLINK:
            for kind in (k for k in message.keys() & self._sent.keys() if not k.counted):
                alike = _are_equal(message[kind], self._sent[kind])
                self._seen[kind] = self._seen.get(kind, True) and alike
        carried = super().carry(round, channel, sender, seen_by, message)
        if channel == Channel.DOWNLINK:
            self._model = message.get(Kind.GLOBAL_MODEL, self._model)
        if channel == Channel.UPLINK:
            for kind, payload in carried.items():
                line = self._find_credit(round, kind, sender)
                if line is not None and is_of_steps(line):
                    continue  # what is left of it in the message, nobody says
                if line is not None and line.mechanism not in CALCULATED:
                    self._keep_answer(self._entered[round, str(kind), str(sender)], payload)
                elif line is not None and kind in self._sent:
                    self._keep(line, self._sent[kind], payload)
        return carried

    @property
    def untouched(self) -> set[str]:
        """Kinds that no protection changed."""
        return {str(kind) for kind, alike in self._seen.items() if alike}

    def is_noise_alone(self, line: Release, protections: Sequence[Protection]) -> bool:
        """Whether no other protection changed what a plugin had noised: that would be no noise."""
        return (
            len(list_acting(protections, line.kind)) < 2 or (line.round, line.sender, line.source) in self._tapped
        )

    def _keep(self, line: Release, clean: Payload, noised: Payload, is_of_source: bool = False) -> None:
        for name, value in clean.items():
            after = noised.get(name)
            is_noised = value.is_floating_point() or line.mechanism == "discrete_laplace"
            if after is None or not is_noised or after.shape != value.shape:
                continue
            before = value.detach().double().flatten().cpu().numpy()
            values = after.detach().double().flatten().cpu().numpy() - before
            self.samples.append(NoiseSample(line, name, values, before, is_of_source))

    def _keep_answer(self, lines: Sequence[Release], sent: Payload) -> None:
        """What left, as it is: one answer, which costs what all lines of its kind and sender do together."""
        noised = [r for r in lines if r.noise_multiplier and r.count]
        if any(r.mechanism in CALCULATED or r.shared for r in noised):
            return
        cost = sum(r.count / r.noise_multiplier for r in noised)
        line = replace(noised[0], noise_std=1 / cost, sensitivity=1.0, count=1)
        for name, value in sent.items():
            self.samples.append(NoiseSample(line, name, value.detach().double().flatten().cpu().numpy()))


def _are_equal(first: Payload, second: Payload) -> bool:
    return first.keys() == second.keys() and all(torch.equal(v, second[name]) for name, v in first.items())
