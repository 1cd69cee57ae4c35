"""The ten questions that whoever signs asks, answered from what ran in at most forty words each.

No answer repeats a number of page 1, names an attack or a kind, or reassures but from a clear question.
"""

import re
from collections.abc import Callable, Sequence

from fedaudit.audit.verdict.findings import clear
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status, choose_bound, group_observers
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import Word
from fedaudit.reports.page import Answer
from fedaudit.reports.questions import Cell, Question, State, list_harms, name_cell
from fedaudit.reports.result import AuditResult, Finding, Outcome

MOST_NAMES = 3  # of one answer
MOST_WORDS = 40  # of an answer
MOST_DEFINED = 12
EVIDENCE, ASKED, SCOPE, SEEN = "Evidence by finding", "Questions and answers", "What was audited", "Who saw what"
LAW = "This report informs an impact assessment (GDPR Article 35(7)); it is no legal decision."
# Words of the pages, one line each; those that a run uses
WORDS = {
    "At least": "people hit beyond luck, 95 % sure",
    "At most": "limit by the policy's attacks, 95 % sure",
    "Exposed": "hit because their data were in",
    "Clear": "limit known and tolerated by the policy",
    "Open": "neither exposed nor clear",
    "Cannot test": "no attack exists on what is read",
    "Client": "organisation or device with data of its own",
    "Class": "category of examples: a digit, a diagnosis",
    "Guessing": "success without having seen a message",
    "Prototype": "average of a client's features, by class",
    "Severity": "how far beyond what is tolerated",
    "Epsilon": "a mathematical limit on what is learnt",
    "Untested": "the option's own audit did not answer it",
}


def answer_signer(result: AuditResult, word: Word, left: Sequence[Cell]) -> list[Answer]:
    """In the order in which they are asked."""
    ran = [f for f in result.findings if f.source == "attack" and f.outcome is Outcome.RAN]
    rows = [
        ("Who saw what?", _say_who_saw(result), SEEN),
        ("Who is worst off?", _describe_worst_off(result), EVIDENCE),
        ("How many could it be?", _describe_reach_of_limits(result), ASKED),
        ("Who can do it?", _name_attackers(ran, result), SEEN),
        ("How sure is it?", f"{_describe_planted_leaks(ran)} {_describe_false_alarms(ran)}", EVIDENCE),
        ("What was not tested?", _describe_gaps(result), ASKED),
        ("Does differential privacy limit the harm?", _describe_privacy(result), "Differential privacy budget"),
        ("Does it hold elsewhere?", _describe_reach(result), SCOPE),
        ("What does it mean in law?", _describe_law(result), "Anonymity dossier"),
        ("What should be done next?", _describe_next(word, left), "What each alternative changes"),
    ]
    return [Answer(question=question, answer=answer, where=where) for question, answer, where in rows]


def define_words(result: AuditResult) -> dict[str, str]:
    """The words that the pages of this audit use."""
    unused = set()
    if not any("prototype" in e.kind for e in result.exposures):
        unused.add("Prototype")
    if not any(isinstance(c, Question) and c.cannot_test for c in result.cells):
        unused.add("Cannot test")
    if len(result.alternatives) < 2:
        unused.add("Untested")
    words = {word: text for word, text in WORDS.items() if word not in unused}
    return dict(sorted([*words.items()][:MOST_DEFINED]))


def quantify(some: int, of: int) -> str:
    """How many of so many, in a word: page 1 has the numbers."""
    return "all" if some >= of else "most" if 2 * some > of else "some"


def _fit(write: Callable[[int], str], most: int) -> str:
    """The longest of `write(most)`, `write(most - 1)`, ... that an answer has room for."""
    return next((t for n in range(most, 0, -1) if len((t := write(n)).split()) <= MOST_WORDS), write(0))


# Words that a shorter answer does without: what each kind is stands in full in the appendix
SHORTER = (
    ("one client's ", "its "),
    (" one client holds", " it holds"),
    (" one client ", " it "),
    (" examples are behind each prototype", " of each class"),
    (" after its local training", ""),
    (" of each of its classes", " by class"),
    (" over all uploads", ""),
    ("'s weights", ""),
)


