"""Questions about the model: what declared attackers, or absent clients, do to each rule of the server.

Answers that are lost are graded by the lower end of the paired interval, as people who are hit are, and never by
how many clients are malicious. The class that loses most is a group, of which more is tolerable.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.audit.robustness.measures import DOING_NOTHING
from fedaudit.audit.robustness.plan import CONTROLS
from fedaudit.audit.verdict.findings import bound_excess
from fedaudit.audit.verdict.people import SLACK, rate
from fedaudit.audit.verdict.policy import Demands
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports import format as fmt
from fedaudit.reports.absence import Absence, Difference
from fedaudit.reports.questions import RuleQuestion, State
from fedaudit.reports.result import Finding, Severity
from fedaudit.reports.robustness import MatrixCell, Robustness

ABSENT = "absent_clients"  # stands in the place of a rule
OF_ALL = ("accuracy_drop", "asr", "cost_of_defence")  # measures of answers that are lost
OF_CLASS = ("worst_class_drop", "cost_of_worst_class")
GROUP = 4  # times what is tolerable of all is tolerable of a class
NOTHING, ANYTHING = (0.0, 0.0), (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class LostAnswers:
    """Shares of a model's answers that are lost, of all and of the class that loses most: at least, at most."""

    of_all: tuple[float, float] = NOTHING
    of_class: tuple[float, float] = NOTHING

    def rate(self, tolerable: float) -> Severity:
        """How bad it is where a share of all is tolerable; medium or worse where more is lost."""
        return max(self._rate_both(tolerable), key=lambda severity: severity.rank)

    def judge(self, tolerable: float) -> State:
        """Exposed by what is lost at least, clear by what is lost at most, else open."""
        limits = ((self.of_all, tolerable), (self.of_class, GROUP * tolerable))
        if any(low > most + SLACK for (low, _), most in limits):
            return State.EXPOSED
        return State.CLEAR if all(high <= most + SLACK for (_, high), most in limits) else State.OPEN

    def explain(self, tolerable: float) -> str:
        """What set the severity, as a sentence; empty where nothing is lost for sure."""
        every, worst = self._rate_both(tolerable)
        if Severity.NONE is every is worst:
            return ""
        whose, low, most = "", self.of_all[0], tolerable
        if worst.rank > every.rank:
            whose, low, most = " on the class that loses most", self.of_class[0], GROUP * tolerable
        return (
            f"At least {fmt.percent(low)} of the answers{whose} are lost, and {fmt.percent(most)} are tolerable."
        )

    def _rate_both(self, tolerable: float) -> tuple[Severity, Severity]:
        """Of all and of the class; what is tolerable of a class is low."""
        worst = rate(self.of_class[0], 1, GROUP * tolerable)
        if worst.rank > Severity.LOW.rank:
            worst = rate(self.of_class[0], 1, tolerable)
        return rate(self.of_all[0], 1, tolerable), worst


def bound_lost(evidence: Iterable[Evidence]) -> LostAnswers:
    """What is lost beyond the strongest baseline, by whichever measure loses most."""
    found = list(evidence)
    return _take_worst(
        LostAnswers(of_all=_bound_excess(e)) if e.measure in OF_ALL else LostAnswers(of_class=_bound_excess(e))
        for e in found
        if e.measure in OF_ALL + OF_CLASS
    )


def bound_absence(places: Iterable[Difference], of_class: Iterable[Difference] = ()) -> LostAnswers:
    """What is lost where clients are absent, wherever it is most; of one seed nothing is known."""
    return _take_worst(
        [
            *(LostAnswers(of_all=_clip(*(d.interval or ANYTHING))) for d in places),
            *(LostAnswers(of_class=_clip(*(d.interval or ANYTHING))) for d in of_class),
        ]
    )


def _take_worst(some: Iterable[LostAnswers]) -> LostAnswers:
    found = list(some)
    pairs = ([lost.of_all for lost in found], [lost.of_class for lost in found])
    of_all, of_class = (
        (max((low for low, _ in p), default=0.0), max((high for _, high in p), default=0.0)) for p in pairs
    )
    return LostAnswers(of_all=of_all, of_class=of_class)


def _bound_excess(e: Evidence) -> tuple[float, float]:
    """Both ends of its distance from the strongest baseline.

    What the same clients take by doing nothing is no merit of an attack, and it is taken all the same.
    """
    if e.interval is None or not math.isfinite(e.value):
        return ANYTHING
    ends = {b.name: bound_excess(e, b) for b in e.baselines or (Baseline(name="nothing", value=0.0),)}
    most = min(up for name, (_, up) in ends.items() if name != DOING_NOTHING)
    return _clip(min(down for down, _ in ends.values()), most)


def _clip(low: float, high: float) -> tuple[float, float]:
    return max(0.0, low), min(1.0, max(0.0, high))


def list_rule_questions(
    rules: Sequence[str], aims: Iterable[Aim], demands: Demands, *, absence: bool = False
) -> list[RuleQuestion]:
    """One for each rule and aim of an attacker that the config declares, and one for absence, unanswered."""
    made = [_question(aim, rule, demands) for rule in rules for aim in dict.fromkeys(aims)]
    return made + ([_question(Aim.DROPOUT, ABSENT, demands)] if absence else [])


