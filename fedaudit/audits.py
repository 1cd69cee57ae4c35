"""Audits from Python: run one, or open one that ran; then read its verdict, findings, evidence and messages."""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.gate import Reviewer, judge_folder
from fedaudit.audit.cli.show import progress
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.phases.import_ import ImportSources, bring, list_copies, state_inbox
from fedaudit.audit.planning.load import find_config, load_config, make_config
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.document import compose
from fedaudit.reports.imported import CheckedStatement, ImportRecord
from fedaudit.reports.questions import Question
from fedaudit.reports.renderers.html import Html
from fedaudit.reports.result import Alternative, AuditResult, Figure, Finding, History
from fedaudit.reports.section import Section
from fedaudit.tables import Chart, Row, Table, describe_evidence

PAGE_HEIGHT = 900  # pixels of the decision page in a notebook


class Verdict(str):
    """The word of an audit: "ready", "ready_with_conditions", "not_ready" or "cannot_tell". `why` says why."""

    why: str

    def __new__(cls, word: str, why: str) -> "Verdict":
        verdict = super().__new__(cls, word)
        verdict.why = why
        return verdict


class AuditedFinding(Finding):
    """A finding with its figures. A notebook shows what was done, what came out and what to do."""

    figures: list[Figure]

    def to_frame(self) -> Any:
        """Its measurements as a pandas DataFrame."""
        return Table(self.evidence, describe_evidence).to_frame()

    def plot(self) -> Chart:
        """Draw its figures. Raises UserError where it has none."""
        return _tabulate([self]).plot()

    def _repr_html_(self) -> str:
        parts = {"What": self.summary, "Why this grade": self.reason, "What to do": self.remedy}
        told = "".join(f"<p><b>{k}.</b> {html.escape(v)}</p>" for k, v in parts.items() if v)
        measured = Table(self.evidence, describe_evidence)._repr_html_() if self.evidence else ""
        return f"<h4>{html.escape(self.title)} ({self.severity}, {self.outcome})</h4>{told}{measured}"


class Audit:
    """A finished audit. A notebook shows its decision page; `folder` has its report."""

    def __init__(self, folder: str | Path, result: AuditResult | None = None) -> None:
        self.folder = Path(folder)
        self._run = RunDir.open(self.folder)
        self.result: AuditResult = result or read_result(self._run.path)

    @property
    def verdict(self) -> Verdict:
        decision = self.result.decision
        if decision is None:
            raise UserError(f"{self.folder} holds no verdict", hint="run it again with this version")
        return Verdict(decision.word.value, decision.page.sentence)

    @cached_property
    def findings(self) -> "Table[AuditedFinding]":
        """One row a finding, severest first; an index is its id."""
        drawn, found = self.result.figures, self.result.findings
        return _tabulate(
            [AuditedFinding(**dict(f), figures=[g for g in drawn if g.finding == f.id]) for f in found]
        )

    @property
    def evidence(self) -> Table[tuple[str, Evidence]]:
        """One row a measurement: (id of its finding, the measurement)."""
        pairs = [(f.id, e) for f in self.result.findings for e in f.evidence]
        return Table(pairs, _describe_pair)

    @property
    def questions(self) -> Table[Question]:
        """One row a question that was asked of the federation, and how it stands."""
        return Table(self.result.questions, lambda q: q.model_dump(mode="json"), name=lambda q: q.id)

    @property
    def bounds(self) -> Table[PrivacyBound]:
        """One row a limit on the privacy loss, with its status."""
        return Table(self.result.bounds, _describe_bound, draw=lambda _: self._find_budgets())

    @property
    def metrics(self) -> Table[History]:
        """One row a measured round: accuracy (a fraction), who delivered, bytes."""
        return Table(self.result.history, _describe_round, draw=_draw_accuracy)

    @property
    def options(self) -> Table[Alternative]:
        """One row an option that was measured; the audited run comes first."""
        return Table(self.result.alternatives, _describe_option, name=lambda a: a.name)

    @property
    def messages(self) -> Table[dict[str, Any]]:
        """One row a recorded message: round, sender, who could see it, kinds and bytes, without what it says."""
        lines = [line for line in manifest(self._run.artifacts) if "message" in line]
        return Table(lines, _describe_message, name=lambda line: str(line["message"]))

    def to_frame(self) -> Any:
        """The findings as a pandas DataFrame."""
        return self.findings.to_frame()

    def plot(self) -> Chart:
        """All figures of the report."""
        return Chart(self.result.figures)

    def _find_budgets(self) -> list[Figure]:
        return [figure for figure in self.result.figures if figure.y_label.startswith("epsilon")]

    def _repr_html_(self) -> str:
        sections = [catalog.load("sections", name) for name in catalog.names("sections")]
        front: list[type[Section]] = [s for s in sections if s.card.front]
        page = Html().render(compose(self.result, front)).decode()
        frame = f'title="Decision page" width="100%" height="{PAGE_HEIGHT}" style="border:0"'
        return f'<iframe srcdoc="{html.escape(page)}" {frame}></iframe>'

    def __repr__(self) -> str:
        decision = self.result.decision
        return f"<Audit {self.folder}: {decision.line if decision else self.result.headline.sentence}>"


