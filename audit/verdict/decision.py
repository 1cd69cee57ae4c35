"""The decision: two tables of questions, and what was seen or proved, become one word and a row a harm.

The word is the first that holds: *not ready*, where a required question that is not mild is exposed, something
was seen or proved at or above the bar, or a bound is refuted; *cannot tell*, where a required question is
open; *with conditions*, where a mild one is exposed, something less was seen or proved, or something is
accepted; *ready*. Page 1, every command and every export print this word.
"""

from collections.abc import Sequence

from fedaudit.audit.verdict.answers import describe_more
from fedaudit.audit.verdict.page import HARMS, LOSSES, name_fact, write_page
from fedaudit.audit.verdict.people import count_allowed_in_group, rate, rate_people, share_unseen
from fedaudit.audit.verdict.policy import NO_TERMS, GradingPolicy, Panel, Terms, list_shipped, select_demonstrated
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status
from fedaudit.reports.decision import DeploymentDecision, Risk, Word
from fedaudit.reports.questions import Cell, Question, RuleQuestion, State, list_harms
from fedaudit.reports.result import AuditResult, Finding, Severity

STATEMENTS = ("accountant", "lint")  # findings against what is stated of protections
# What decided, as Decision.rule names it
SEVERE, EXPOSED, REFUTED = "severe-finding", "people-exposed", "bound-refuted"
OPEN, REQUIRED = "question-open", "required"
LESSER, ACCEPTED = "finding-to-treat", "accepted"


def decide(result: AuditResult, policy: GradingPolicy, terms: Terms = NO_TERMS) -> DeploymentDecision:
    """The verdict of an audit that has all else: the only place where one is made.

    A reviewer's bar stands in for the policy's, and is held against attacks too. What somebody accepts, or the
    baseline has, does not forbid a deployment but remains a condition, and a requirement that was not met leaves
    the verdict open.
    """
    bar = terms.fail_on or policy.bar
    failing = [f.id for f in _list_failing(result, policy, terms)]
    left = [c for c in result.cells if c.is_open and c.id not in terms.accepted]
    word, rule = _choose_word(result, failing, left, terms)
    forbidding = [*failing, *(c.id for c in list_exposed(result.cells, terms))]
    shown = list_risks(result)
    return DeploymentDecision(
        word=word,
        rule=rule,
        sentence=_name_judge(policy) + _write_sentence(rule, result, shown, failing, left, terms, policy),
        more=describe_more(left),
        risks=shown,
        page=write_page(result, word, rule, shown, left, forbidding, _name_judge(policy)),
        bar=bar,
        failing=failing,
        accepted=dict(terms.accepted),
        known=list(terms.known),
        unmet=[*terms.unmet],
    )


def list_exposed(cells: Sequence[Cell], terms: Terms = NO_TERMS, *, mild: bool = False) -> list[Cell]:
    """Required questions of which more are hit than is tolerable, and which nobody answers for by name.

    Who answers for what an attack found answers for the people it hit. `mild`: those that forbid nothing.
    """
    return [
        c
        for c in cells
        if c.required
        and c.is_exposed
        and (isinstance(c, Question) and c.harm.is_mild) is mild
        and not {c.id, *c.findings[:1]} & {*terms.accepted, *terms.known}
    ]


def _list_failing(result: AuditResult, policy: GradingPolicy, terms: Terms) -> list[Finding]:
    """What was seen or proved at or above the bar; of attacks, what a reviewer's own bar forbids."""
    bar = terms.fail_on or policy.bar
    graded = ("attack", "robustness")  # by the tables
    return [
        f
        for f in select_demonstrated(result.findings)
        if f.severity.rank >= bar.rank
        and not terms.forgives(f)
        and (terms.fail_on is not None or f.source not in graded or not _is_asked(f, result))
    ]


def _is_asked(f: Finding, result: AuditResult) -> bool:
    """Whether a finding is an answer of one of the tables, which decides then."""
    return f.source == "attack" or any(f.id in c.findings for c in result.rule_questions)


