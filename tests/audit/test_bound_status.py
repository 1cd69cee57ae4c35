"""One bound, one status: a refuted epsilon is on no page, and beside a declared one stands that word."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pypdf import PdfReader
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.fl.ledger import Release
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.wire.protection import Payload
from tests.audit.tiny import TEXT

ME = "tests.audit.test_bound_status"
REFUTING = ("was declared, refuted", "loses at least")
RUN = """
noise_audit: PLAY
report: [json, html, pdf, sarif, junit, markdown]
attacks: []
accountants: [exact]
protections: [{name: "NAME", clip_norm: 2.0, noise_multiplier: 1.37}]
variants:
  - {name: same, protections: [{name: "NAME", clip_norm: 2.0, noise_multiplier: 1.37}]}
"""


class HalfTheNoise(DPGaussian):
    """Adds half of the noise that it lists."""

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        return super()._add_noise(payload, base, noise, dataclasses.replace(line, noise_std=line.noise_std / 2))


class Shown(NamedTuple):
    """What a run shows to anybody, by where, and the epsilons that its ledger amounts to."""

    texts: dict[str, str]
    epsilons: set[float]


def show(folder: Path, name: str, play: bool) -> Shown:
    """Run an audit, and every command that reads it."""
    plain = TEXT.replace("rounds: 2}", "rounds: 2, weighting: uniform}")
    config = folder / "config.yaml"
    config.write_text(plain + RUN.replace("NAME", name).replace("PLAY", str(play).lower()))
    out = folder / "out"
    texts = {"run": invoke("run", str(config), "--out", str(out))}
    for command, folders in (("check", 1), ("verify", 1), ("dp budget", 1), ("compare", 2)):
        texts[command] = invoke(*command.split(), *[str(out)] * folders, *trusting(command))
    result = json.loads((out / "audit.json").read_text())
    for finding in result["findings"]:
        texts[f"explain {finding['id']}"] = invoke(
            "explain", finding["id"], "--run", str(out), *trusting("explain")
        )
    texts |= {f"audit.json {path}": text for path, text in walk(result)}
    for path in sorted(out.glob("report.*")):
        texts[path.name] = read(path)
    costs = json.loads((out / "evidence" / "budgets.json").read_text())
    return Shown(texts, {float(b["epsilon_upper"]) for b in costs if math.isfinite(float(b["epsilon_upper"]))})


def trusting(command: str) -> tuple[str, ...]:
    """The option that lets a command run the code that a folder names, where it has one."""
    return ("--trust-plugins",) if "--trust-plugins" in invoke(*command.split(), "--help") else ()


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code != 2, done.output
    return done.output


def read(path: Path) -> str:
    if path.suffix == ".pdf":
        return " ".join(p.extract_text() for p in PdfReader(path).pages)
    text = path.read_text()
    return (
        re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]+>", " ", text, flags=re.S)
        if path.suffix == ".html"
        else text
    )


def walk(value: Any, path: str = "", status: str = "") -> Iterator[tuple[str, str]]:
    """Every text and number of a document, by its place, with the status of its bound or its curve's name."""
    if isinstance(value, dict):
        status = value.get("status") or value.get("name") or status
        for key, inner in value.items():
            if key not in ("seconds", "config"):  # no numbers of privacy, and what was asked for
                yield from walk(inner, f"{path}.{key}", status)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from walk(inner, f"{path}[{i}]", status)
    else:
        yield path, f"{value:g} {status}" if isinstance(value, float) else str(value)


def mentions(text: str, epsilon: float, reach: int) -> list[str]:
    """Where a text says a number, with `reach` signs on both sides."""
    plain = re.sub(r"\s+", " ", text)
    found = re.finditer(rf"(?<![\d.,]){re.escape(f'{epsilon:g}')}(?!\d)", plain)
    return [plain[max(0, m.start() - reach) : m.end() + reach] for m in found]


@pytest.fixture(scope="module")
def refuted(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return show(tmp_path_factory.mktemp("refuted"), f"{ME}:HalfTheNoise", True)


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return show(tmp_path_factory.mktemp("declared"), "dp_gaussian", False)


@pytest.mark.nightly
def test_an_epsilon_that_is_refuted_stands_only_where_it_is_refuted(refuted: Shown) -> None:
    assert refuted.epsilons
    for epsilon in refuted.epsilons:
        for where, text in refuted.texts.items():
            for mention in mentions(text, epsilon, 200):
                assert any(words in mention for words in REFUTING), f"{where}: {mention}"
    said = [where for where, text in refuted.texts.items() if "refuted" in text]
    assert {"dp", "compare", "check", "report.pdf", "report.html", "report.sarif"} <= {w.split()[0] for w in said}


def test_beside_an_epsilon_that_is_declared_stands_that_word(declared: Shown) -> None:
    assert declared.epsilons
    seen = set()
    for epsilon in declared.epsilons:
        for where, text in declared.texts.items():
            for mention in mentions(text, epsilon, 60):
                assert "declared" in mention, f"{where}: {mention}"
                seen.add(where.split()[0])
    assert {"dp", "compare", "report.pdf", "report.html"} <= seen  # other exports list findings alone