def _question(aim: Aim, rule: str, demands: Demands) -> RuleQuestion:
    return RuleQuestion(
        id=f"{aim}.client.{rule}",
        aim=aim,
        rule=rule,
        required=aim in demands.of_model.aims,
        state=State.OPEN,
        why="no run without these clients was made"
        if rule == ABSENT
        else "the config declares an attacker, and no matrix compares the model with an honest one",
        tolerable=demands.of_model.share,
    )


def answer_rule_questions(
    questions: Sequence[RuleQuestion],
    matrix: Robustness | None,
    absence: Absence | None,
    findings: Sequence[Finding],
    aims: Mapping[str, Aim],
) -> list[RuleQuestion]:
    """The same with their states; `aims` of declared adversaries by the label that cells of the matrix have."""
    return [
        q.model_copy(
            update=_answer_by_absence(q, absence, findings)
            if q.rule == ABSENT
            else _answer_by_cells(q, matrix, findings, [label for label, aim in aims.items() if aim is q.aim])
        )
        for q in questions
    ]


def _answer_by_cells(
    q: RuleQuestion, matrix: Robustness | None, findings: Sequence[Finding], declared: Sequence[str]
) -> dict[str, Any]:
    if matrix is None:
        return {}
    cells = [
        c
        for c in matrix.cells
        if c.rule == q.rule and matrix.adversaries[c.adversary].aim is q.aim and c.evidence
    ]
    if not cells:
        return {"why": "no run of the matrix was made of it"}
    cells += [c for c in matrix.cells if c.rule == q.rule and c.adversary in CONTROLS and c not in cells]
    each = [bound_lost(c.evidence) for c in cells]
    lost = _take_worst(each)
    worst = max(zip(cells, each, strict=True), key=lambda pair: (*pair[1].of_all[:1], *pair[1].of_class))[0]
    ids = {f"robustness-{c.setting}-{c.rule}" for c in cells}
    answer: dict[str, Any] = {
        "findings": [f.id for f in findings if f.id in ids],
        "malicious": worst.malicious / matrix.clients,
        "at_least": lost.of_all[0],
        "at_most": lost.of_all[1],
    }
    state, tried = lost.judge(q.tolerable), fmt.plural(len(cells), "attack")
    if state is State.EXPOSED:
        why = f"{worst.title}: {lost.explain(q.tolerable).removesuffix('.')}"
        return answer | {"state": state, "why": why}
    if missing := _explain_missing(q.rule, cells, matrix, declared):
        return answer | {"at_most": None, "why": missing}
    return answer | {"state": state, "why": f"{tried} {_describe_most(lost, q.tolerable)}"}


def _explain_missing(rule: str, cells: Sequence[MatrixCell], matrix: Robustness, declared: Sequence[str]) -> str:
    """Why runs of a rule set no upper limit, as a phrase; empty where they do.

    An attacker or a rule that was refused does not apply, and is no run that is missing.
    """
    for left in (n for n in matrix.not_run if n.failed):
        if place := next((name for name in left.cells if f"/{rule}/" in name), ""):
            return f"the run {place} failed: {left.reason.removesuffix('.')}"
    refused = [name for n in matrix.not_run for name in n.cells]
    for label in declared:
        if label not in {c.adversary for c in cells} and not any(f"/{rule}/{label}-" in n for n in refused):
            return f"no run of the matrix was made with {label}"
    for setting in dict.fromkeys(c.setting for c in cells):
        planted = [bound_lost(c.evidence) for c in matrix.planted if c.setting == setting]
        if not any(lost.of_all[0] > 0 for lost in planted):
            return f"the planted fault did not break the mean of {setting}, so that finding little means nothing"
    return ""


def _describe_most(lost: LostAnswers, tolerable: float) -> str:
    """What is lost at most, of all or of a class that might lose more than is tolerable."""
    if lost.judge(tolerable) is State.CLEAR:
        return f"took at most {fmt.percent(lost.of_all[1])} of the answers"
    if lost.of_all[1] > tolerable + SLACK:
        return f"could have taken up to {fmt.percent(lost.of_all[1])} of the answers, by the interval"
    most = fmt.percent(lost.of_class[1])
    return f"could have taken up to {most} of the answers on one class, by the interval"


def _answer_by_absence(q: RuleQuestion, absence: Absence | None, findings: Sequence[Finding]) -> dict[str, Any]:
    if absence is None or not (absence.beside or absence.returns):
        return {}
    lost = bound_absence((b.drop for b in absence.beside), (r.drop for r in absence.returns))
    mine = sorted(
        (f for f in findings if f.id.startswith("absence-")), key=lambda f: f.severity.rank, reverse=True
    )
    answer: dict[str, Any] = {
        "findings": [f.id for f in mine],
        "at_least": lost.of_all[0],
        "at_most": lost.of_all[1],
    }
    state = lost.judge(q.tolerable)
    if state is State.EXPOSED:
        return answer | {"state": state, "why": lost.explain(q.tolerable).removesuffix(".")}
    if left := next((n for n in absence.not_run if n.failed), None):
        why = f"some runs without these clients came to no end: {left.reason.removesuffix('.')}"
        return answer | {"at_most": None, "why": why}
    if any(d.interval is None for d in (*(b.drop for b in absence.beside), *(r.drop for r in absence.returns))):
        return answer | {"at_most": None, "why": "one seed has no interval over seeds: run three"}
    return answer | {"state": state, "why": f"absence {_describe_most(lost, q.tolerable)}"}