def _choose_word(
    result: AuditResult, failing: Sequence[str], left: Sequence[Cell], terms: Terms
) -> tuple[Word, str]:
    if list_exposed(result.cells, terms):
        return Word.NOT_READY, EXPOSED
    if failing:
        return Word.NOT_READY, SEVERE
    if any(b.status is Status.REFUTED for b in result.bounds):
        return Word.NOT_READY, REFUTED
    if terms.unmet:
        return Word.CANNOT_TELL, REQUIRED
    if left or not any(c.required for c in result.cells):
        return Word.CANNOT_TELL, OPEN
    lesser = [
        f
        for f in select_demonstrated(result.findings)
        if not _is_asked(f, result) and f.severity.rank >= Severity.MEDIUM.rank and not terms.forgives(f)
    ]
    if lesser or list_exposed(result.cells, terms, mild=True):
        return Word.WITH_CONDITIONS, LESSER
    if terms.accepted or terms.known or any(c.accepted for c in result.cells):
        return Word.WITH_CONDITIONS, ACCEPTED
    return Word.READY, ""


def _name_judge(policy: GradingPolicy) -> str:
    """Whose policy it is, where it is none of ours."""
    if policy.name in list_shipped():
        return ""
    return f"Judged by policy {policy.name} {policy.version}, which is none of fedaudit's. "


def _write_sentence(
    rule: str,
    result: AuditResult,
    shown: Sequence[Risk],
    failing: Sequence[str],
    left: Sequence[Cell],
    terms: Terms,
    policy: GradingPolicy,
) -> str:
    """What the word rests on, and how many questions are answered."""
    parts = [_count_harms(shown)]
    parts += [f"{len(terms.accepted)} accepted by name"] if terms.accepted else []
    parts += [f"{len(terms.known)} known from the baseline"] if terms.known else []
    text = f"{', '.join(parts)}; {fmt.count_answered(result.cells)}."
    bar = terms.fail_on or policy.bar
    reasons = {
        EXPOSED: f"{_describe_exposed(list_exposed(result.cells, terms))}{_warn_of_open(left)}",
        SEVERE: f"{_describe_failing([f for f in result.findings if f.id in failing], bar)}{_warn_of_open(left)}",
        REFUTED: f"A limit on the privacy loss that is stated does not hold.{_warn_of_open(left)}",
        REQUIRED: f"{fmt.plural(len(terms.unmet), 'requirement')} not met: {'; '.join(terms.unmet)}.",
        OPEN: _describe_open(left) if left else _describe_silence(result),
        LESSER: "It is to be treated, or accepted in writing.",
        ACCEPTED: "What is accepted is a condition.",
        "": _describe_ready(result, policy.whole_panel),
    }
    first = reasons[rule]
    ends = " ".join(f"{r}." for r in terms.refused)
    return (f"{first} {text} {ends}" if rule in (EXPOSED, "") else f"{text} {first} {ends}").rstrip()


def _count_harms(shown: Sequence[Risk]) -> str:
    severities = [r.severity for r in shown]
    parts = [f"{severities.count(s)} {s}" for s in Severity if s in severities]
    text = f"{fmt.plural(len(shown), 'harm was', 'harms were')} shown: {', '.join(parts)}"
    return text if shown else "Nobody is known to be hit"


def _describe_failing(failing: Sequence[Finding], bar: Severity) -> str:
    """What forbids the deployment."""
    if all(f.source in STATEMENTS for f in failing):
        return "What is stated of a protection does not hold, or does not cover what ran."
    rated = str(bar) if bar is Severity.CRITICAL else f"{bar} or worse"
    worst = max(failing, key=lambda f: f.severity.rank)
    return f"The policy forbids deployment: it is rated {rated} that {_put_inside(worst.title)}."


def _put_inside(title: str) -> str:
    """A title within a sentence."""
    return f"{title[:1].lower()}{title[1:]}".rstrip(".")