def _say_who_saw(result: AuditResult) -> str:
    """Every party with what it could read, in words; what single clients sent comes first."""
    seen: dict[str, list[str]] = {}
    read = [e for e in result.exposures if not e.party.lower().startswith("nobody")]
    for e in sorted(read, key=lambda e: not e.single_client):
        what = re.split(r"[:;,(] ?", e.description or "what is sent")[0].strip()
        for long, short in SHORTER:
            what = what.replace(long, short)
        party = f"{_name_party(e.party)}{', of each client' if e.single_client else ''}"
        seen.setdefault(party, []).append(f"{what[:1].lower()}{what[1:]}")
    if not seen:
        return "Not known: no message was recorded."
    stated = (
        "As its operator states, unconfirmed by messages: " if result.imported and result.imported.readers else ""
    )

    def write(most: int) -> str:
        said = []
        for party, what in seen.items():
            once = [*dict.fromkeys(what)]
            more = f" and {fmt.plural(len(once) - most, 'other kind')}" if len(once) > most else ""
            said.append(f"{party}: {', '.join(once[:most])}{more}.")
        return f"{stated}{' '.join(said)}"

    return _fit(write, max(map(len, seen.values())))


def _name_party(party: str) -> str:
    return {"server": "The server", "every selected client": "Clients", "every client": "Clients"}.get(
        party, fmt.sentence_case(fmt.name_observer(party) if party in fmt.OBSERVERS else party)
    )


def _describe_worst_off(result: AuditResult) -> str:
    """The group of which the largest share is hit."""
    groups = [g for q in result.questions for g in q.groups if g.at_least]
    if groups:
        worst = max(groups, key=lambda g: g.at_least / max(1, g.people))
        share = fmt.percent(worst.at_least / worst.people)
        return f"People of {worst.name}: there an attack hit {share} at least because their data were in."
    if result.questions and all(q.state is State.CLEAR for q in result.questions if q.required):
        return "Every group of twenty people or more was tested as well, and is within what the policy tolerates."
    return "Not known. No single group stands out beyond luck, and of small groups an audit can say little."


def _describe_reach_of_limits(result: AuditResult) -> str:
    """Whether it could be everybody."""
    asked = [q for q in result.questions if q.harm is not Harm.CLIENT_FACT]
    if not asked:
        return "Not known: no question was asked about people."
    unlimited = [q for q in asked if not q.has_limit]
    rows = "Do not add rows of page 1: one person may stand in several."
    if not unlimited:
        return f"No more than page 1 prints, by the policy's attacks in this run; others may hit more. {rows}"
    return (
        f"For {quantify(len(unlimited), len(asked))} questions about people no upper limit is known: it could be "
        f"everybody. {rows}"
    )


def _name_attackers(ran: Sequence[Finding], result: AuditResult) -> str:
    """Who reads enough to hit people, what of the other readers, and how attackers behaved."""
    able = dict.fromkeys(fmt.name_observer(q.observer) for q in result.questions if q.is_exposed)
    others = [q for q in result.questions if fmt.name_observer(q.observer) not in able]
    can = fmt.join_words(list(able))
    text = (
        f"{fmt.sentence_case(can)} can, by reading what {'it is' if len(able) == 1 else 'they are'} sent."
        if able
        else ""
    )
    if others:
        names = fmt.join_words([*dict.fromkeys(fmt.name_observer(q.observer) for q in others)])
        unknown = [q for q in others if q.state is State.OPEN]
        untestable = sum(q.cannot_test for q in unknown)
        state = "cannot be tested here" if untestable == len(unknown) else "are open"
        state += " or cannot be tested here" if 0 < untestable < len(unknown) else ""
        many = f"{fmt.sentence_case(quantify(len(unknown), len(others)))} questions about {names} {state}."
        text = f"{text} {many if unknown else f'Questions about {names} are clear.'}"
    return f"{text or 'Not known: no question was asked.'} {_describe_conduct(ran, result)}".strip()


def _describe_law(result: AuditResult) -> str:
    """What the audit is evidence for; the conclusion is a lawyer's."""
    if any(q.is_exposed for q in result.questions):
        text = "Treat the messages as personal data, because people were singled out"
    else:
        text = "Do not presume that the messages are anonymous"
    if any(q.observer == "public" for q in result.questions):
        text += ", and the model too: its anonymity was not shown (EDPB Opinion 28/2024)"
    return f"{text}. {LAW}"


