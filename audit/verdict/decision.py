"""The decision: questions and findings become one word, three numbers and a row a harm.

The word is the first that holds: *not ready*, where something was demonstrated at or above the bar or a bound is
refuted; *cannot tell*, where a required question is open; *with conditions*, where anything less was demonstrated
or something is accepted; *ready*. Page 1, every command and every export print this word.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.measure import find_measure
from fedaudit.audit.verdict.answers import answer_signer, describe_more
from fedaudit.audit.verdict.limits import name_question, name_questions
from fedaudit.audit.verdict.people import share_unseen
from fedaudit.audit.verdict.policy import GradingPolicy, Panel, list_shipped
from fedaudit.audit.verdict.replays import find_replayed
from fedaudit.audit.verdict.terms import NO_TERMS, Terms, select_demonstrated
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status
from fedaudit.reports.decision import DeploymentDecision, KeyNumber, Odds, Risk, Word
from fedaudit.reports.questions import Question, State, count_by_aim
from fedaudit.reports.result import AuditResult, Finding, Severity

STATEMENTS = ("accountant", "lint")  # findings against what is stated of protections
FACT_LEARNED = "A fact about a client's examples is learned"
# What decided, as Decision.rule names it
SEVERE, EXPOSED, REFUTED = "severe-finding", "people-exposed", "bound-refuted"
OPEN, REQUIRED = "question-open", "required"
LESSER, ACCEPTED = "finding-to-treat", "accepted"
# What is proved or seen rather than measured, by patterns of the policy's measures
FACTS = {
    "raw_examples_sent": "Clients' own examples are sent as they are",
    "untrue_counts": "What clients send as a number of examples is another number",
    "noise_on_some_rows": "Noise is declared, and rows of what clients send did not move",
    "vocabulary_of_private_text": "The vocabulary names words of clients' texts",
    "unit_below_person": "The mathematical limit is one of an example, and people have several",
    "adapters_within_reach": "Adapters of a low rank do not hide the words of some clients",
    "full_rank_adapters": "What is called an adapter has the full rank of its layer",
    "written_besides_training": "Clients' code writes numbers into what it sends that no training made",
    "texts_in_two_places": "The same text stands in two places",
    "understated_bytes": "Messages take more bytes than is stated",
    "accountants_disagree": "The mathematical limit that is stated may be wrong",
    "claim_refuted": "The mathematical limit that is stated does not hold",
    "above_certified": "Malicious clients did more than the stated noise allows",
    "absence_drop": "Clients that do not answer make the model wrong",
    "class_lost": "The model forgets a class while the clients that hold it are away",
    "lint_R*": "The test of the defences leaves something out",
    "lint_L*": "The mathematical limit that is stated does not cover what ran",
}


def decide(result: AuditResult, policy: GradingPolicy, terms: Terms = NO_TERMS) -> DeploymentDecision:
    """The verdict of an audit that has all else: the only place where one is made.

    A reviewer's bar stands in for the policy's. What somebody accepts, or the baseline has, does not forbid a
    deployment but remains a condition, and a requirement that was not met leaves the verdict open.
    """
    bar = terms.fail_on or policy.bar
    failing = [
        f.id
        for f in select_demonstrated(result.findings)
        if f.severity.rank >= bar.rank and not terms.forgives(f)
    ]
    left = list_open(result.questions, terms)
    word, rule = _choose_word(result, failing, left, terms)
    shown = list_risks(result, policy)
    return DeploymentDecision(
        word=word,
        rule=rule,
        sentence=_name_judge(policy) + _write_sentence(rule, result, shown, failing, left, terms, policy),
        more=describe_more(left),
        numbers=_list_numbers(result, shown, left),
        risks=shown,
        answers=answer_signer(result, shown),
        bar=bar,
        failing=failing,
        accepted=dict(terms.accepted),
        known=list(terms.known),
        unmet=[*terms.unmet],
    )


def list_open(questions: Sequence[Question], terms: Terms = NO_TERMS) -> list[Question]:
    """Required questions that are neither answered nor accepted."""
    return [q for q in questions if q.is_open and q.id not in terms.accepted]


def list_exposed(questions: Sequence[Question], terms: Terms = NO_TERMS) -> list[Question]:
    """Required questions of which more people are hit than is tolerable, and which nobody answers for by name.

    Who answers for what an attack found answers for the people it hit.
    """
    return [
        q
        for q in questions
        if q.required and q.is_exposed and not {q.id, *q.findings[:1]} & {*terms.accepted, *terms.known}
    ]


def _choose_word(
    result: AuditResult, failing: Sequence[str], left: Sequence[Question], terms: Terms
) -> tuple[Word, str]:
    if failing:
        return Word.NOT_READY, SEVERE
    if list_exposed(result.questions, terms):
        return Word.NOT_READY, EXPOSED
    if any(b.status is Status.REFUTED for b in result.bounds):
        return Word.NOT_READY, REFUTED
    if terms.unmet:
        return Word.CANNOT_TELL, REQUIRED
    if left or not any(q.required for q in result.questions):
        return Word.CANNOT_TELL, OPEN
    if any(not terms.forgives(f) for f in select_demonstrated(result.findings)):
        return Word.WITH_CONDITIONS, LESSER
    if terms.accepted or terms.known or any(q.accepted for q in result.questions):
        return Word.WITH_CONDITIONS, ACCEPTED
    return Word.READY, ""


def _name_judge(policy: GradingPolicy) -> str:
    """Whose policy it is, where it is none of ours: by its rules anything counts as demonstrated, or nothing."""
    if policy.name in list_shipped():
        return ""
    return f"Judged by policy {policy.name} {policy.version}, which is none of fedaudit's. "


def _write_sentence(
    rule: str,
    result: AuditResult,
    shown: Sequence[Risk],
    failing: Sequence[str],
    left: Sequence[Question],
    terms: Terms,
    policy: GradingPolicy,
) -> str:
    """How many harms were demonstrated, how many questions are answered, and what the word rests on."""
    severities, bar = [r.severity for r in shown], terms.fail_on or policy.bar
    parts = [f"{severities.count(s)} {s}" for s in Severity if s in severities]
    text = f"{fmt.plural(len(shown), 'harm was', 'harms were')} demonstrated: {', '.join(parts)}"
    text = text if shown else "Nothing was demonstrated"
    text += f", {len(terms.accepted)} accepted by name" if terms.accepted else ""
    text += f", {len(terms.known)} known from the baseline" if terms.known else ""
    text += f"; {fmt.count_answered(result.questions)}."
    reasons = {
        SEVERE: f"{_describe_failing([f for f in result.findings if f.id in failing], bar)}{_warn_of_open(left)}",
        EXPOSED: f"{_describe_exposed(list_exposed(result.questions, terms))}{_warn_of_open(left)}",
        REFUTED: f"A limit on the privacy loss that is stated does not hold.{_warn_of_open(left)}",
        REQUIRED: f"{fmt.plural(len(terms.unmet), 'requirement')} not met: {'; '.join(terms.unmet)}.",
        OPEN: _describe_open(left) if left else _describe_silence(result),
        LESSER: "It is to be treated, or accepted in writing.",
        ACCEPTED: "What is accepted is a condition.",
        "": _describe_ready(result, policy.whole_panel),
    }
    return f"{text} {reasons[rule]} {' '.join(f'{r}.' for r in terms.refused)}".rstrip()


def _describe_failing(failing: Sequence[Finding], bar: Severity) -> str:
    """What forbids the deployment, by whether people or the model are harmed."""
    seen = {
        "harm to the model" if f.source == "robustness" else "leak" for f in failing if f.source not in STATEMENTS
    }
    if not seen:
        return "What is stated of a protection does not hold, or does not cover what ran."
    rated = str(bar) if bar is Severity.CRITICAL else f"{bar} or worse"
    what = " and a ".join(sorted(seen, reverse=True))
    return f"The policy forbids deployment: a {what} rated {rated} succeeded against this federation."


def _describe_exposed(exposed: Sequence[Question]) -> str:
    """How many people are hit, of the question of which most are; empty without any."""
    if not exposed:
        return ""
    worst = max(exposed, key=lambda q: q.at_least / q.people)
    allowed = "an epsilon that is stated allows fewer" if worst.is_refuting else ""
    allowed = allowed or f"the policy tolerates {fmt.percent(worst.tolerable)}"
    return (
        f"At least {worst.at_least:,} of {worst.people:,} people are hit because their data were in: "
        f"{name_question(worst)}; {allowed}."
    )


def _warn_of_open(left: Sequence[Question]) -> str:
    """What would stand in the way of a deployment besides."""
    if not left:
        return ""
    open_ = fmt.plural(len(left), "required question is", "required questions are")
    return f' Even without that, {open_} open: the verdict would be "{Word.CANNOT_TELL.short}".'


def _describe_open(left: Sequence[Question]) -> str:
    """Which required questions are open, and what would settle the first that can be settled."""
    text = f"Required questions are open: {count_by_aim(left)}."
    bounded = next((q for q in left if q.at_most is not None), None)
    if bounded is None:
        first = left[0]
        return f"{text} {fmt.sentence_case(name_question(first))}: {first.why}."
    text += f" {fmt.sentence_case(name_question(bounded))}: {bounded.why}."
    if bounded.more:
        time = f" (about {fmt.duration(bounded.seconds)})" if bounded.seconds else ""
        text += f" Testing {bounded.more:,} more{time} should settle it."
    return text


def _describe_silence(result: AuditResult) -> str:
    """Why no required question was there to be answered."""
    if result.questions:
        return "None of them is required, so nothing that was asked decides."
    if result.history and not any(r.delivered for r in result.history):
        rounds = fmt.plural(len(result.history), "round")
        return (
            f"No client was heard in any of {rounds}, so nothing that is made of anybody's examples was sent, "
            "and no question could be asked. Nothing follows for a run in which clients are heard."
        )
    return "Nothing that is made of anybody's examples was sent, so no question could be asked."


def _describe_ready(result: AuditResult, panel: Panel) -> str:
    """For whom and what the word holds, how many people could be exposed all the same, and what it leaves out."""
    clients = result.scope.clients
    text = f"Ready for these {fmt.plural(clients, 'client')} and this run."
    bounded = [
        q
        for q in result.questions
        if q.required and q.state is State.BOUNDED and q.at_most is not None and q.people
    ]
    if bounded:
        worst = max(bounded, key=lambda q: (q.at_most or 0) / q.people)
        assert worst.at_most is not None, "chosen so"
        share = fmt.percent(worst.at_most / worst.people)
        text += (
            f" By the attacks of panel {panel.number}, each run in full, at most {worst.at_most:,} of "
            f"{worst.people:,} people ({share}) are told apart from people whose data were not used, by any one "
            "of them."
        )
    text += f" Not covered: other clients, of which up to {fmt.percent(share_unseen(clients))} could leak unseen"
    lacking = name_questions([q for q in result.questions if not q.is_answered])
    return (
        f"{text}; attacks we lack: {'; '.join(lacking)}." if lacking else f"{text}; attacks that nobody here has."
    )


def list_risks(result: AuditResult, policy: GradingPolicy) -> list[Risk]:
    """What was demonstrated, worst first; findings of one harm by one party are one row."""
    rows: dict[tuple[str, str], Risk] = {}
    for finding in select_demonstrated(result.findings):
        row = _describe_risk(finding, result, policy)
        same = rows.setdefault((row.what, row.who), row)
        if same is not row:
            same.also.append(finding.id)
    return list(rows.values())


def _list_measures(finding: Finding, policy: GradingPolicy) -> list[str]:
    """What the rule that graded a finding reads."""
    return [c.measure for r in policy.rules if r.id == finding.rule for c in r.all]


def _describe_risk(finding: Finding, result: AuditResult, policy: GradingPolicy) -> Risk:
    measures = _list_measures(finding, policy)
    here = [e for e in finding.evidence if e.control == "none" and e.place == finding.where]
    quoted = next(
        (e for m in measures for e in here if fnmatchcase(e.measure, m) and find_measure(e.measure).harm), None
    )
    fact = next((words for name, words in FACTS.items() for m in measures if fnmatchcase(name, m)), "")
    fact = fact or next((words for name, words in FACTS.items() for m in measures if fnmatchcase(m, name)), "")
    what = _name_harm(finding, quoted, result.questions) if quoted else fact or finding.title
    odds = _list_odds(finding, quoted) if quoted else []
    return Risk(
        finding=finding.id,
        what=what,
        who=_name_adversary(finding),
        whom=_count_reached(finding, result),
        odds=odds,
        note="" if odds else _describe_chance(finding, quoted),
        severity=finding.severity,
    )


def _name_harm(finding: Finding, quoted: Evidence, questions: Sequence[Question]) -> str:
    """What the measure says can happen; of an attack on facts about clients, that one is learned.

    AUC and true positives measure who took part, and also whether a client has what an attack asks about.
    """
    harm = find_measure(quoted.measure).harm
    aims = {q.aim for q in questions if finding.id in q.findings}
    return FACT_LEARNED if harm == find_measure("auc").harm and aims == {Aim.ATTRIBUTE} else harm


def _list_odds(finding: Finding, quoted: Evidence) -> list[Odds]:
    """The measure that was graded, at the place that was graded, and nowhere else; none where it is no share.

    A place that few messages of the run reach is graded by replays too, and their interval stands beside.
    """
    if quoted.unit != "fraction":
        return []
    guess = quoted.strongest.value if quoted.strongest else None
    group = float(quoted.condition["n"]) if "n" in quoted.condition else None
    replayed = find_replayed(quoted, finding.evidence)
    return [
        Odds(
            group=group,
            value=quoted.value,
            interval=quoted.interval,
            trials=quoted.trials,
            guess=guess,
            replayed=replayed.interval if replayed else None,
            replays=replayed.trials if replayed else 0,
            graded=True,
        )
    ]


def _describe_chance(finding: Finding, quoted: Evidence | None) -> str:
    if quoted:
        beside = f"; guessing {fmt.quantity(quoted.strongest.value, quoted.unit)}" if quoted.strongest else ""
        return f"{find_measure(quoted.measure).words} {fmt.quantity(quoted.value, quoted.unit)}{beside}"
    return "certain: it is in the message" if finding.source == "disclosure" else "not a matter of chance"


def _name_adversary(finding: Finding) -> str:
    if finding.threat is None:
        return ""
    position = finding.threat.position.replace("_", " ")
    if finding.threat.conduct != "honest_but_curious":
        return f"a malicious {position}"
    return fmt.name_observer(finding.threat.position)


def _count_reached(finding: Finding, result: AuditResult) -> str:
    """How many people it could expose at most, by the questions that it answers."""
    if finding.source == "robustness":
        return "everybody who uses the model"
    if finding.source == "lint":
        return "whoever relies on the stated limit"
    asked = [q for q in result.questions if finding.id in q.findings]
    bounds = [q for q in asked if q.has_limit and q.people]
    if asked and len(bounds) == len(asked):
        worst = max(bounds, key=lambda q: q.at_most or 0)
        return f"{worst.at_most or 0:,} of {worst.people:,}"
    return "no limit known"


def _list_numbers(result: AuditResult, found: Sequence[Risk], left: Sequence[Question]) -> list[KeyNumber]:
    """How many people are exposed, how many questions are answered, and how many the verdict waits for."""
    asked = result.questions
    needed = [q for q in asked if q.required]
    heads = result.people
    numbers = []
    if heads is not None:
        low, high = heads.interval
        text = "people are exposed by what was demonstrated "
        text += f"(95 % interval: {low:,} to {high:,}); this is no upper limit"
        numbers.append(KeyNumber(shown=f"{heads.expected:,.0f} of {heads.people:,}", text=text))
    elif found:
        numbers.append(KeyNumber(shown="Not known", text="how many people are exposed: no attack counted them"))
    if asked:
        numbers += [
            KeyNumber(
                shown=f"{sum(q.is_answered for q in asked)} of {len(asked)}", text="questions are answered"
            ),
            KeyNumber(shown=f"{len(left):,} of {len(needed):,}", text="required questions are open"),
        ]
    bounds = [q for q in needed if q.has_limit and q.people]
    if not found and (worst := max(bounds, key=lambda q: (q.at_most or 0) / q.people, default=None)):
        text = f"people could be exposed, at most, by {name_question(worst)}"
        numbers.append(KeyNumber(shown=f"{worst.at_most or 0:,} of {worst.people:,}", text=text))
    return numbers
