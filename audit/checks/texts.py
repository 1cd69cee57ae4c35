"""Texts: what follows from the data: words that a vocabulary gives away, people in several texts, copies."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from fedaudit.audit.accounting.status import list_units
from fedaudit.audit.case.case import ObservedFederation, Split
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl import ledger
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.population import content
from fedaudit.reports.result import Finding, Severity

PLUGINS = ("private_vocabulary", "text_unit", "repeated_texts")


class PrivateVocabulary(Check):
    """Private vocabulary: the list of words that everybody has was chosen by clients' own text (lint T1)."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        schema = federation.data.schema
        if not federation.data.is_text or schema is None or not schema.private:
            return
        yield Finding(
            id="private-vocabulary",
            title="The vocabulary names words of clients' texts",
            summary=f"The {len(schema.pieces):,} pieces that text is cut into were chosen by {schema.origin}, "
            "which clients hold. Whoever has the model has the list, and reads frequent names and numbers in it.",
            severity=Severity.MEDIUM,
            reason="Frequent names and numbers of clients' texts stand in a list that comes with the model.",
            artifacts=["global_model"],
            does_not_show="which client or person has such a word",
            remedy="choose the pieces by public text alone (vocabulary_from: public), with pieces of one and two "
            "letters below the words, so that nothing is lost",
        )


class TextUnit(Check):
    """Text unit: privacy is bounded for one text, or another example, and people have several (lint T5)."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        data, folder = federation.data, federation.artifacts
        path = None if folder is None else RunDir(folder.parent).ledger
        if path is None or not path.is_file() or "record" not in list_units(ledger.read(path)):
            return
        counts = count_by_owner(data, federation.examples)
        several = sum(n > 1 for n in counts.values())
        if not several:
            return
        one, article = ("text", "a") if data.is_text else ("example", "an")
        yield Finding(
            id="unit-below-person",
            title=f"The mathematical limit is one of {article} {one}, and people have several",
            summary=f"{several:,} of {len(counts):,} people have more than one {one}, at most "
            f"{max(counts.values())}. A bound that holds for each {one} alone does not hold for such a person.",
            severity=Severity.MEDIUM,
            reason="The limit for a person with several is larger, and nobody stated it.",
            artifacts=[str(k) for k in federation.card.uplink if not k.about],
            does_not_show=f"what a bound for people would be; epsilon grows at least with their number of {one}s",
            remedy=f"state the bound for people: clip what all {one}s of a person change together, or keep one "
            f"{one} of each",
        )


class RepeatedTexts(Check):
    """Repeated texts: the same text stands at several clients, or in what an adversary has (lint T7)."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        data, examples = federation.data, federation.examples
        if not data.is_text or not examples.parts:
            return
        holders: defaultdict[bytes, set[int]] = defaultdict(set)
        for client, rows in examples.parts.items():
            for row in rows.tolist():
                holders[content(data.train.x[row])].add(client)
        outside = {content(x) for x in data.train.x[examples.auxiliary]}
        outside |= {content(x) for x in data.train.x[examples.reference]}
        shared = sum(len(clients) > 1 for clients in holders.values())
        known = sum(mark in outside for mark in holders)
        if not shared + known:
            return
        yield Finding(
            id="repeated-texts",
            title="The same text stands in two places",
            summary=f"{shared:,} texts are held by more than one client, and {known:,} stand among those that an "
            "adversary or the auditor has besides. No attack shows of such a text that it was read from a "
            "message.",
            severity=Severity.LOW,
            reason="Such texts make attacks look better, and bounds for one of them too small.",
            does_not_show="texts that are the same but for a word",
            remedy="remove repeated texts before they are divided among clients and held out",
        )


def count_by_owner(data: Data, examples: Split) -> Counter[int]:
    """Person -> texts that clients train on; empty where nobody said whose they are."""
    owner = data.train.owner
    parts = [rows for rows in examples.parts.values() if len(rows)]
    if owner is None or not parts:
        return Counter()
    return Counter(owner[np.concatenate(parts)].tolist())