def _describe_exposed(exposed: Sequence[Cell]) -> str:
    """How many people are hit, of the question of which most are; empty without any."""
    if not exposed:
        return ""
    people = [c for c in exposed if isinstance(c, Question)]
    if not people:
        worst = max((c for c in exposed if isinstance(c, RuleQuestion)), key=lambda c: c.at_least)
        return (
            f"Attackers cost the model at least {fmt.percent(worst.at_least)} of its answers: "
            f"{fmt.name_question(worst)}; "
            f"the policy tolerates {fmt.percent(worst.tolerable)}."
        )
    q = max(people, key=lambda q: (rate_cell(q).rank, q.at_least / max(1, q.people)))
    units = "clients" if q.harm is Harm.CLIENT_FACT else "people"
    if q.at_least <= q.allowed and q.groups and not q.is_refuting:
        g = q.groups[0]
        return (
            f"At least {g.at_least:,} of {g.people:,} people of {g.name} are hit because their data were in: "
            f"{fmt.name_question(q)}; of a group the policy tolerates "
            f"{count_allowed_in_group(g.people, q.tolerable):,}."
        )
    allowed = "an epsilon that is stated allows fewer" if q.is_refuting else ""
    allowed = allowed or f"the policy tolerates {fmt.percent(q.tolerable)}"
    return (
        f"At least {q.at_least:,} of {q.people:,} {units} are hit because their data were in: "
        f"{fmt.name_question(q)}; {allowed}."
    )


def rate_cell(cell: Cell) -> Severity:
    """How bad it is what L says of a question, or of one of its groups."""
    if isinstance(cell, RuleQuestion):
        return rate(cell.at_least, 1.0, cell.tolerable)
    assert isinstance(cell, Question)
    return rate_people(cell.at_least, cell.people, cell.groups, cell.tolerable, is_mild=cell.harm.is_mild)


def _warn_of_open(left: Sequence[Cell]) -> str:
    """What would stand in the way of a deployment besides."""
    if not left:
        return ""
    open_ = fmt.plural(len(left), "required question is", "required questions are")
    return f' Even without that, {open_} open: the verdict would be "{Word.CANNOT_TELL.words}".'


def _describe_open(left: Sequence[Cell]) -> str:
    """Which required questions are open, and what would settle the first that can be settled."""
    text = f"Required questions are open: {list_harms(left)}."
    bounded = next((c for c in left if isinstance(c, Question) and c.at_most is not None), None)
    first = bounded or left[0]
    text += f" {fmt.sentence_case(fmt.name_question(first))}: {first.why}."
    if bounded is not None and bounded.more:
        time = f" (about {fmt.duration(bounded.seconds)})" if bounded.seconds else ""
        text += f" Testing {bounded.more:,} more{time} should settle it."
    return text


def _describe_silence(result: AuditResult) -> str:
    """Why no required question was there to be answered."""
    if result.cells:
        return "None of them is required, so nothing that was asked decides."
    if result.history and not any(r.delivered for r in result.history):
        rounds = fmt.plural(len(result.history), "round")
        return (
            f"No client was heard in any of {rounds}, so nothing that is made of anybody's examples was sent, "
            "and no question could be asked. Nothing follows for a run in which clients are heard."
        )
    return "Nothing that is made of anybody's examples was sent, so no question could be asked."


def _describe_ready(result: AuditResult, panel: Panel) -> str:
    """For whom and what the word holds, how many people could be hit all the same, and what it leaves out."""
    clients = result.scope.clients
    text = f"Ready for these {fmt.plural(clients, 'client')} and this run"
    by_harm: dict[Harm, Question] = {}
    for q in result.questions:
        if q.required and q.state is State.CLEAR and q.at_most is not None and q.people:
            worst = by_harm.setdefault(q.harm, q)
            by_harm[q.harm] = max(worst, q, key=lambda q: q.at_most or 0)
    if by_harm:
        limits = [f"{q.harm.label} {q.at_most:,} of {q.people:,}" for q in by_harm.values()]
        text += (
            f": by the attacks of panel {panel.number} (named in the appendix, each run in full), at most "
            "so many "
            f"people are hit because their data were in: {'; '.join(limits)}"
        )
    unseen = fmt.percent(share_unseen(clients))
    text += f". Not covered: other clients, of which up to {unseen} could leak unseen, other runs"
    lacking = fmt.name_questions([c for c in result.cells if not c.is_answered])
    return (
        f"{text}, attacks that we lack, and {'; '.join(lacking)}."
        if lacking
        else f"{text} and attacks that we lack."
    )


