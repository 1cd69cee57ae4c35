"""The finding about claimed counts: which clients' updates contradict what they claim to hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Outcome
from fedaudit.reports.robustness import CheckedCount, CheckedCounts

LITTLE = 0.05  # of the length of an honest change: no work was done
SHORT = 0.75  # of the length of an honest change: less work than was claimed
MOST_NAMED = 6  # clients that a sentence names


@dataclass(frozen=True)
class Contradicted(Subject):
    """Every client's claim; named are those that are further from honest ones than honest ones ever are."""

    checked: CheckedCounts

    @property
    def found(self) -> Sequence[Fact]:
        return [Fact(measure="contradicted_counts", value=len(self.checked.contradicted))]

    @property
    def not_gradable(self) -> Verdict | None:
        if self.checked.reason:
            return Verdict(outcome=Outcome.NOT_APPLICABLE, reason=f"Not checked: {self.checked.reason}.")
        if self.checked.missed:
            missed = ", ".join(self.checked.missed)
            return Verdict(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"Planted lies could not be distinguished from honest clients here ({missed}), so nobody "
                "is named, and that means nothing.",
            )
        return None

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        title = {
            Outcome.DEMONSTRATED: "Some clients' updates contradict what these clients claim to hold",
            Outcome.NOT_DEMONSTRATED: "No client's update contradicts what the client claims to hold",
            Outcome.INCONCLUSIVE: "Whether updates contradict what clients claim to hold is not known",
        }
        return {
            "id": "claimed-counts",
            "title": title.get(verdict.outcome, "What clients claim to hold was not compared with their updates"),
            "source": "robustness",
            "method": "Claimed counts beside labels read off updates",
            "reference": "arXiv:2410.05020 (FRIDA), with labels in the place of membership",
            "summary": self.checked.reason or self._summarise(),
            "does_not_show": f"{self._describe_unseen()}Lies that are smaller than the error of the check, and "
            "whether a client that is named lies or holds examples unlike the auditor's. What names liars is a "
            "leak: the server learns the same of honest clients (label_counts_from_update), and secure "
            "aggregation takes both away.",
            "remedy": "Weigh clients alike or cap what they claim (`aggregator: capped_mean`), and look into the "
            "clients that are named."
            if verdict.outcome is Outcome.DEMONSTRATED
            else "",
        }

    def _describe_unseen(self) -> str:
        why = self.checked.blind_to_copies
        return f"A free rider that sends the shared model's last change with noise: {why}. " if why else ""

    def _summarise(self) -> str:
        c = self.checked
        named = sorted(c.contradicted, key=lambda x: x.shown)
        sentences = [_describe_count(x) for x in named[:MOST_NAMED]]
        sentences += [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        listed = f"{'; '.join(sentences)}. " if sentences else ""
        left = f" {c.left_out} more were not checked: too few examples, or no time." if c.left_out else ""
        return (
            f"{listed}The change of the last layer of {fmt.plural(len(c.clients), 'client')} was compared with "
            "that of honest clients that hold what is claimed, made of the auditor's own examples. A claim is "
            f"contradicted where less than {100 * c.floor:.0f} % of that change is seen, or where more than "
            f"{c.bound:.2f} of its length lies between the two, unless an honest client that holds as much is "
            f"as far away. {c.probes} honest clients of the auditor showed at least {100 * c.least:.0f} % and "
            f"were at most {c.worst:.2f} away. Of {c.planted} planted lies {c.planted - len(c.missed)} were "
            f"seen.{left}"
        )


def _describe_count(c: CheckedCount) -> str:
    """What one client claims and what its update looks like."""
    if c.copied:
        like = "its update is the last change of the shared model with noise, as of a free rider"
    elif c.length < LITTLE:
        like = "its update shows next to no training, as of a free rider"
    elif c.length < SHORT:
        seen = f"{100 * max(0.0, c.shown):.0f} %"
        like = f"its update shows {seen} of the change of so many, as with an inflated count"
    else:
        like = "its update goes elsewhere than training on these classes does, as with false labels"
    return f"Client {c.client} claims {c.claimed:,.0f} examples; {like}"
