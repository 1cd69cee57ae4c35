"""A federation that sends statistics of its tables and trains no network, from its record to its report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.reports.result import AuditResult
from tests.audit.importing.inboxes import record_truth, write_message, write_truth
from tests.audit.importing.test_columns import take

COLUMNS = {
    "age": {"unit": "years", "step": 1},
    "bmi": {"step": 0.1},
    "pressure": {"unit": "mmHg", "step": 1},
    "stay": {"unit": "days", "step": 1},
}
SIZES = (40, 41, 42)
SUBJECT = {
    "title": "Statistics of three hospitals",
    "examples": {"task": "regression", "shape": [4], "columns": COLUMNS},
}


def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    body = np.round(rng.normal(26, 4, n), 1)
    x = np.stack([rng.integers(18, 99, n), body, rng.integers(90, 200, n), rng.integers(0, 40, n)], 1)
    return x.astype(np.float64), np.zeros(n, np.float32)


def describe(x: np.ndarray, edges: np.ndarray, what: str) -> dict[str, Any]:
    """What a site sends of its rows [n, F]."""
    if what == "histograms":
        return {"bins": np.stack([np.histogram(v, e)[0] for v, e in zip(x.T, edges, strict=True)]), "cuts": edges}
    told = {
        "means": {"average": x.mean(axis=0), "deviation": x.std(axis=0)},
        "sums": {"total": x.sum(axis=0)},
        "products": {"xx": x.T @ x},
        "quantiles": {"quantiles": np.quantile(x, np.linspace(0, 1, 11), axis=0).T.copy()},
    }
    return told[what] | {"n": np.int64(len(x))}


def report(folder: Path, what: str, leaving: int = 1) -> tuple[AuditResult, str]:
    """Each site sends twice; in between so many people leave it."""
    rng = np.random.default_rng(5)
    parts, own = [draw(n, rng) for n in SIZES], draw(200, rng)
    edges = np.linspace(own[0].min(axis=0), own[0].max(axis=0), 21).T.copy()
    for t in range(2):
        for k, (x, _) in enumerate(parts):
            sent = {"group:statistics": describe(x[t * leaving :], edges, what)}
            write_message(folder / "inbox", f"{t}/{k}", t, "uplink", f"client/{k}", ["server"], sent)
    record_truth(folder, parts, own)
    write_truth(folder / "others", {f"client-{k}": draw(100, rng) for k in range(3)})
    (folder / "others" / "truth").rename(folder / "truth" / "heldout")
    settings = {"attacks": "auto", "report": ["html"], "show": "full"}
    run, config, found = take(folder, SUBJECT, **settings)
    assert [c.text for c in found.checks if c.status == "contradicted"] == []
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    return read_result(run.path), (run.path / "report.html").read_text()


@pytest.mark.parametrize(
    ("what", "attack"), [("means", "centre_rows"), ("sums", "centre_rows"), ("products", "sums_rows")]
)
def test_who_left_between_two_statistics_stands_in_the_report_column_by_column(
    what: str, attack: str, tmp_path: Path
) -> None:
    result, page = report(tmp_path, what)
    [finding] = [f for f in result.findings if f.id == attack]
    assert finding.is_demonstrated
    [question] = [q for q in result.questions if q.id == "reconstruction.server"]
    assert (question.hits, question.tested, question.at_least >= 1) == (3, 123, True)
    pairs = [pair for rows in result.rows if rows.finding == attack for pair in rows.pairs]
    pair = pairs[0]
    client = int(pair.name.removesuffix(", nearest").removeprefix("client "))
    row = np.load(tmp_path / "truth" / f"client-{client}.npz")["x"][0]
    assert pair.columns == list(COLUMNS)
    assert (
        pair.original
        == pair.claimed
        == [f"{row[0]:.0f} years", f"{row[1]:g}", f"{row[2]:.0f} mmHg", f"{row[3]:.0f} days"]
    )
    assert f"{row[2]:.0f} mmHg" in page


def test_of_two_who_left_together_nothing_is_claimed(tmp_path: Path) -> None:
    result, _ = report(tmp_path, "means", leaving=2)
    assert not result.rows
    assert not [f for f in result.findings if f.id == "centre_rows" and f.is_demonstrated]


def test_people_alone_in_a_bin_are_counted_and_decide(tmp_path: Path) -> None:
    result, page = report(tmp_path, "histograms", leaving=0)
    [question] = [q for q in result.questions if q.id == "attribute.server"]
    assert question.findings == ["lone_cells"]
    assert question.hits > 30
    assert question.state == "exposed"
    assert "People alone in a bin of a histogram" in page
    assert not result.rows


def test_quantiles_without_people_alone_claim_nothing(tmp_path: Path) -> None:
    result, _ = report(tmp_path, "quantiles", leaving=0)
    assert not [f for f in result.findings if f.is_demonstrated]


def test_the_report_says_of_statistics_nothing_of_a_network(tmp_path: Path) -> None:
    result, _ = report(tmp_path, "sums")
    assert result.imported is not None
    said = [c.text for c in result.imported.checks]
    assert any(text.startswith("No client's model or number of examples was recorded") for text in said)
    assert not any("the network is trained" in text for text in said)
