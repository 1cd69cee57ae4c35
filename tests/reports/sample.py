"""A realistic audit result with every block type, every outcome, and texts meant to break a renderer."""

import math
from typing import Any

import numpy as np

from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.decision import Answer, DeploymentDecision, KeyNumber, Odds, Risk, Word
from fedaudit.reports.exposed import PartyExposure
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import (
    AuditResult,
    AuditScope,
    Headline,
    History,
    Outcome,
    PolicyRecord,
    PolicyRule,
    ReproductionRecord,
    Severity,
)
from tests.reports.sample_bounds import CLEAR, make_bound
from tests.reports.sample_figures import figures, galleries
from tests.reports.sample_findings import CLASSES, HOSTILE, MALICIOUS, PUBLIC, SERVER, findings


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
            "matched to the right person's image, against 10.2 % for a baseline.",
        ),
        decision=_decision(),
        scope=_scope(),
        exposures=_exposures(),
        questions=questions(),
        findings=findings(),
        figures=figures(),
        galleries=galleries(),
        bounds=_bounds(),
        history=_history(),
        summary_metrics={"final_accuracy": 0.9312, "worst_client_accuracy": 0.7105, "drift": 0.0213},
        limits=[
            "Attacks that combine several rounds were not run; each saw one round at a time.",
            "One seed. Another seed moves the numbers by an amount this audit did not measure.",
            "Side channels (timing, message sizes, the clients' own logs) are outside the wire.",
        ],
        policy=_policy(),
        reproduction=_reproduction(),
    )


def _decision() -> DeploymentDecision:
    bar = Odds(group=1, value=0.784, interval=(0.724, 0.844), guess=0.102, graded=True)
    return DeploymentDecision(
        word=Word.NOT_READY,
        bar="high",
        failing=["upcnn", "dp-upper"],
        rule="severe-finding",
        sentence="1 critical demonstrated; 2 of 7 questions answered.",
        numbers=[
            KeyNumber(shown="12 of 1,400", text="examples are expected to be told"),
            KeyNumber(shown="78.4 %", text="is how often it works at best"),
            KeyNumber(shown="1 of 1", text=f"of the harms below need nobody but the server {HOSTILE}"),
        ],
        risks=[
            Risk(
                finding="upcnn",
                also=["lira"],
                what="Single images are redrawn",
                who="the server",
                whom="12 of 1,400 examples",
                odds=[bar, bar.model_copy(update={"group": 20.0, "value": 0.05, "graded": False})],
                severity="critical",
            ),
            Risk(
                finding="dp",
                what="No mathematical limit",
                who="",
                whom="everybody",
                note="not a matter of chance",
                severity="high",
            ),
        ],
        answers=[Answer(question="Do the attacks work at all?", answer="3 of 3.", where="Evidence by finding")],
    )


def _scope() -> AuditScope:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(140, rng.dirichlet([0.5] * 10), size=10).tolist()
    return AuditScope(
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


def make_question(aim: str, observer: str, kind: str, state: State, why: str, **more: Any) -> Question:
    fields = {"rounds": "all 50 rounds", "required": True, "tolerable": 0.05} | more
    return Question(
        id=f"{aim}.{observer}.{kind}", aim=Aim(aim), observer=observer, kind=kind, state=state, why=why, **fields
    )


def questions() -> list[Question]:
    """One in each state."""
    return [
        make_question(
            *(
                "inversion",
                "server",
                "local_prototypes",
                State.DEMONSTRATED,
                "upcnn succeeded on recorded messages",
            ),
            findings=["upcnn", "lira"],
        ),
        make_question(
            *("membership", "server", "local_prototypes", State.INCONCLUSIVE, "lira failed: out of memory"),
            findings=["lira"],
        ),
        make_question(
            *("attribute", "server", "proto_counts", State.BOUNDED, "at most 12 of 1,400 could be exposed"),
            at_most=12,
            people=1400,
        ),
        make_question("membership", "client", "global_prototypes", State.NOT_ASKED, "left out: ridge"),
        make_question(
            "attribute", "client", "global_prototypes", State.NOT_ASKED, "left out: ridge", accepted="A. Person"
        ),
        make_question("membership", "public", "global_prototypes", State.NO_ATTACK, "fedaudit has none"),
        make_question("linkage", "server", "messages", State.NO_ATTACK, "fedaudit has none", required=False),
    ]


def _exposures() -> list[PartyExposure]:
    def seen(party: str, kind: str, text: str, single: bool, senders: int, size: int) -> PartyExposure:
        return PartyExposure(
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
        seen("server", "local_prototypes", "class-mean features of one client", True, 10, 20_480_000),
        seen("server", "proto_counts", "how many examples each prototype averages", True, 10, 32_000),
        seen("every client", "global_prototypes", "average prototypes", False, 1, 2_048_000),
        seen("public", "global_prototypes", "the final average prototypes", False, 1, 5_120),
    ]


def _bounds() -> list[PrivacyBound]:
    return [
        make_bound(Status.NONE, math.inf, CLEAR, releases=400),
        make_bound(
            Status.VERIFIED,
            2.4137,
            observer="public",
            unit="record",
            releases=50,
            tests=12,
            pairs=36,
            assumes="Poisson sampling with rate 0.8 and noise drawn afresh each round",
            note="At 1 % false positives no membership attack can exceed 11.3 % true positives.",
        ),
    ]


def _history() -> list[History]:
    return [
        History(
            round=r,
            accuracy=0.93 - 0.8 * math.exp(-r / 8),
            class_accuracy=[0.9 + 0.007 * c for c in range(10)] if r == 49 else None,
            selected=10,
            delivered=8 + r % 3,
            rejected=r % 2,
            bytes_up=51_200 * 8,
            bytes_down=51_200,
            values={"train_loss": 2.3 * math.exp(-r / 12)},
        )
        for r in [*range(0, 50, 2), 49]
    ]


def _policy() -> PolicyRecord:
    rules = [
        (
            "R1",
            Severity.CRITICAL,
            "rank-1 match >= 0.5 and above every blind baseline",
            "More often than not, the adversary holds the person's own image.",
        ),
        (
            "R4",
            Severity.HIGH,
            "a kind that tells clients apart is released without noise",
            "Nothing bounds what later attacks learn from it.",
        ),
        (
            "R7",
            Severity.MEDIUM,
            "noise is calibrated to a norm that nothing is clipped to",
            "The stated epsilon does not hold, although no attack has used that yet.",
        ),
    ]
    return PolicyRecord(
        name="default",
        version="2026-01",
        rules=[PolicyRule(id=i, severity=s, when=w, reason=r) for i, s, w, r in rules],
    )


def _reproduction() -> ReproductionRecord:
    names = ["config.yaml", "ledger.jsonl", "metrics.jsonl", "artifacts/manifest.jsonl"]
    return ReproductionRecord(
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