def run(
    config: str | Path | Mapping[str, Any] | Config,
    *,
    out: str | Path | None = None,
    workers: int | str | None = None,
    trust_plugins: bool = False,
) -> Audit:
    """Run a whole audit: simulate, attack, account, score, report. One that was stopped goes on where it was.

    Args:
        config: A YAML file, the name of a config that comes with fedaudit ("quickstart"), a run folder, or
            settings as the file would have them.
        out: The run folder; by default runs/NAME, where NAME is the config's, or that of the method and a digest.
        workers: How many processes, or "auto"; no result depends on it.
        trust_plugins: Run and download what a config file names; classes and settings of yours ask nothing.

    Raises:
        UserError: With what was found, what was expected and what to do next.

    Examples:
        >>> import fedaudit as fa
        >>> audit = fa.run("quickstart")
        >>> audit.verdict
        'not_ready'
        >>> audit.findings["count_recovery"].severity
        <Severity.HIGH: 'high'>
    """
    made, name = read_config(config, trust_plugins=trust_plugins)
    return _audit(choose_folder(config, out, name), made, workers)


def choose_folder(given: object, out: str | Path | None, name: str) -> RunDir:
    """A run folder that was given itself, else `out`, by default runs/NAME; raises UserError."""
    if isinstance(given, str | Path) and Path(given).is_dir():
        return RunDir.open(Path(given))
    return RunDir.create(Path(out) if out is not None else Path("runs") / name)


def _audit(folder: RunDir, config: Config, workers: int | str | None) -> Audit:
    if workers is not None:
        config = config.with_workers(str(workers))
    with progress() as report_progress:
        WholeAudit(folder, config).execute([p.name for p in phases(config.case)], report_progress)
    return Audit(folder.path)


def load(folder: str | Path, *, policy: str = "default", trust_plugins: bool = False) -> Audit:
    """Open a finished run and judge it as `fedaudit check` does: by your policy, whatever the folder's own is.

    Args:
        folder: The run folder.
        policy: A name, or the path of a .yaml file.
        trust_plugins: Run code that the folder's own config names.

    Raises:
        UserError: Where the folder is no finished run, names such code, or is not what such a run leaves.

    Examples:
        >>> import fedaudit as fa
        >>> audit = fa.load("runs/quickstart")
        >>> [row["id"] for row in audit.findings[:1].to_dicts()]
        ['count_recovery']
    """
    judged = judge_folder(Path(folder), Reviewer(policy=policy, trust=trust_plugins))
    return Audit(folder, judged.result if judged.review.scored_by else None)


class RecordedFederation:
    """A federation that ran elsewhere, taken in and checked; `run` audits it."""

    def __init__(
        self, folder: Path, imported: ImportRecord, *, copies: Mapping[str, Path], trust_plugins: bool
    ) -> None:
        self.folder, self.imported, self._copies, self._trust = folder, imported, copies, trust_plugins

    @property
    def checks(self) -> Table[CheckedStatement]:
        """One row a statement of its operator, and whether the messages bear it out."""
        return Table(self.imported.checks, lambda c: c.model_dump(mode="json"))

    def run(self, *, workers: int | str | None = None) -> Audit:
        """Audit it. One that was stopped goes on where it was. Raises UserError."""
        run_dir = RunDir.open(self.folder)
        return _audit(run_dir, run_dir.load_config(trust_plugins=self._trust, data=self._copies), workers)

    def _repr_html_(self) -> str:
        return self.checks._repr_html_()

    def __repr__(self) -> str:
        return f"<RecordedFederation {self.folder}: {self.imported.messages:,} messages>"


