"""The noise of a run, from plays of the run itself.

Noise that ships is taken where it is made: what a release point returned, less what it was given. A plugin may
make noise anywhere: clients send nothing new, and what leaves them, less what they had received, is its noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.neighbours import SAME
from fedaudit.audit.noise_audit.noise_samples import NoiseSample
from fedaudit.audit.noise_audit.play import Limits, play
from fedaudit.audit.noise_audit.probes import CALCULATED, NOTHING, Messages, find_clips
from fedaudit.audit.noise_audit.world import Listener, copy_payload
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.tap import AddNoise, Message, Payload
from fedaudit.fl.wire.protection import Protection

OTHER_SEED = 0x5EED  # added to the run's own


@dataclass
class NoiseListener(Listener):
    """Keeps the noise of a play in which `probe` lets clients send nothing."""

    samples: list[NoiseSample] = field(default_factory=list)
    _sent: Message = field(default_factory=dict)  # by the client whose message is on its way
    _model: Payload = field(default_factory=dict)  # the latest broadcast

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        before = copy_payload(clean)  # whoever adds noise may do so in place
        noised = super().add_noise(line, clean, add)
        self._tapped.add((line.round, line.sender, line.source))
        self._keep(line, before, noised)
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
        carried = super().carry(round, channel, sender, seen_by, message)
        if channel == Channel.DOWNLINK:
            self._model = message.get(Kind.GLOBAL_MODEL, self._model)
        if channel == Channel.UPLINK:
            for kind, payload in carried.items():
                line = self._find_credited(round, kind, sender)
                if line is not None and kind in self._sent:
                    self._keep(line, self._sent[kind], payload)
        return carried

    def is_noise_alone(self, line: Release, protections: Sequence[Protection]) -> bool:
        """Whether no other protection changed what a plugin had noised: that would be no noise."""
        acting = [p for p in protections if line.kind in (getattr(p.config, "kinds", ()) or p.kinds)]
        return len(acting) < 2 or (line.round, line.sender, line.source) in self._tapped

    def _keep(self, line: Release, clean: Payload, noised: Payload) -> None:
        for name, value in clean.items():
            after = noised.get(name)
            is_noised = value.is_floating_point() or line.mechanism == "discrete_laplace"
            if after is None or not is_noised or after.shape != value.shape:
                continue
            before = value.detach().double().flatten().cpu().numpy()
            values = after.detach().double().flatten().cpu().numpy() - before
            self.samples.append(NoiseSample(line, name, values, before))


def draw_noise(
    case: SimulatedCase, lines: Sequence[Release], limits: Limits, seed: int | None = None
) -> list[NoiseSample]:
    """The noise of one play in which everybody takes part, under another master seed where one is given.

    `lines` are what the run entered in its ledger. Raises whatever the federation's own code raises.
    """
    if seed is not None:
        other = SimulatedCase(case.config.model_copy(update={"seed": seed}))
        # the same first model: noise that follows from what everybody has is equal then
        other.__dict__.update(data=case.data, population=case.population, initial=case.initial)
        case = other
    central = any(r.sender.endswith("/*") for r in lines)
    everybody = range(case.clients)
    still = Messages(find_clips(lines, central), {}, NOTHING, cohorts=lambda *_: everybody)
    listener = NoiseListener("server", still)
    play(case, listener, SAME, limits)
    return [s for s in listener.samples if listener.is_noise_alone(s.line, case.protections)]
