"""A realistic audit result with every block type, every outcome, and texts meant to break a renderer."""

import math
from typing import Any

import numpy as np

from fedaudit.audit.verdict.page import write_page
from fedaudit.fl.threats.threat import Aim, Harm
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.decision import DeploymentDecision, Risk, Word
from fedaudit.reports.exposed import PartyExposure
from fedaudit.reports.questions import GroupLimits, Question, RuleQuestion, State
from fedaudit.reports.result import (
    AuditResult,
    AuditScope,
    Headline,
    History,
    PolicyLine,
    PolicyRecord,
    ReproductionRecord,
    Severity,
)
from tests.reports.sample_bounds import CLEAR, make_bound
from tests.reports.sample_figures import figures, galleries
from tests.reports.sample_findings import CLASSES, HOSTILE, MALICIOUS, PUBLIC, SERVER, findings


def result() -> AuditResult:
    """The sample: federated prototypes on digits, one critical finding, one of each other outcome."""
    made = AuditResult(
        title="Privacy audit of FedProto on handwritten digits",
        created="2026-03-05T14:07:00Z",
        headline=Headline(
            severity=Severity.CRITICAL,
            sentence="A server that is merely curious recovers recognisable training images from "
            "the prototypes of clients that hold five or fewer examples of a class: 78.4 % are "
            "matched to the right person's image, against 10.2 % for a baseline.",
        ),
        decision=_decision(),
        scope=_scope(),
        exposures=_exposures(),
        questions=questions(),
        rule_questions=rule_questions(),
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
    return write_pages(made)


def write_pages(made: AuditResult) -> AuditResult:
    """The same with the pages that follow from it."""
    d = made.verdict
    left = [c for c in made.cells if c.is_open]
    d.page = write_page(made, d.word, d.rule, d.risks, left, d.bar)
    return made


def _decision() -> DeploymentDecision:
    return DeploymentDecision(
        word=Word.NOT_READY,
        bar="high",
        failing=["dp-upper"],
        rule="people-exposed",
        sentence="At least 760 of 1,400 people are hit because their data were in: reconstruction by the server; "
        "the policy tolerates 1 %. 2 harms were shown: 1 critical, 1 high; 2 of 7 questions answered.",
        risks=[
            Risk(
                finding="upcnn",
                also=["lira"],
                what="Rebuilds a person's record",
                who="the server",
                unit="people",
                at_least=760,
                at_most=840,
                people=1400,
                cells=["reconstruction.server"],
                severity="critical",
            ),
            Risk(finding="dp", what=f"No mathematical limit {HOSTILE}", note="certain", severity="high"),
        ],
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


def make_question(harm: Harm, observer: str, state: State, why: str, **more: Any) -> Question:
    fields = {"required": True, "tolerable": 0.05, "people": 1400} | more
    return Question(id=f"{harm}.{observer}", harm=harm, observer=observer, state=state, why=why, **fields)


def make_rule_question(aim: str, rule: str, state: State, why: str, **more: Any) -> RuleQuestion:
    fields = {"required": True, "tolerable": 0.05} | more
    return RuleQuestion(id=f"{aim}.{rule}", aim=Aim(aim), rule=rule, state=state, why=why, **fields)


def questions() -> list[Question]:
    """Each state, with and without a limit, by everybody and by a group."""
    group = GroupLimits(name="class 3 of client 2", people=35, at_least=23, at_most=28, attack="lira")
    return [
        make_question(
            Harm.RECONSTRUCTION,
            "server",
            State.EXPOSED,
            "upcnn hit 860 of 1,400 people tested, at least 760 because their data were in",
            findings=["upcnn", "lira"],
            at_least=760,
            at_most=840,
            tolerable=0.01,
        ),
        make_question(
            Harm.MEMBERSHIP,
            "server",
            State.OPEN,
            "there is no limit, since the panel lacks lira (failed: out of memory)",
            findings=["lira"],
        ),
        make_question(
            Harm.ATTRIBUTE,
            "server",
            State.CLEAR,
            "upcnn hit 9 of 1,400 people tested; at most 12 of 1,400 people are, net of luck, by any attack that "
            "ran, all of the panel among them",
            findings=["upcnn"],
            at_most=12,
        ),
        make_question(
            Harm.MEMBERSHIP,
            "client",
            State.OPEN,
            "there is no limit, since the panel lacks ridge (left out, about 40 s)",
            next_attack="ridge",
            seconds=40.0,
        ),
        make_question(
            Harm.ATTRIBUTE, "client", State.OPEN, "no attack was tried", accepted="A. Person, until 2027: known"
        ),
        make_question(
            Harm.MEMBERSHIP,
            "public",
            State.EXPOSED,
            "lira hit at least 23 of 35 people of class 3 of client 2 because their data were in",
            findings=["lira"],
            at_least=1,
            at_most=32,
            groups=[group],
        ),
        make_question(Harm.LINKAGE, "server", State.OPEN, "no attack was tried", required=False),
    ]


def rule_questions() -> list[RuleQuestion]:
    return [
        make_rule_question(
            "backdoor",
            "multi_krum",
            State.CLEAR,
            "backdoor cost at most 3.8 % of answers",
            findings=["backdoor"],
            malicious=0.1,
            at_most=0.038,
        )
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
    lines = [
        (
            "reconstruction: at most 1 % of people",
            "More often than not, the adversary holds the person's own image.",
        ),
        ("membership: at most 5 % of people", "Nothing bounds what later attacks learn from it."),
        (
            "a bar of high for what is seen or proved",
            "The stated epsilon does not hold, although nobody used that yet.",
        ),
    ]
    return PolicyRecord(
        name="default",
        version="2026-01",
        lines=[PolicyLine(what=w, reason=r) for w, r in lines],
        panel=1,
        panel_sha256="a" * 64,
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