def load_inbox(
    inbox: str | Path,
    *,
    truth: str | Path | None = None,
    subject: str | Path | None = None,
    model: str = "",
    base: str | Path | None = None,
    out: str | Path | None = None,
    trust_plugins: bool = False,
    **settings: Any,
) -> RecordedFederation:
    """Take in what a recorder wrote of a federation, and check every byte and statement of it.

    Args:
        inbox: The recorder's folder.
        truth: Folder of clients' examples, NAME.npz with x and y each; own.npz is of nobody.
        subject: What its operator states; without it, one is written of the inbox, every line seen or guessed.
        model: Without a subject, the network: a name of ours or module:Class.
        base: Weights that nobody sends, as safetensors.
        out: The run folder; by default runs/NAME of the inbox.
        trust_plugins: Run code that the subject or `model` names.
        **settings: The auditor's, as keys of a config: attacks, seed, policy.

    Raises:
        UserError: With what was found, what was expected and what to do next.

    Examples:
        >>> import fedaudit as fa
        >>> federation = fa.load_inbox("inbox", truth="truth", model="net:Net", trust_plugins=True)
        >>> {check.status for check in federation.checks} <= {"holds", "open", "declared"}
        True
    """
    paths = {"truth": truth, "subject": subject, "base": base}
    given = {name: Path(path) if path is not None else None for name, path in paths.items()}
    sources = ImportSources(inbox=Path(inbox), model=model, **given)
    config, text = state_inbox(sources, settings, trust=trust_plugins)
    folder = RunDir.create(Path(out) if out is not None else Path("runs") / Path(inbox).resolve().name)
    with progress() as report_progress:
        imported = bring(folder.path, config, sources, report_progress, text=text)
    copies = list_copies(config)
    return RecordedFederation(folder.path, imported, copies=copies, trust_plugins=trust_plugins)


def read_config(
    given: str | Path | Mapping[str, Any] | Config, *, trust_plugins: bool = False
) -> tuple[Config, str]:
    """The config and the name of its run folder."""
    if isinstance(given, str | Path):
        path = find_config(Path(given))
        return load_config(path, trust_plugins=trust_plugins), path.stem
    config = given if isinstance(given, Config) else make_config(given)
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return config, f"{config.require_simulated().method.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _tabulate(findings: Sequence[AuditedFinding]) -> Table[AuditedFinding]:
    def draw(shown: Sequence[AuditedFinding]) -> list[Figure]:
        return [figure for f in shown for figure in f.figures]

    return Table(findings, _describe_finding, name=lambda f: f.id, draw=draw)


def _describe_finding(f: Finding) -> Row:
    graded = next((e for e in f.evidence if e.control == "none"), None)
    low, high = (graded.interval if graded else None) or (None, None)
    return {
        "id": f.id,
        "severity": str(f.severity),
        "outcome": str(f.outcome),
        "title": f.title,
        "observer": f.threat.position if f.threat else "",
        "harm": str(f.harm or ""),
        "at_least": f.at_least,
        "people": f.people,
        "measure": graded.measure if graded else "",
        "value": graded.value if graded else None,
        "low": low,
        "high": high,
        "baseline": graded.strongest.value if graded and graded.strongest else None,
        "trials": graded.trials if graded else None,
    }


def _describe_pair(pair: tuple[str, Evidence]) -> Row:
    finding, e = pair
    return {"finding": finding, **describe_evidence(e)}


def _describe_bound(b: PrivacyBound) -> Row:
    return {
        "observer": b.observer,
        "unit": b.unit,
        "adjacency": b.adjacency,
        "epsilon": b.epsilon,
        "delta": b.delta,
        "status": str(b.status),
        "population": b.population,
        "why": "; ".join(r.sentence for r in b.reasons),
    }


def _describe_round(h: History) -> Row:
    return {
        "round": h.round,
        "accuracy": h.accuracy,
        "selected": h.selected,
        "delivered": h.delivered,
        "bytes_up": h.bytes_up,
        "bytes_down": h.bytes_down,
        **h.values,
    }


def _describe_message(line: Mapping[str, Any]) -> Row:
    return {
        "message": line["message"],
        "round": line["round"],
        "sender": line["sender"],
        "seen_by": ", ".join(line["seen_by"]),
        "kinds": ", ".join(line["kinds"]),
        "bytes": line["bytes"],
    }


def _describe_option(a: Alternative) -> Row:
    return {
        "name": a.name,
        "word": str(a.word) if a.word else "",
        "answered": a.answered,
        "asked": a.asked,
        "at_most": a.at_most,
        "people": a.people,
        "accuracy": a.accuracy,
        "recommended": a.recommended,
        "why_not": a.why_not,
    }


def _draw_accuracy(rounds: Sequence[History]) -> list[Figure]:
    from fedaudit.attacks.evidence import Series

    measured = [(h.round + 1, h.accuracy) for h in rounds if h.accuracy is not None]
    if not measured:
        return []
    series = Series(name="accuracy", x=[float(r) for r, _ in measured], y=[a for _, a in measured])
    return [
        Figure(
            id="accuracy",
            title="Accuracy",
            caption="On the whole test set, after so many rounds.",
            alt=f"Accuracy over rounds, {measured[-1][1]:.3f} after round {measured[-1][0]}",
            x_label="rounds",
            y_label="accuracy",
            series=[series],
        )
    ]
