"""A realistic audit result with every block type, every outcome, and texts meant to break a renderer."""

import base64
import io
import math

import numpy as np
from PIL import Image

from reports.result import (
    AuditResult,
    Baseline,
    Budget,
    Coverage,
    Evidence,
    Exposure,
    Figure,
    Finding,
    Gallery,
    Headline,
    History,
    Outcome,
    Policy,
    PolicyRule,
    Reproduction,
    Scope,
    Series,
    Severity,
    Threat,
)

HOSTILE = (
    "#strong[Leak] *bold* _x_ $x^2$ <script>alert(1)</script> \\ @ref `raw` {{ 7*7 }} [link](x)"
)
FOREIGN = "naïve Größe, ε ≤ 1, 漢字 and 😀"
CLASSES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SERVER = Threat(
    position="server",
    conduct="honest_but_curious",
    knows=["architecture", "auxiliary_data"],
)
PUBLIC = Threat(position="public", conduct="honest_but_curious", knows=["architecture"])
MALICIOUS = Threat(position="client", conduct="malicious", knows=[])


def result() -> AuditResult:
    """The sample: federated prototypes on digits, one critical finding, one of each other outcome."""
    return AuditResult(
        title="Privacy audit of FedProto on handwritten digits",
        created="2026-03-05T14:07:00Z",
        headline=Headline(
            severity=Severity.CRITICAL,
            outcome=Outcome.DEMONSTRATED,
            sentence="A server that is merely curious recovers recognisable training images from "
            "the prototypes of clients that hold five or fewer examples of a class: 78.4 % are "
            "matched to the right person's image, against 10.2 % for a blind adversary.",
            coverage=Coverage(ran=6, applicable=7, not_applicable=2, inconclusive=1, failed=1),
        ),
        scope=_scope(),
        exposures=_exposures(),
        findings=_findings(),
        figures=_figures(),
        galleries=_galleries(),
        budgets=_budgets(),
        history=_history(),
        summary_metrics={
            "final_accuracy": 0.9312,
            "worst_client_accuracy": 0.7105,
            "drift": 0.0213,
        },
        limits=[
            "Attacks that combine several rounds were not run; each saw one round at a time.",
            "One seed. Another seed moves the numbers by an amount this audit did not measure.",
            "Side channels (timing, message sizes, the clients' own logs) are outside the wire.",
        ],
        policy=_policy(),
        reproduction=_reproduction(),
    )