def _describe_planted_leaks(ran: Sequence[Finding]) -> str:
    tried = [f for f in ran if any(e.control == "positive" for e in f.evidence)]
    if not tried:
        return "No leak was planted, so it is not known what the attacks would miss."
    found = [f for f in tried if any(clear(e) for e in f.evidence if e.control == "positive")]
    if len(tried) == len(found) == 1:
        return "The one attack for which leaks were planted found some."
    return f"{fmt.sentence_case(_count(found, tried))} attacks for which leaks were planted found some."


def _count(some: Sequence[object], of: Sequence[object]) -> str:
    return f"all {len(of)}" if len(some) == len(of) else f"{len(some)} of {len(of)}"


def _describe_false_alarms(ran: Sequence[Finding]) -> str:
    tried = [f for f in ran if any(e.control == "negative" for e in f.evidence)]
    if not tried:
        return "The rate of false alarms is not known."
    fired = [f for f in tried if any(clear(e) for e in f.evidence if e.control == "negative")]
    who = f"{fmt.plural(len(fired), 'control')} on people who took no part raised a false alarm"
    who = who if fired else "No control on people who took no part raised a false alarm"
    return f"{who} ({fmt.plural(len(tried), 'control')}). People on page 1 are counted beyond luck, 95 % sure."


def _describe_gaps(result: AuditResult) -> str:
    """What is open, and for want of what."""
    if not result.cells:
        return "All of it: no question was asked."
    left = [c for c in result.cells if not c.is_answered]
    lost = fmt.describe_unread(result.imported).partition(":")[0]
    unread = f"{lost}. " if lost else ""
    if not left:
        return (
            f"{unread}Every question was answered. Other attacks, other runs and other clients were not tested."
        )
    untestable = sum(isinstance(c, Question) and c.cannot_test for c in left)
    why = "Attacks were left out or saw too little."
    if untestable:
        some = fmt.sentence_case(quantify(untestable, len(left)))
        more = "; others were left out or saw too little" if untestable < len(left) else ""
        why = f"{some} need attacks that do not exist{more}."
    said: dict[str, list[str]] = {}
    for reader in dict.fromkeys(map(_name_reader, left)):
        said.setdefault(_list_left(reader, result.cells), []).append(reader)

    def write(most: int) -> str:
        shown = "; ".join(f"{what} by {fmt.join_words(readers)}" for what, readers in [*said.items()][:most])
        if not shown:
            shown = f"{len(left)} of {len(result.cells)} questions"
        elif len(said) > most:
            shown += "; others"
        return f"{unread}Unanswered: {shown}. {why} Untested means unknown."

    return _fit(write, len(said))


def _name_reader(cell: Cell) -> str:
    """Who would do it: one of those who read messages, or clients against the model."""
    if isinstance(cell, Question):
        return fmt.name_observer(cell.observer)
    return "absent clients" if name_cell(cell) == "dropout" else "malicious clients"


def _list_left(reader: str, cells: Sequence[Cell]) -> str:
    """What of a reader's questions has no answer."""
    own = [c for c in cells if _name_reader(c) == reader]
    left = [c for c in own if not c.is_answered]
    return "everything" if len(left) == len(own) > 1 else fmt.join_words(list_harms(left).split(", "))


def _describe_next(word: Word, left: Sequence[Cell]) -> str:
    """What follows from the word, what more time would answer, and where to look for better options."""
    first = {
        Word.NOT_READY: "Do not deploy as it is.",
        Word.CANNOT_TELL: "Do not deploy on this audit alone.",
        Word.WITH_CONDITIONS: "Treat what page 1 lists, or accept it in writing.",
        Word.READY: "Repeat the audit after every change of method, data or clients.",
    }[word]
    waiting = [c for c in left if c.next_attack]
    if waiting:
        seconds = {c.next_attack: c.seconds for c in waiting}
        time = _estimate([*seconds.values()])
        about = f" (about {time} of one core)" if time else ""
        first += f" Run the attacks that were left out{about}."
        if stay := sum(isinstance(c, Question) and c.cannot_test for c in left):
            first += (
                f" {fmt.sentence_case(quantify(stay, len(left)))} missing answers need attacks that do not exist."
            )
    elif left:
        first += " More time answers none of what is missing: it takes another attack, design or tool."
    if word in (Word.NOT_READY, Word.CANNOT_TELL):
        first += " `fedaudit harden` audits combinations of options."
    return first


