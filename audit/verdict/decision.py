"""The decision: findings, coverage and the policy's grounds become one word, three numbers and a row a harm.

The word is never better than its evidence: a policy must say what it takes for "cannot tell" (audit/verdict/
policy.py), and grounds are tried in the policy's order. Page 1, every command and every export print this word.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.measure import named
from fedaudit.audit.verdict.answers import answers
from fedaudit.audit.verdict.policy import Ground, Policy, load_policy
from fedaudit.audit.verdict.terms import NO_TERMS, Terms, demonstrated
from fedaudit.reports import format as fmt
from fedaudit.reports.covered import Coverage
from fedaudit.reports.decision import Decision, KeyNumber, Odds, Risk, Word
from fedaudit.reports.result import AuditResult, Finding, Outcome, Severity

OPEN = (Outcome.INCONCLUSIVE, Outcome.FAILED)
REQUIRED, ACCEPTED = "required", "accepted"  # grounds of the reviewer's own
MOST_ODDS = 3  # sizes of groups of one row
# What is proved or seen rather than measured, by patterns of the policy's measures
FACTS = {
    "raw_examples_sent": "Clients' own examples are sent as they are",
    "untrue_counts": "What clients send as a number of examples is another number",
    "contradicted_counts": "Clients claim to hold what their own updates contradict",
    "understated_bytes": "Messages take more bytes than is stated",
    "epsilon_upper": "No useful mathematical limit (differential privacy) on what a better attack learns",
    "accountants_disagree": "The mathematical limit that is stated may be wrong",
    "claim_refuted": "The mathematical limit that is stated does not hold",
    "above_certified": "Malicious clients did more than the stated noise allows",
    "absence_drop": "Clients that do not answer make the model wrong",
    "class_lost": "The model forgets a class while the clients that hold it are away",
    "lint_R*": "The test of the defences leaves something out",
    "lint_L*": "The mathematical limit that is stated does not cover what ran",
}


def decide(result: AuditResult, policy: Policy, terms: Terms = NO_TERMS) -> Decision:
    """The verdict of an audit that has all else: the only place where one is made.

    The grounds of the policy are tried in their order. A reviewer's bar stands in for theirs, what somebody
    accepts or the baseline has does not forbid a deployment but remains a condition, and a requirement that was
    not met leaves the verdict open.
    """
    grounds = _grounds(policy, terms)
    held = next((g for g in grounds if _is_met(g, result, terms)), None)
    word, rule = (Word(held.verdict), held.id) if held else (Word.READY, "")
    if terms.unmet and word is not Word.NOT_READY:
        word, rule = Word.CANNOT_TELL, REQUIRED
    elif word is Word.READY and (terms.accepted or terms.known):
        word, rule = Word.WITH_CONDITIONS, ACCEPTED
    bar = min((g.demonstrated for g in grounds if g.demonstrated and _forbids(g)), key=_rank, default=None)
    failing = [f.id for f in demonstrated(result.findings) if bar and f.severity.rank >= bar.rank]
    shown = risks(result, policy)
    return Decision(
        word=word,
        rule=rule,
        sentence=_sentence(held if held and held.id == rule else None, result, terms, rule),
        numbers=_numbers(result, shown),
        risks=shown,
        answers=answers(result),
        bar=bar or "",
        failing=[i for i in failing if i not in terms.accepted and i not in terms.known],
        accepted=dict(terms.accepted),
        known=list(terms.known),
        unmet=[*terms.unmet],
    )


def _grounds(policy: Policy, terms: Terms) -> list[Ground]:
    """Those of the policy, with the reviewer's bar in place of theirs."""
    grounds = list(policy.decision or load_policy("default").decision)
    if terms.fail_on is None:
        return grounds
    bar = Ground(
        id="fail-on",
        verdict=Word.NOT_READY,
        demonstrated=terms.fail_on,
        reason=f"The reviewer's bar is {terms.fail_on}: a finding at or above it forbids a deployment.",
    )
    return [bar, *(g for g in grounds if not (_forbids(g) and g.demonstrated))]


def _forbids(ground: Ground) -> bool:
    return ground.verdict == Word.NOT_READY


def _rank(severity: Severity) -> int:
    return severity.rank