def png(seed: int, side: int = 16, blur: int = 0) -> str:
    """A small grey picture, PNG in base64: a bright disc whose place depends on the seed."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:side, :side] / side
    cx, cy = rng.uniform(0.3, 0.7, 2)
    image = np.exp(-((((xx - cx) ** 2 + (yy - cy) ** 2) ** 0.5 - 0.22) ** 2) / (0.004 * (1 + blur)))
    image = np.clip(image + 0.05 * blur * rng.standard_normal((side, side)), 0, 1)
    out = io.BytesIO()
    Image.fromarray((255 * image).astype(np.uint8), mode="L").save(out, format="PNG")
    return base64.b64encode(out.getvalue()).decode()


def _scope() -> Scope:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(140, rng.dirichlet([0.5] * 10), size=10).tolist()
    return Scope(
        method="FedProto",
        method_source="Tan et al., AAAI 2022, arXiv:2105.00243, Alg. 1",
        method_text="FedProto: clients send the mean feature of each class they hold, a prototype, "
        "and receive the average prototypes of all clients. Model weights never leave a client.",
        dataset="digits (8 x 8, scikit-learn)",
        dataset_text="1,797 handwritten digits of 43 writers.",
        clients=10,
        clients_text="Label skew by a Dirichlet draw with alpha = 0.5; every client answers in "
        "80 % of the rounds.",
        rounds=50,
        model="small CNN",
        parameters=29_322,
        training={
            "Optimiser": "SGD, learning rate 0.05, momentum 0.9",
            "Local work": "2 local epochs, batch size 16",
        },
        protections=["Prototypes of classes with fewer than 3 examples are withheld."],
        threats=[SERVER, PUBLIC, MALICIOUS],
        class_names=CLASSES,
        counts=counts,
    )


def _exposures() -> list[Exposure]:
    def seen(party: str, kind: str, text: str, single: bool, senders: int, size: int) -> Exposure:
        return Exposure(
            party=party,
            kind=kind,
            description=text,
            single_client=single,
            senders=senders,
            messages=senders * 40,
            bytes=size,
            rounds=50,
            first_round=0,
            last_round=49,
        )

    return [
        seen(
            "server", "local_prototypes", "class-mean features of one client", True, 10, 20_480_000
        ),
        seen(
            "server", "proto_counts", "how many examples each prototype averages", True, 10, 32_000
        ),
        seen("every client", "global_prototypes", "average prototypes", False, 1, 2_048_000),
        seen("public", "global_prototypes", "the final average prototypes", False, 1, 5_120),
    ]


def _findings() -> list[Finding]:
    curve = [
        Evidence(
            measure="rank1",
            value=v,
            unit="fraction",
            trials=t,
            interval=(max(0.0, v - 0.06), min(1.0, v + 0.06)),
            looks=5,
            condition={"n": n},
            baselines=[
                Baseline(name="class mean", value=0.102, interval=(0.081, 0.126)),
                Baseline(name="wrong prototype, same class", value=0.096),
            ],
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
            outcome=Outcome.DEMONSTRATED,
            severity=Severity.CRITICAL,
            summary="A decoder trained on public digits turned each prototype back into an image. "
            "With *one* example behind a prototype, 78.4 % of the reconstructions were closest to "
            "the true image among ten candidates of the class; the class mean reached 10.2 %.",
            reason="rule R1: rank-1 match at least 50 % and above every blind baseline",
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
                    measure="rank1",
                    value=0.097,
                    unit="fraction",
                    trials=250,
                    interval=(0.064, 0.140),
                    control="negative",
                    baselines=[Baseline(name="chance", value=0.1)],
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
            outcome=Outcome.DEMONSTRATED,
            severity=Severity.HIGH,
            summary="`proto_counts` is released without noise, so no finite epsilon exists.",
            reason="rule R4: a kind that tells clients apart is released without noise",
            threat=SERVER,
            remedy="Drop the counts, or add discrete noise to them.",
        ),
        Finding(
            id="lint-L3",
            title=HOSTILE,
            source="lint",
            outcome=Outcome.DEMONSTRATED,
            severity=Severity.MEDIUM,
            summary=f"Odd characters survive every format: {FOREIGN}. Path "
            + "artifacts/"
            + "very_long_name_" * 6
            + "/r00003.safetensors.",
            reason="rule R7: noise is calibrated to a norm that nothing is clipped to",
        ),
        Finding(
            id="lira",
            title="Membership: the positive control was missed",
            source="attack",
            method="Likelihood-ratio attack (LiRA)",
            reference="Carlini et al., IEEE S&P 2022, arXiv:2112.03570",
            outcome=Outcome.INCONCLUSIVE,
            severity=Severity.NONE,
            summary="With 16 shadow models the attack did not find the planted, over-fitted model "
            "(TPR 1.3 % at 1 % FPR), so its silence about the audited one says nothing.",
            threat=PUBLIC,
            evidence=[
                Evidence(
                    measure="tpr_at_fpr_0.01",
                    value=0.012,
                    unit="fraction",
                    trials=900,
                    interval=(0.0061, 0.0215),
                    baselines=[Baseline(name="chance", value=0.01)],
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
            outcome=Outcome.NOT_DEMONSTRATED,
            severity=Severity.NONE,
            summary="The attack success rate was 2.1 %, inside the interval of the honest run.",
            threat=MALICIOUS,
            evidence=[
                Evidence(
                    measure="asr", value=0.021, unit="fraction", trials=480, interval=(0.01, 0.038)
                ),
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


def _figures() -> list[Figure]:
    fpr = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
    n = [1.0, 2.0, 5.0, 10.0]
    rank = [0.784, 0.641, 0.402, 0.211]
    return [
        Figure(
            id="upcnn-dose",
            finding="upcnn",
            title="Fewer examples, better reconstruction",
            caption="Rank-1 match by the number of examples behind a prototype, with 95 % "
            "intervals. The curve meets the blind baseline above about ten examples.",
            alt="Line chart: rank-1 match falls from 78 % at one example to 21 % at ten; the "
            "blind class mean stays at 10 %.",
            x_label="examples behind the prototype",
            y_label="rank-1 match",
            x_log=True,
            series=[
                Series(
                    name="UpCNN",
                    x=n,
                    y=rank,
                    low=[r - 0.06 for r in rank],
                    high=[r + 0.06 for r in rank],
                ),
                Series(name="UpCNN, shifted auxiliary data", x=n, y=[0.6 * r for r in rank]),
                Series(name="class mean", x=[1.0], y=[0.102], blind=True),
                Series(name="_hidden $name", x=n, y=[0.09, 0.1, 0.095, 0.1], blind=True),
            ],
        ),
        Figure(
            id="lira-roc",
            finding="lira",
            kind="roc",
            title="Membership",
            caption="True against false positives, both axes logarithmic.",
            alt="ROC curve on log axes; the attack runs along the diagonal of chance.",
            x_label="false-positive rate",
            y_label="true-positive rate",
            series=[
                Series(name="LiRA", x=fpr, y=[0.0012, 0.0035, 0.012, 0.034, 0.11, 0.32, 1.0]),
                Series(name="chance", x=fpr, y=fpr, blind=True),
            ],
        ),
        Figure(
            id="budget-rounds",
            kind="bar",
            title="Budget spent by round",
            caption="Upper bound towards the public after so many rounds.",
            alt="Bar chart: epsilon grows from 0.9 after 10 rounds to 2.4 after 50.",
            x_label="rounds",
            y_label="epsilon at most",
            series=[
                Series(
                    name="PLD",
                    x=[10, 30, 50],
                    y=[0.9, 1.8, 2.4],
                    low=[0.8, 1.7, 2.3],
                    high=[1.0, 1.9, 2.5],
                ),
                Series(name="without sampling", x=[10, 30, 50], y=[1.4, 2.9, 3.8], blind=True),
            ],
        ),
        Figure(
            id="training-drift",
            title="Client drift",
            caption="Distance of local from global prototypes; it settles after round 20.",
            alt="Line chart: drift falls from 1.0 to 0.02.",
            x_label="round",
            y_label="mean squared distance",
            y_log=True,
            series=[Series(name="drift", x=[0, 10, 20, 30, 40], y=[1.0, 0.2, 0.05, 0.03, 0.02])],
        ),
    ]


def _galleries() -> list[Gallery]:
    return [
        Gallery(
            finding="upcnn",
            title="What the server sees",
            caption="Top row: training images. Middle: what the attack rebuilt from one prototype "
            "each. Bottom: the best a blind adversary can do. Compare the rows by column.",
            alt="Twelve training images above their reconstructions, which show the same disc in "
            "the same place, above a class mean that does not.",
            columns=[f"client {i}" for i in range(12)],
            rows={
                "original": [png(i) for i in range(12)],
                "reconstruction": [png(i, blur=3) for i in range(12)],
                "class mean (blind)": [png(99, blur=1)] * 12,
            },
        )
    ]


def _budgets() -> list[Budget]:
    return [
        Budget(
            observer="server",
            unit="client",
            adjacency="add_or_remove_one",
            delta=1e-5,
            epsilon_upper=math.inf,
            accountant="PLD",
            releases=400,
            assumes="the server follows the protocol",
            spoiled_by=["proto_counts"],
        ),
        Budget(
            observer="public",
            unit="record",
            adjacency="add_or_remove_one",
            delta=1e-5,
            epsilon_upper=2.4137,
            accountant="PLD",
            releases=50,
            assumes="Poisson sampling with rate 0.8 and noise drawn afresh each round",
            note="Without the sampling assumption the bound is 3.8.",
        ),
    ]


def _history() -> list[History]:
    return [
        History(
            round=r,
            accuracy=0.93 - 0.8 * math.exp(-r / 8),
            class_accuracy=[0.9 + 0.007 * c for c in range(10)] if r == 49 else None,
            asked=10,
            delivered=8 + r % 3,
            rejected=r % 2,
            bytes_up=51_200 * 8,
            bytes_down=51_200,
            values={"train_loss": 2.3 * math.exp(-r / 12)},
        )
        for r in [*range(0, 50, 2), 49]
    ]


def _policy() -> Policy:
    rules = [
        ("R1", Severity.CRITICAL, "rank-1 match >= 0.5 and above every blind baseline",
         "More often than not, the adversary holds the person's own image."),
        ("R4", Severity.HIGH, "a kind that tells clients apart is released without noise",
         "Nothing bounds what later attacks learn from it."),
        ("R7", Severity.MEDIUM, "noise is calibrated to a norm that nothing is clipped to",
         "The stated epsilon does not hold, although no attack has used that yet."),
    ]  # fmt: skip
    return Policy(
        name="default",
        version="2026-01",
        rules=[PolicyRule(id=i, severity=s, when=w, reason=r) for i, s, w, r in rules],
    )


def _reproduction() -> Reproduction:
    names = ["config.yaml", "ledger.jsonl", "metrics.jsonl", "artifacts/manifest.jsonl"]
    return Reproduction(
        command="fedaudit run configs/fedproto-digits.yaml --seed 7 --out runs/fedproto-digits",
        config="seed: 7\n"
        "method: {name: fedproto, lambda: 1.0}\n"
        "federation:\n  clients: 10\n  rounds: 50\n"
        "  partition: {name: dirichlet, alpha: 0.5}\n"
        f"attacks:\n  - {{name: upcnn, auxiliary: public}}\n  - {{name: lira}}\n# {HOSTILE}\n"
        + "# "
        + "long-" * 40
        + "\n",
        seed=7,
        versions={"fedaudit": "0.1.0", "torch": "2.13.0", "numpy": "2.4.0"},
        hardware={"processor": "2 cores, x86_64", "memory": "8 GB", "accelerator": "none"},
        hashes={n: f"{i:x}" * 64 for i, n in enumerate(names, start=10)},
        started="2026-03-05T13:01:12Z",
        seconds={"simulate": 95.2, "attack": 4137.0, "report": 0.84},
    )
