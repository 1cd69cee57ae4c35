"""Findings of the sample result: every outcome, and texts meant to break a renderer."""

import math

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.fl.threats.threat import Conduct, Harm, Position, ThreatModel
from fedaudit.reports.result import Finding, Outcome, Severity

HOSTILE = "#strong[Leak] *bold* _x_ $x^2$ <script>alert(1)</script> \\ @ref `raw` {{ 7*7 }} [link](x)"
FOREIGN = "naïve Größe, ε ≤ 1, 漢字 and 😀"
CLASSES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
KNOWN = frozenset({"architecture", "auxiliary_data"})
SERVER = ThreatModel(position=Position.SERVER, knows=KNOWN)
PUBLIC = ThreatModel(position=Position.PUBLIC, knows=frozenset({"architecture"}))
MALICIOUS = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS)


def findings() -> list[Finding]:
    curve = [
        Evidence(
            measure="named",
            value=v,
            unit="fraction",
            trials=t,
            interval=(max(0.0, v - 0.06), min(1.0, v + 0.06)),
            looks=5,
            condition={"n": n},
            baselines=(
                Baseline(name="class mean", value=0.102, interval=(0.081, 0.126)),
                Baseline(name="wrong prototype, same class", value=0.096),
            ),
        )
        for n, v, t in ((1, 0.784, 250), (2, 0.641, 250), (5, 0.402, 240), (10, 0.211, 220))
    ]
    return [
        Finding(
            id="upcnn",
            title="The server can rebuild training images from prototypes of few examples",
            source="attack",
            method="Up-convolutional decoder (UpCNN)",
            reference="Dosovitskiy and Brox, CVPR 2016",
            outcome=Outcome.RAN,
            severity=Severity.CRITICAL,
            summary="A decoder trained on public digits turned each prototype back into an image. "
            "With *one* example behind a prototype, 78.4 % of the reconstructions were closest to "
            "the true image among ten candidates of the class; the class mean reached 10.2 %.",
            reason="Reconstruction: 860 of 1,400 people tested were hit, at least 760 because their data "
            "were in; 1 % are tolerable, 14.",
            harm=Harm.RECONSTRUCTION,
            at_least=760,
            people=1400,
            threat=SERVER,
            evidence=[
                *curve,
                Evidence(
                    measure="psnr",
                    value=math.inf,
                    unit="dB",
                    trials=12,
                    interval=None,
                    control="positive",
                    note="the planted canary came back exactly, hence an infinite PSNR.",
                ),
                Evidence(
                    measure="named",
                    value=0.097,
                    unit="fraction",
                    trials=250,
                    interval=(0.064, 0.140),
                    control="negative",
                    baselines=(Baseline(name="chance", value=0.1),),
                ),
            ],
            does_not_show="That prototypes of many examples are harmless: a decoder trained on "
            "data closer to the clients' own may do better than this one.",
            remedy="Withhold prototypes of fewer than 20 examples (`min_examples: 20`), or add "
            "noise calibrated to the clipping norm (`dp_gaussian`) and account for it.",
            seconds=412.3,
        ),
        Finding(
            id="dp-upper",
            title="No differential-privacy bound holds towards the server",
            source="accountant",
            method="PLD accountant",
            outcome=Outcome.RAN,
            severity=Severity.HIGH,
            summary="`proto_counts` is released without noise, so no finite epsilon exists.",
            reason="A kind that tells clients apart is released without noise.",
            threat=SERVER,
            remedy="Drop the counts, or add discrete noise to them.",
        ),
        Finding(
            id="lint-L3",
            title=HOSTILE,
            source="lint",
            outcome=Outcome.RAN,
            severity=Severity.MEDIUM,
            summary=f"Odd characters survive every format: {FOREIGN}. Path "
            + "artifacts/"
            + "very_long_name_" * 6
            + "/r00003.safetensors.",
            reason="Noise is calibrated to a norm that nothing is clipped to.",
        ),
        Finding(
            id="lira",
            title="Likelihood-ratio attack: nobody is known to be hit beyond luck",
            source="attack",
            method="Likelihood-ratio attack (LiRA)",
            reference="Carlini et al., IEEE S&P 2022, arXiv:2112.03570",
            outcome=Outcome.RAN,
            severity=Severity.NONE,
            summary="With 16 shadow models the attack did not find the planted, over-fitted model "
            "(TPR 1.3 % at 1 % FPR), so its silence about the audited one says nothing.",
            reason="Membership: 21 of 1,400 people tested were hit, which luck alone may explain; 5 % "
            "are tolerable, 70.",
            harm=Harm.MEMBERSHIP,
            people=1400,
            threat=PUBLIC,
            evidence=[
                Evidence(
                    measure="tpr_at_fpr_0.01",
                    value=0.012,
                    unit="fraction",
                    trials=900,
                    interval=(0.0061, 0.0215),
                    baselines=(Baseline(name="chance", value=0.01),),
                ),
                Evidence(
                    measure="tpr_at_fpr_0.01",
                    value=0.013,
                    unit="fraction",
                    trials=900,
                    interval=(0.0067, 0.0227),
                    control="positive",
                ),
            ],
            does_not_show="Whether members can be told from non-members.",
            remedy="Run again with 64 shadow models.",
            seconds=3725,
        ),
        Finding(
            id="backdoor",
            title="A single malicious client planted no backdoor",
            source="robustness",
            method="Prototype replacement",
            outcome=Outcome.RAN,
            severity=Severity.NONE,
            summary="The attack success rate was 2.1 %, inside the interval of the honest run.",
            threat=MALICIOUS,
            evidence=[
                Evidence(measure="asr", value=0.021, unit="fraction", trials=480, interval=(0.01, 0.038)),
                Evidence(
                    measure="accuracy",
                    value=0.929,
                    unit="fraction",
                    trials=360,
                    interval=(0.898, 0.953),
                    higher_is_worse=False,
                    confidence=0.9,
                ),
            ],
            does_not_show="What several colluding clients could do.",
        ),
        Finding(
            id="property",
            title="Property inference failed to run",
            source="attack",
            method="Property inference",
            outcome=Outcome.FAILED,
            severity=Severity.NONE,
            summary="ValueError: auxiliary data holds one class only. A failure improves no score.",
        ),
        *(
            Finding(
                id=name.lower(),
                title=name,
                source="attack",
                method=name,
                outcome=Outcome.NOT_APPLICABLE,
                severity=Severity.NONE,
                summary=why,
            )
            for name, why in (
                ("Label from gradient (iDLG)", "FedProto sends no gradient and no model delta."),
                ("Model inversion", "No model weights leave a client."),
            )
        ),
    ]
