"""Relayed generator: the next client of a relay queries the generator it was handed about its predecessor.

Chen, Yu, Zhang, Fritz. GAN-Leaks. CCS 2020. arXiv:1909.03935, sec. 4.2 and 4.5, as in
attacks/generators/generator_distance.py. GANDALF's relays (sec. 3.2) hand the weights of one client to one
other, who knows where they come from: members are the images of that one client, not those of its
group. A generator holds most of the client that trained it last.

Claim: as in attacks/generators/_membership.py; `queried` holds the images made.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.generators._handed import list_relays, newest
from fedaudit.attacks.generators.generator_distance import GeneratorDistance
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position, ThreatModel


class RelayedGenerator(GeneratorDistance):
    card = replace(
        GeneratorDistance.card,
        title="Membership of the client before, from a relayed generator",
        threat=ThreatModel(position=Position.NEXT_CLIENT, knows=GeneratorDistance.card.threat.knows),
        also_reads=(),
        aids=(),
        learns="whether a given image was among those of the client that handed the generator on",
        remedy="hand generators on through a server that averages several, or clip and noise what is "
        "handed on with a stated epsilon (noise: {mode: accounted})",
        effort=Effort(seconds=20, grows=("pixels",)),
    )

    def select_targets(self, view: Sequence[Artifact]) -> list[tuple[Artifact, list[int]]]:
        last = sorted(newest(list_relays(view, Kind.GAN_G)), key=lambda a: -a.round)
        return [(a, [a.sender.index]) for a in last if a.sender.index is not None]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not self.select_targets(view):
            return "no client handed a generator to another in the recorded rounds"
        return super().not_applicable(view, knowledge)