def describe_more(left: Sequence[Cell]) -> str:
    """Which of these open questions more time would ask or settle, and how much of it; empty without any."""
    if not left:
        return ""
    waiting = [c for c in left if c.next_attack]
    untested = [c for c in left if isinstance(c, Question) and not c.next_attack and c.more]
    parts = []
    if waiting:
        seconds = {c.next_attack: c.seconds for c in waiting}
        names = sorted(seconds, key=lambda n: (seconds[n] or 0.0, n))
        time = _estimate([*seconds.values()])
        more = f" and {fmt.plural(len(names) - MOST_NAMES, 'other')}" if len(names) > MOST_NAMES else ""
        parts.append(
            f"{len(waiting)} of {fmt.plural(len(left), 'open required question')} lack attacks that this "
            "audit left "
            f"out{f' (about {time} of one core)' if time else ''}: {', '.join(names[:MOST_NAMES])}{more}."
        )
    if untested:
        time = _estimate([c.seconds for c in untested])
        parts.append(f"Testing more people{f' (about {time})' if time else ''} should settle {len(untested)}.")
    if rest := [c for c in left if c not in waiting and c not in untested]:
        stay = "stays" if len(rest) == 1 else "stay"
        parts.append(f"{len(rest)} {stay} open whatever the time budget.")
    return " ".join(parts)


def _estimate(seconds: Sequence[float | None]) -> str:
    """All of them in whole seconds, which is all that an estimate is good for; "" where one is not known."""
    known = [s for s in seconds if s is not None]
    return fmt.duration(max(1, round(sum(known)))) if len(known) == len(seconds) else ""


def _describe_conduct(ran: Sequence[Finding], result: AuditResult) -> str:
    threats = [f.threat for f in ran if f.threat]
    bad = list(dict.fromkeys(t.position.replace("_", " ") for t in threats if t.conduct == "malicious"))
    text = "No attack ran."
    if ran:
        text = f"Attacks by a malicious {', '.join(bad)} ran."
        text = text if bad else "Only attackers that follow the protocol were tested."
    tried = "Malicious clients attacked the model." if result.robustness else "No malicious client was tested."
    return f"{text} {tried}"


def _describe_privacy(result: AuditResult) -> str:
    if not result.bounds:
        return (
            "Unknown: no accountant was run."
            if result.questions
            else "Not a question: no message holds anybody's data."
        )
    refuted = [b for b in result.bounds if b.status is Status.REFUTED]
    if refuted:
        towards = fmt.join_words(list(dict.fromkeys(fmt.name_observer(b.observer) for b in refuted)))
        return f"No: the epsilon that is stated towards {towards} is refuted, so no limit holds there."
    quoted = [choose_bound(result.bounds, o) for o in dict.fromkeys(b.observer for b in result.bounds)]
    shown = group_observers([b for b in quoted if b and b.holds])

    def write(most: int) -> str:
        return " ".join(
            f"Towards {observers}: epsilon {label_bound(b)}, per {b.unit}, delta {fmt.number(b.delta)}."
            for observers, b in shown[:most]
        )

    if shown:
        return _fit(write, len(shown))
    why = [r.sentence for b in result.bounds for r in b.reasons]
    if why and all(w.endswith("sent without noise") for w in why):
        said = (
            "Some messages leave their client" if result.scope.protections else "Every message leaves its client"
        )
        return f"No. {said} without noise, so no epsilon exists."
    first = (
        f"{why[0].replace('_', ' ').rstrip('.')}, so no mathematical limit applies" if why else "no bound holds"
    )
    return f"No: {first}."


def _describe_reach(result: AuditResult) -> str:
    run = "recorded run" if result.imported else "simulated run"
    data = result.scope.dataset.replace("_", " ")
    return (
        f"Not known: this was one {run} on {data}. Other data, models or group sizes give other rates. Repeat "
        "the audit on your own federation."
    )