def list_risks(result: AuditResult) -> list[Risk]:
    """What was shown: of each harm one row, of each thing that was seen or proved another.

    The worst first; of one severity, harms that the verdict does not wait for come last.
    """
    risks = [_describe_risk(harm, result) for harm in Harm]
    risks += [_describe_loss(aim, result) for aim in dict.fromkeys(c.aim for c in result.rule_questions)]
    facts: dict[str, Risk] = {}
    for f in select_demonstrated(result.findings):
        if _is_asked(f, result):
            continue
        what = name_fact(f.title)
        row = Risk(finding=f.id, what=what, who=_name_adversary(f), note="certain", severity=f.severity)
        if (same := facts.setdefault(what, row)) is not row:
            same.also.append(f.id)
    found = [*(r for r in risks if r is not None), *facts.values()]
    waited = {c.id for c in result.cells if c.required}

    def weigh(r: Risk) -> tuple[int, bool, float]:
        is_waited = not r.cells or not waited.isdisjoint(r.cells)
        return Severity(r.severity).rank, is_waited, r.at_least / max(1, r.people)

    return sorted(found, key=weigh, reverse=True)


def _describe_risk(harm: Harm, result: AuditResult) -> Risk | None:
    """One harm by whoever can do it, as the reader who can do most; None where nobody is known to be hit."""
    shown = [q for q in result.questions if q.harm is harm and rate_cell(q).rank]
    if not shown:
        return None
    q = max(shown, key=lambda q: (rate_cell(q).rank, q.at_least))
    names = dict.fromkeys(i for x in (q, *shown) for i in x.findings)
    rated = {f.id: f for f in result.findings}
    ids = [i for i in names if i in rated and rated[i].severity.rank]
    groups = [g for g in q.groups if g.at_least > count_allowed_in_group(g.people, q.tolerable)]
    note = f"{groups[0].name}: at least {groups[0].at_least:,} of {groups[0].people:,}" if groups else ""
    return Risk(
        finding=ids[0] if ids else "",
        also=ids[1:],
        what=HARMS[harm],
        who=fmt.join_words(list(dict.fromkeys(fmt.name_observer(x.observer) for x in shown))),
        unit="clients" if harm is Harm.CLIENT_FACT else "people",
        at_least=q.surely_hit,
        at_most=None if q.at_most is None else max(q.at_most, q.surely_hit),
        people=q.people,
        note="; ".join(filter(None, (note, "more than a stated epsilon allows" if q.is_refuting else ""))),
        cells=list(dict.fromkeys(x.id for x in (q, *shown))),
        severity=rate_cell(q),
    )


def _describe_loss(aim: str, result: AuditResult) -> Risk | None:
    """What one kind of attackers costs the model, under the rule that stands it worst; None where nothing."""
    found = [c for c in result.rule_questions if c.aim == aim and c.at_least > 0]
    if not found:
        return None
    worst = max(found, key=lambda c: c.at_least)
    share = f", {fmt.percent(worst.malicious)} of the clients" if worst.malicious else ""
    who = "nobody: clients are absent" if worst.rule == "absent_clients" else f"malicious clients{share}"
    ids = [i for c in (worst, *found) for i in c.findings]
    return Risk(
        finding=ids[0] if ids else "",
        also=list(dict.fromkeys(ids[1:])),
        what=LOSSES[worst.aim],
        who=who,
        unit="% of answers",
        at_least=round(100 * worst.at_least),
        at_most=None if worst.at_most is None else round(100 * worst.at_most),
        people=100,
        note=f"rule {worst.rule.replace('_', ' ')}",
        cells=list(dict.fromkeys(c.id for c in (worst, *found))),
        severity=rate_cell(worst),
    )


def _name_adversary(finding: Finding) -> str:
    if finding.threat is None:
        return ""
    position = finding.threat.position.replace("_", " ")
    if finding.threat.conduct != "honest_but_curious":
        return f"a malicious {position}"
    return fmt.name_observer(finding.threat.position)
