"""Audits of every kind, decided as real ones are: what the rules for sentences are held against."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.trade_offs import Option, compare_options, recommend
from fedaudit.fl.threats.threat import Aim, Harm
from fedaudit.reports.decision import Risk, Word
from fedaudit.reports.questions import GroupLimits, State
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Severity
from tests.reports.sample import make_question, make_rule_question, result, write_pages

POLICY = load_policy("default")
GOLDEN = Path(__file__).parents[1] / "golden"
NEW = "People who stand in small groups are counted (medium)"
READERS = ("server", "client", "public")


def decided(audited: AuditResult) -> AuditResult:
    audited.decision = decide(audited, POLICY)
    return audited


def asked(state: State, **more: object) -> AuditResult:
    """Every harm asked of every reader, all in one state, with nothing found besides."""
    audited = result()
    audited.rule_questions, audited.findings, audited.bounds, audited.alternatives = [], [], [], []
    audited.figures, audited.galleries = [], []
    audited.questions = [
        make_question(h, r, state, "because", required=h is not Harm.CLIENT_FACT, **more)
        for h in Harm
        for r in READERS
    ]
    return audited


def exposed() -> AuditResult:
    return decided(asked(State.EXPOSED, at_least=641, hits=700, tested=1400, luck=0.01))


def clear() -> AuditResult:
    return decided(asked(State.CLEAR, at_most=13, earned="every attack that the policy names, on all people"))


def opened() -> AuditResult:
    audited = asked(State.OPEN, next_attack="played_message", seconds=70.0)
    for q in audited.questions[::2]:
        q.is_untestable, q.next_attack = True, ""
    return decided(audited)


def mild() -> AuditResult:
    audited = asked(State.CLEAR, at_most=13, earned="limited by a verified epsilon")
    for q in audited.questions:
        if q.harm is Harm.DIFFUSE:
            q.state, q.at_least, q.at_most = State.EXPOSED, 300, 512
    return decided(audited)


def grouped() -> AuditResult:
    """Of everybody few are hit, and of one group most."""
    audited = asked(State.OPEN)
    q = audited.questions[2 * len(READERS)]
    q.state = State.EXPOSED
    q.groups = [GroupLimits(name="class 3 of client 2", people=35, at_least=23, attack="lira")]
    return decided(audited)


def attacked() -> AuditResult:
    """Of the model alone."""
    audited = asked(State.OPEN)
    audited.questions = []
    rule = make_rule_question(
        "backdoor", "multi_krum", State.EXPOSED, "w", malicious=0.25, at_least=0.947, at_most=0.99
    )
    audited.rule_questions = [rule]
    return decided(audited)


def silent() -> AuditResult:
    """Nothing that is made of anybody's data was sent."""
    audited = asked(State.OPEN)
    audited.questions, audited.exposures = [], []
    return decided(audited)


def compared() -> AuditResult:
    """With an option that clears what is exposed, one that leaves it, and one that did not end."""
    base, good, bad = exposed(), clear(), mild()
    for one in (base, good, bad):
        one.summary_metrics = {"accuracy_final": 0.93}
    right = np.ones(2000, bool)
    names = {"dp-gaussian": good, "secure-aggregation": bad}
    options = [Option(name=n, result=r, correct=right) for n, r in names.items()]
    base.alternatives = compare_options(
        Option(name="as audited", result=base, correct=right), [*options, Option(name="threshold", result=None)]
    )
    recommend(base.alternatives, base)
    return decided(base)


STATES = ("stopped", "left", "open", "stopped", "left")


def crowded(risks: int = 12, options: int = 4) -> AuditResult:
    """As much on the pages to decide by as real audits have had, and more."""
    audited = result()
    row = Risk(
        what="",
        who="the server, another client and whoever gets the model",
        unit="people",
        at_least=719_000,
        at_most=1_999_999,
        people=2_000_000,
        cells=["reconstruction.server"],
        severity="critical",
    )
    audited.verdict.risks = [
        row.model_copy(update={"what": f"Recognises a person, way {i}"}) for i in range(risks)
    ]
    audited.alternatives = [
        Alternative(
            name="clipped-and-noised",
            protections=["Gaussian noise on the mean feature vectors alone, standard deviation 2.5"],
            accuracy=0.9,
            accuracy_change=-0.03,
            accuracy_change_interval=(-0.06, 0.0),
            word=Word.CANNOT_TELL,
            people=2_000_000,
            effects=[
                *(
                    HarmEffect(what=r.what, state=STATES[i % 5], severity=Severity.LOW)  # type: ignore[arg-type]
                    for i, r in enumerate(audited.verdict.risks)
                ),
                HarmEffect(
                    state="new", what="People who stand in small groups are counted", severity=Severity.MEDIUM
                ),
            ],
            measures={"bytes_up": 7.2e6, "bytes_down": 8.6e6},
        )
    ] * (options + 1)
    audited.title = "Prototypes on handwritten digits of ten clinics: privacy and robustness"
    audited.exposures = audited.exposures * 6
    audited.questions = [audited.questions[0].model_copy(update={"harm": harm}) for harm in Harm]
    audited.rule_questions = [audited.rule_questions[0].model_copy(update={"aim": aim}) for aim in Aim]
    for key in ("purpose", "data", "controller", "author", "deployment"):
        setattr(
            audited.system, key, "to show what an audit says of a method that sends averages of what it computes"
        )
    return write_pages(audited)


def of_folder(path: Path) -> AuditResult:
    """An audit that an earlier version left, decided anew."""
    return decided(AuditResult.model_validate_json(path.read_bytes(), extra="ignore"))


AUDITS: dict[str, Callable[[], AuditResult]] = {
    **{
        f.__name__: f
        for f in (result, exposed, clear, opened, mild, grouped, attacked, silent, compared, crowded)
    },
    **{
        str(p.relative_to(GOLDEN)): lambda p=p: of_folder(p)  # type: ignore[misc]
        for p in sorted(GOLDEN.glob("**/audit.json"))
    },
}