def _is_met(ground: Ground, result: AuditResult, terms: Terms) -> bool:
    """Whether a ground is met by the whole audit; what is accepted or known forbids nothing."""
    findings, coverage = result.findings, result.headline.coverage
    if ground.demonstrated is not None:
        counted = [f for f in demonstrated(findings) if not (_forbids(ground) and terms.forgives(f))]
        return any(f.severity.rank >= ground.demonstrated.rank for f in counted)
    if ground.ran_below is not None:
        return coverage.ran < ground.ran_below
    if ground.attacked_below is not None:
        return attacked_share(coverage) < ground.attacked_below
    assert ground.open_above is not None
    return sum(f.outcome in OPEN for f in findings) > ground.open_above


def attacked_share(coverage: Coverage) -> float:
    """Of all that was sent and may tell something, by who could read it, the share that was attacked."""
    telling = [a for a in coverage.artifacts if a.status != "tells_nothing"]
    return sum(a.status in ("attacked", "elsewhere") for a in telling) / len(telling) if telling else 0.0


def _sentence(held: Ground | None, result: AuditResult, terms: Terms, rule: str) -> str:
    """What was found, by severity, how much was looked at, and why that means what it means."""
    findings, coverage = result.findings, result.headline.coverage
    shown = [f.severity for f in demonstrated(findings)]
    parts = [f"{shown.count(s)} {s}" for s in Severity if s in shown]
    text = f"{', '.join(parts)} demonstrated" if parts else "Nothing was demonstrated"
    unanswered = sum(f.outcome in OPEN for f in findings)
    text += f", {unanswered} left open" if unanswered else ""
    text += f", {len(terms.accepted)} accepted by name" if terms.accepted else ""
    text += f", {len(terms.known)} known from the baseline" if terms.known else ""
    text += f"; {coverage.ran} of {fmt.plural(coverage.applicable, 'attack')} that apply ran."
    reasons = {
        REQUIRED: f"{fmt.plural(len(terms.unmet), 'requirement')} not met: {'; '.join(terms.unmet)}.",
        ACCEPTED: "What was demonstrated is accepted, and that is a condition.",
        "": "No ground of the policy speaks against it.",
    }
    text += f" {' '.join(held.reason.split()) if held else reasons[rule]}"
    return f"{text} {' '.join(f'{r}.' for r in terms.refused)}".rstrip()


def risks(result: AuditResult, policy: Policy) -> list[Risk]:
    """What was demonstrated, worst first; findings of one harm by one party are one row."""
    rows: dict[tuple[str, str], Risk] = {}
    for finding in demonstrated(result.findings):
        row = _risk(finding, result, policy)
        same = rows.setdefault((row.what, row.who), row)
        if same is not row:
            same.also.append(finding.id)
    return list(rows.values())


def _risk(finding: Finding, result: AuditResult, policy: Policy) -> Risk:
    measures = [c.measure for r in policy.rules if r.id == finding.rule for c in r.all]
    here = [e for e in finding.evidence if e.control == "none" and e.place == finding.where]
    quoted = next(
        (e for m in measures for e in here if fnmatchcase(e.measure, m) and named(e.measure).harm), None
    )
    fact = next((words for name, words in FACTS.items() for m in measures if fnmatchcase(name, m)), "")
    fact = fact or next((words for name, words in FACTS.items() for m in measures if fnmatchcase(m, name)), "")
    what = named(quoted.measure).harm if quoted else fact or finding.title
    odds = _odds(finding, quoted) if quoted else []
    return Risk(
        finding=finding.id,
        what=what,
        who=_who(finding),
        whom=_whom(finding, quoted, result),
        odds=odds,
        note="" if odds else _note(finding, quoted),
        severity=finding.severity,
    )


def _odds(finding: Finding, quoted: Evidence) -> list[Odds]:
    """The measure that was graded, there and at larger groups; none where it is no share."""
    if quoted.unit != "fraction":
        return []
    if "n" not in quoted.condition:
        return [_odd(quoted, None, quoted)]
    origin = quoted.condition.get("origin")
    curve = [
        e
        for e in finding.evidence
        if e.measure == quoted.measure and e.control != "negative" and e.condition.get("origin") == origin
    ]
    larger = sorted((e for e in curve if _size(e) >= _size(quoted)), key=_size)
    last = len(larger) - 1
    picked = sorted({0, min(1, last), last})[:MOST_ODDS]
    return [_odd(larger[i], _size(larger[i]), quoted) for i in picked]


