"""Uploaded critic: the server queries a client's own critic whether it knows an image.

Hayes, Melis, Danezis, De Cristofaro. LOGAN. PoPETs 2019. arXiv:1705.07663, sec. 4.1 (white box), as in
attacks/generators/critic_score.py. Where critics are trained by federated averaging (FedDPGAN), no client
reads another's, and the server reads everybody's before they are averaged.

Claim: as in attacks/generators/critic_score.py.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.generators._handed import list_uploads
from fedaudit.attacks.generators.critic_score import CriticScore
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position


class UploadedCritic(CriticScore):
    card = replace(
        CriticScore.card,
        title="Membership from an uploaded critic (LOGAN)",
        threat=replace(CriticScore.card.threat, position=Position.SERVER),
        remedy="aggregate critics securely, so that the server reads their average alone, or clip and noise "
        "them with a stated epsilon (noise: {mode: accounted})",
    )

    def select_critics(self, view: Sequence[Artifact]) -> list[Artifact]:
        return list_uploads(view, Kind.GAN_D)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not self.select_critics(view):
            return "no client sent a critic to the server in the recorded rounds"
        return super().not_applicable(view, knowledge)
