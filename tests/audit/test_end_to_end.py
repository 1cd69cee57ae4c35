"""A whole audit through the command line: on embedded images, with a user's own plugins, killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pypdf import PdfReader
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.reports.result import AuditResult, Outcome
from tests.audit.tiny import VERDICTS

ROOT = Path(__file__).parents[2]

SMALL = """
title: A small audit
federation:
  dataset: digits
  clients: 8
  partition: {name: dirichlet, alpha: 0.3}
  availability: {name: bernoulli, p: 0.8}
  model: {name: mlp, hidden: [24]}
  holdout: {auxiliary: 0.35, reference: 0.25}
method: {name: METHOD, rounds: 3, local_epochs: 1, lr: 0.05}
workers: 0
record: all
replay: {sizes: [1, 2, 20], clients: 3, groups: 20}
attacks: [ridge, prototype_membership, count_recovery]
"""


def audit(text: str, folder: Path) -> AuditResult:
    """Run a config in this process; the run folder is folder/out."""
    (folder / "config.yaml").write_text(text)
    command = ["run", str(folder / "config.yaml"), "--out", str(folder / "out"), "--trust-plugins"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code in VERDICTS, result.output + repr(result.exception)
    return AuditResult.model_validate_json((folder / "out" / "audit.json").read_bytes())


@pytest.fixture(scope="module")
def rebafl(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    folder = tmp_path_factory.mktemp("rebafl")
    return audit(SMALL.replace("METHOD", "rebafl"), folder), folder / "out"


def test_rebafl_prototypes_of_small_classes_are_a_demonstrated_finding(rebafl: tuple[AuditResult, Path]) -> None:
    result, _ = rebafl
    found = {f.id: f for f in result.findings}
    assert found["prototype_membership"].severity.rank and found["prototype_membership"].at_least > 0
    assert found["count_recovery"].severity.rank
    planted = [e for e in found["ridge"].evidence if e.measure == "named" and e.control == "positive"]
    assert any(e.value > 3 * max(b.value for b in e.baselines) for e in planted)
    assert len({f for q in result.questions for f in q.findings}) == 3


def test_every_report_is_there_and_says_the_headline(rebafl: tuple[AuditResult, Path]) -> None:
    result, folder = rebafl
    pages = PdfReader(folder / "report.pdf").pages
    text = " ".join("".join(p.extract_text() for p in pages).split())
    assert result.title in text and "Who saw what" in text
    first, second = (" ".join(p.extract_text().split()) for p in pages[:2])
    assert "What the audit showed" in first and "Decided by" in first  # the decision is on one page
    assert "Ten questions a signer asks" in second and "Appendices" in second
    assert result.findings[0].method in (folder / "report.html").read_text()


SEEN = {
    "fedavg": {"server": {"local_model", "num_examples"}, "every selected client": {"global_model"}},
    "scaffold": {
        "server": {"model_delta", "control_delta"},
        "every selected client": {"global_model", "control_global"},
    },
    "fd": {"server": {"mean_logit_table"}, "every selected client": {"global_logit_table"}},
    "rebafl": {
        "server": {"local_model", "num_examples", "local_prototypes", "proto_counts"},
        "every selected client": {"global_model", "global_prototypes"},
    },
    "fedasync": {"server": {"local_model", "staleness"}, "every selected client": {"global_model", "staleness"}},
}


@pytest.mark.dear("fedavg", "fd", "rebafl", "fedasync")
@pytest.mark.parametrize("name", SEEN)
def test_who_saw_what_follows_the_method(name: str, tmp_path: Path) -> None:
    plain = SMALL.replace("METHOD", name).replace("[ridge, prototype_membership, count_recovery]", "[]")
    rows = audit(plain.replace("rounds: 3", "rounds: 4") + "report: [json]\n", tmp_path).exposures
    for party, kinds in SEEN[name].items():
        assert {e.kind for e in rows if e.party == party} == kinds
    assert all(e.single_client == (e.party == "server") for e in rows)
    released = {e.kind for e in rows if e.party == "whoever gets the model"}
    assert released == (set() if name == "fd" else {"global_model"})  # FD has no global model


@pytest.mark.nightly
def test_an_attack_that_a_protection_blinds_says_why(tmp_path: Path) -> None:
    plain = SMALL.replace("METHOD", "rebafl").replace("[ridge,", "[prototype_difference,")
    found = audit(plain + "protections: [secure_aggregation]\n", tmp_path)
    reasons = {f.id: f.summary for f in found.findings if f.outcome is Outcome.NOT_APPLICABLE}
    assert "local_prototypes" in reasons["prototype_difference"]


def test_noise_and_clipping_give_a_bound_only_without_releases_in_clear(tmp_path: Path) -> None:
    noised = SMALL.replace("METHOD", "fedavg").replace("[ridge, prototype_membership, count_recovery]", "[]") + (
        "protections:\n  - {name: dp_gaussian, clip_norm: 1, noise_multiplier: 2}\nreport: [json]\n"
    )
    result = audit(noised, tmp_path)
    assert {b.clear_kinds[0] for b in result.bounds} == {"num_examples"}
    text = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    releases = [json.loads(line) for line in text]
    assert {r["mechanism"] for r in releases if r["kind"] == "local_model"} == {"gaussian"}


def test_a_users_own_plugins_work_by_dotted_path(tmp_path: Path) -> None:
    (tmp_path / "mine_e2e.py").write_text(MINE)
    text = """