def _odd(e: Evidence, group: float | None, quoted: Evidence) -> Odds:
    guess = e.strongest.value if e.strongest else None
    return Odds(group=group, value=e.value, interval=e.interval, guess=guess, graded=e is quoted)


def _size(e: Evidence) -> float:
    return float(e.condition.get("n", 0))


def _note(finding: Finding, quoted: Evidence | None) -> str:
    if quoted:
        beside = f"; guessing {fmt.quantity(quoted.strongest.value, quoted.unit)}" if quoted.strongest else ""
        return f"{named(quoted.measure).words} {fmt.quantity(quoted.value, quoted.unit)}{beside}"
    return "certain: it is in the message" if finding.source == "disclosure" else "not a matter of chance"


def _who(finding: Finding) -> str:
    if finding.threat is None:
        return ""
    position = finding.threat.position.replace("_", " ")
    if finding.threat.conduct != "honest_but_curious":
        return f"a malicious {position}"
    known = {"server": "the server", "client": "another client", "public": "whoever gets the model"}
    return known.get(position, position)


def _whom(finding: Finding, quoted: Evidence | None, result: AuditResult) -> str:
    """Whom it touches, with a number where one is known."""
    if finding.source == "robustness":
        return "everybody who uses the model"
    if finding.source == "lint":
        return "whoever relies on the stated limit"
    if quoted and "count" in quoted.measure:
        return fmt.plural(result.scope.clients, "client")
    held = sum(map(sum, result.scope.counts))
    return f"all {held:,} examples" if held else fmt.plural(result.scope.clients, "client")


def _numbers(result: AuditResult, found: Sequence[Risk]) -> list[KeyNumber]:
    """Who is exposed, how surely, by whom; where nothing was demonstrated, how much that rests on."""
    coverage = result.headline.coverage
    if not found:
        telling = [a for a in coverage.artifacts if a.status != "tells_nothing"]
        done = sum(a.status in ("attacked", "elsewhere") for a in telling)
        unanswered = sum(f.outcome in OPEN for f in result.findings)
        return [
            KeyNumber(shown=f"{coverage.ran} of {coverage.applicable}", text="attacks that apply were run"),
            KeyNumber(
                shown=f"{done} of {len(telling)}",
                text="artifacts (a kind of message and who could read it) were attacked",
            ),
            KeyNumber(
                shown=f"{unanswered:,}", text="questions were left open: an attack failed or could not tell"
            ),
        ]
    numbers = [_people(result, found)]
    sure = next((r for r in found if r.odds), None)
    if sure:
        best = next((o for o in sure.odds if o.graded), sure.odds[0])
        where = "" if best.group is None else f" in groups of {best.group:,.0f}"
        span = f" ({fmt.interval(best.interval, 'fraction')})" if best.interval else ""
        guess = "" if best.guess is None else f"; guessing: {fmt.percent(best.guess)}"
        text = f"of tries{where} succeed{span}{guess}: {_lower(sure.what)}"
        numbers.append(KeyNumber(shown=fmt.percent(best.value), text=text))
    parties = [r.who for r in found if r.who]
    top = max(dict.fromkeys(parties), key=parties.count, default="")
    if top:
        text = f"of the harms below need nobody but {top}"
        numbers.append(KeyNumber(shown=f"{parties.count(top)} of {len(found)}", text=text))
    return numbers


def _people(result: AuditResult, found: Sequence[Risk]) -> KeyNumber:
    """The head count; where no attack said which people it hits, whom the worst finding may touch."""
    if not result.people:
        return KeyNumber(shown=fmt.sentence_case(found[0].whom), text=f"may be touched: {_lower(found[0].what)}")
    heads = result.people
    low, high = heads.interval
    return KeyNumber(
        shown=f"{heads.expected:,.0f} of {heads.people:,}",
        text=f"people are exposed beyond luck ({low:,} to {high:,} at 95 % confidence)",
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
