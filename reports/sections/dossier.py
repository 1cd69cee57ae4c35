"""Anonymity dossier: what authorities and standards ask, each row answered from this audit, or named as
one that no audit answers.

Sources: EDPB Opinion 28/2024, paragraphs 46, 55 and 58; OWASP AISVS 1.0, C11.2; NIST AI RMF 1.0 (NIST AI 100-1),
table 3; CNIL, status of an AI model with regard to the GDPR (22 July 2025); EDPS, guidance for risk management of
AI systems (11 November 2025). Rows are our paraphrases.
"""

from collections.abc import Callable, Sequence

from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.format import plural
from fedaudit.reports.questions import Cell, count_states
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Heading, Paragraph, Section, Table

OUTSIDE = "Not answered by an audit:"
Answer = Callable[[AuditResult], str]
Row = tuple[str, str, Answer | None]  # source, what it asks, and the answer; None: no audit gives one


class Dossier(Section):
    card = Card(title="Anonymity dossier", order=93)

    def build(self, result: AuditResult) -> list[Block]:
        if result.decision is None:
            return []
        return [
            Paragraph(
                "The tables hold what this audit answers; what no audit answers is listed below them. Successful "
                "tests are evidence against the attacks that ran, and no proof of anonymity. Rows are "
                "paraphrases: compare them with the official texts."
            ),
            Heading("EDPB Opinion 28/2024"),
            *_answer("EDPB", EDPB, result),
            Heading("OWASP, NIST, CNIL and EDPS"),
            *_answer("OWASP, NIST, CNIL and EDPS", STANDARDS, result),
        ]


def _answer(of: str, rows: Sequence[Row], result: AuditResult) -> list[Block]:
    """A table of the rows that this audit answers, and a sentence with those that no audit does."""
    answered = [[source, asked, answer(result)] for source, asked, answer in rows if answer]
    outside = [
        f"{source} ({asked[:1].lower()}{asked[1:].rstrip('?')})" for source, asked, answer in rows if not answer
    ]
    return [
        Table(
            header=["Source", "What it asks", "Answer"],
            rows=answered,
            align="lll",
            widths=[1.7, 3.2, 4.6],
            caption=f"What is asked by {of}, and what this audit answers.",
            numbered=False,
        ),
        Paragraph(f"*{OUTSIDE}* {'; '.join(outside)}."),
    ]


def _describe_states(questions: Sequence[Cell]) -> str:
    """How many questions there are, and how many of them stand in which state."""
    if not questions:
        return "No message of this run raises the question."
    return f"{plural(len(questions), 'question')}: {count_states(questions)}."


def _of_harm(*harms: Harm) -> Answer:
    return lambda result: _describe_states([q for q in result.questions if q.harm in harms])


def _about_people(result: AuditResult) -> str:
    return _describe_states(result.questions)


def _about_the_model(result: AuditResult) -> str:
    mine = result.rule_questions
    return _describe_states(mine) if mine else "Not tested: no attacker of the model is declared."


def _list_readers(result: AuditResult) -> str:
    readers = ", ".join(dict.fromkeys(e.party for e in result.exposures)) or "nobody that was recorded"
    day = result.system.deployment or "not stated"
    text = f"Messages could be read by: {readers}. Day of deployment: {day}."
    return f"{text} An audit does not know the terms of access."


def _describe_privacy(result: AuditResult) -> str:
    shown = dict.fromkeys(
        f"{b.observer}: epsilon {label_bound(b)}, per {b.unit}" for b in result.bounds if b.holds
    )
    return f"{'; '.join(shown)}." if shown else "No differential-privacy bound holds."


def _list_attackers(result: AuditResult) -> str:
    found = dict.fromkeys(
        f"{t.position} ({t.conduct})".replace("_", " ")
        for t in (f.threat for f in result.findings)
        if t is not None
    )
    return f"{', '.join(found) or 'No attack ran'}. Each finding names position, conduct and prior knowledge."


def _count_planted(result: AuditResult) -> str:
    ran = [f for f in result.findings if f.source == "attack" and f.evidence]
    planted = sum(any(e.control == "positive" for e in f.evidence) for f in ran)
    if not ran:
        return "No attack ran, so none is known to work."
    return f"A leak was planted for {planted} of {plural(len(ran), 'attack')}; see Evidence by finding."


def _list_gaps(result: AuditResult) -> str:
    return _describe_states([c for c in result.cells if not c.is_answered])


def _state_verdict(result: AuditResult) -> str:
    return f"{result.verdict.word.words}. An audit draws no legal conclusion."


EDPB: tuple[Row, ...] = (
    ("Paragraph 46", "Context in which the model is released and used, and who has access", _list_readers),
    ("Paragraph 55", "Tests of membership inference", _of_harm(Harm.MEMBERSHIP, Harm.DIFFUSE)),
    ("Paragraph 55", "Tests of attribute inference", _of_harm(Harm.ATTRIBUTE, Harm.CLIENT_FACT)),
    ("Paragraph 55", "Tests of exfiltration", _of_harm(Harm.RECORD)),
    ("Paragraph 55", "Tests of regurgitation of training data", _of_harm(Harm.RECONSTRUCTION)),
    ("Paragraph 55", "Tests of model inversion", _of_harm(Harm.RECONSTRUCTION)),
    ("Paragraph 55", "Tests of reconstruction", _of_harm(Harm.RECONSTRUCTION)),
    ("Paragraph 58", "Documentation: threat models of the tests", _list_attackers),
    ("Paragraph 58", "Documentation: measures taken, and their measured effect", _describe_privacy),
    ("Paragraph 58", "Documentation: impact assessment, advice of the data-protection officer", None),
)
STANDARDS: tuple[Row, ...] = (
    ("OWASP AISVS 11.2.1", "Inferred sensitive attributes are not returned in outputs", None),
    ("OWASP AISVS 11.2.2", "Limits on the rate of queries", None),
    ("OWASP AISVS 11.2.3", "Outputs are calibrated", None),
    ("OWASP AISVS 11.2.4", "Differentially private training on sensitive data", _describe_privacy),
    (
        "OWASP AISVS 11.2.5",
        "Simulated membership inference is no better than guessing",
        _of_harm(Harm.MEMBERSHIP, Harm.DIFFUSE),
    ),
    ("NIST AI RMF, MEASURE 1.1", "Risks that were not measured are documented", _list_gaps),
    ("NIST AI RMF, MEASURE 2.7", "Security and resilience are evaluated", _about_the_model),
    ("NIST AI RMF, MEASURE 2.10", "Privacy risk is examined", _about_people),
    ("NIST AI RMF, MEASURE 2.11", "Fairness and bias are evaluated", None),
    ("NIST AI RMF, MEASURE 2.13", "The tests themselves are evaluated", _count_planted),
    ("CNIL, 22 July 2025", "Re-identification attacks are tested and documented", _about_people),
    ("CNIL, 22 July 2025", "Is the model subject to the GDPR?", _state_verdict),
    ("CNIL, 22 July 2025", "Legal basis, information, rights of the people concerned", None),
    ("EDPS, 5.4.3", "Leakage of personal data through programming interfaces", None),
    ("EDPS, 5.5.1 and 5.5.2", "Identification, rectification and erasure of personal data", None),
)
