"""Canary clients: participants of the auditor's own, the only ones whose members it needs to be told of."""

from collections.abc import Mapping

from fedaudit.audit.case.case import Split
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.fl.artifact import Party
from fedaudit.fl.runtime.errors import UserError


def canaries(subject: RecordedSubject, examples: Split, nodes: Mapping[str, str]) -> list[str]:
    """The parties that subject.canaries names; `nodes`: client/3 -> node.

    Raises UserError where the inbox knows no such node, or no truth of it was given.
    """
    party = {node: p for p, node in nodes.items()}
    found = []
    for node in subject.canaries:
        if node not in party:
            raise UserError(
                f"canaries names node {node!r:.60}, which the inbox does not know",
                hint=f"it knows {', '.join(sorted(party)[:5]) or 'no nodes'}",
                key="subject.canaries",
            )
        if Party.parse(party[node]).index not in examples.parts:
            raise UserError(
                f"canaries names node {node!r:.60}, and no truth of it was given",
                hint="give what your own client trained on: --truth with its NAME.npz",
                key="subject.canaries",
            )
        found.append(party[node])
    return found