federation:
  dataset: "mine_e2e:Stripes"
  clients: 3
  model: "mine_e2e:Plain"
  holdout: {auxiliary: 0.2, reference: 0.2}
method: {name: "mine_e2e:Shrunk", rounds: 2, local_epochs: 1, factor: 0.5}
attacks: ["mine_e2e:SizeReader"]
report: [json, html, "mine_e2e:Signature"]
workers: 0
"""
    result = audit(text, tmp_path)
    assert result.scope.method == "Shrunk FedAvg"
    assert [f.outcome for f in result.findings if f.source == "attack"] == [Outcome.RAN]
    assert "Signed by nobody" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.nightly
def test_a_killed_run_continues_to_the_same_bits(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(SMALL.replace("METHOD", "rebafl").replace("workers: 0", "workers: 2"))
    command = [sys.executable, "-m", "fedaudit", "run", str(config), "--phase", "simulate", "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], cwd=ROOT, check=True, timeout=120)
    killer = KILLER.format(root=str(ROOT), config=str(config), out=str(tmp_path / "killed"))
    killed = subprocess.run([sys.executable, "-c", killer], cwd=ROOT, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run([*command, str(tmp_path / "killed")], cwd=ROOT, check=True, timeout=120)
    for name in ("metrics.jsonl", "ledger.jsonl", "artifacts/manifest.jsonl", "checkpoint/state.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


KILLER = """
import os, signal, sys
sys.path.insert(0, {root!r})
from fedaudit.fl.wire import wire
uplink, seen = wire.Wire.uplink, []
def dying(self, round, message, sender, reference):
    seen.append(sender)
    if round == 1 and len(seen) > 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return uplink(self, round, message, sender, reference)
wire.Wire.uplink = dying
from fedaudit.audit.cli.main import app
app(["run", {config!r}, "--phase", "simulate", "--out", {out!r}])
"""

MINE = """
from dataclasses import dataclass, replace
import numpy as np
from torch import nn
from fedaudit.attacks.attack import Attack, Card
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.reports.section import Card as SectionCard, Paragraph, Section

class Stripes(Dataset):
    title = "Stripes"
    def load(self):
        rng = np.random.default_rng(0)
        y = np.arange(80) % 2
        x = rng.random((80, 1, 4, 4), dtype=np.float32)
        return Data(train=Arrays(x=x[:60], y=y[:60]), test=Arrays(x=x[60:], y=y[60:]),
                    classes=("a", "b"))

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    def forward(self, x):
        return self.body(x)

class Shrunk(FedAvg):
    card = replace(FedAvg.card, title="Shrunk FedAvg", source="ours")
    @dataclass(frozen=True, kw_only=True)
    class Config(LocalConfig):
        factor: float = 0.99
    def finish(self, client, trained):
        small = {k: v * self.config.factor for k, v in trained.state.items()}
        return super().finish(client, replace(trained, state=small))

class SizeReader(Attack):
    card = Card(title="Sizes", source="ours", aim=Aim.ATTRIBUTE, learns="sizes",
                threat=ThreatModel(position=Position.SERVER), requires=(Kind.NUM_EXAMPLES,),
                does_not_show="which", remedy="send none")
    def run(self, view, knowledge, rng):
        return {"n": np.array([int(a.payload["count"]) for a in view]),
                "client": np.array([a.sender.index for a in view])}
    def measure(self, claim, truth, rng):
        hit = [int(truth.label_counts(int(k)).sum()) == n
               for k, n in zip(claim["client"], claim["n"])]
        return [Evidence(measure="exact_match", value=float(np.mean(hit)), unit="fraction",
                         trials=len(hit), interval=(0.3, 1.0),
                         baselines=(Baseline(name="blind", value=0.0),))]

class Signature(Section):
    card = SectionCard(title="Signature", order=95)
    def build(self, result):
        return [Paragraph("Signed by nobody.")]
"""

assert os.name == "posix"  # SIGKILL
