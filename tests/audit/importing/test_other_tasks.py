"""Federations whose networks give a number, findings, a risk, masks or a class of a bag.

Seven shapes are those of FLamby's data sets (`shapes.py`).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from fedaudit.audit.phases.execute import execute
from fedaudit.fl.datasets.npz import NPZ
from fedaudit.fl.runtime.errors import UserError
from tests.audit.importing.shapes import ASKED, SHAPES, Shape, attack, bring_in, simulate, write

EACH = 40
TASKS = SHAPES | {
    "regression": Shape((6,), (6,), "regression", (), {"name": "mlp", "hidden": [16]}),
    "several": Shape((6,), (6,), "several", ("anaemia", "fever"), {"name": "mlp", "hidden": [16]}),
}
IMAGES = np.zeros((8, 5, 6), np.float32)


@pytest.mark.parametrize("name", TASKS)
def test_what_another_task_trained_is_imported_and_membership_is_asked(name: str, tmp_path: Path) -> None:
    run, config, found = bring_in(tmp_path, write(TASKS[name], EACH, tmp_path), ["loss_threshold"])
    assert [c.text for c in found.checks if c.status == "contradicted"] == []
    execute(run, config, ["attack"], lambda *_: None, skip_finished=False)
    [file] = [json.loads(p.read_text()) for p in run.evidence.glob("0*.json")]
    assert file["status"] == "ran", file["reason"]
    areas = {e["control"]: e["value"] for e in file["evidence"] if e["measure"] == "auc"}
    assert {"none", "negative"} <= areas.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_of_flamby_is_trained_here_and_membership_and_exfiltration_are_tried(
    name: str, tmp_path: Path
) -> None:
    asked = {q.id: q for q in simulate(TASKS[name], EACH, tmp_path).result.questions}
    assert all(asked[i].tested >= 60 and asked[i].findings for i in ASKED)


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_of_each_shape_of_flamby_is_attacked_by_itself(name: str) -> None:
    found = attack(TASKS[name], EACH)
    assert found.evidence[0].measure == "auc"
    assert found.people


def test_bags_are_given_to_models_as_they_are(tmp_path: Path) -> None:
    x, y = TASKS["Camelyon16"].draw(20, np.random.default_rng(0))
    np.savez(tmp_path / "bags.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = NPZ(NPZ.Config(path=str(tmp_path / "bags.npz"), layout="bags")).load()
    assert (data.shape, data.mean, data.std) == ((12, 8), (0.0,), (1.0,))
    assert np.array_equal(data.train.x, x)
    assert "images" not in data.gives


@pytest.mark.parametrize(
    ("x", "layout", "says"),
    [
        (IMAGES - 1, None, "x_train has values from -1 to -1, expected 0 to 1\n  hint: .*say layout: bags"),
        (IMAGES[:, None], "bags", r"x_train has float32 \[8, 1, 5, 6\], expected .*\[N, rows, features\]"),
        (IMAGES.astype(np.uint8), "bags", r"x_train has uint8 \[8, 5, 6\], expected floating-point"),
        (IMAGES * np.nan, "bags", "x_train has NaN or infinite values"),
    ],
)
def test_bags_are_declared_and_images_are_none(
    x: np.ndarray, layout: str | None, says: str, tmp_path: Path
) -> None:
    y = np.arange(8) % 2
    np.savez(tmp_path / "bags.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(UserError, match=says):
        NPZ(NPZ.Config(path=str(tmp_path / "bags.npz"), layout=layout)).load()


@pytest.mark.parametrize(
    ("task", "labels", "says"),
    [
        ("IXI", "regression", "subject states classes|expected whole numbers"),
        ("Heart-Disease", "regression", "real numbers .* and the subject states classes"),
        ("regression", "Heart-Disease", r"y is int64 \[40\], expected floating-point numbers"),
        ("TCGA-BRCA", "regression", r"expected floating-point numbers \[40, 2\], times and events"),
        ("several", "Heart-Disease", r"expected 0 or 1, \[40, findings\]"),
    ],
)
def test_truth_whose_labels_are_of_another_task_is_refused(
    task: str, labels: str, says: str, tmp_path: Path
) -> None:
    subject = write(TASKS[task], EACH, tmp_path)
    rng = np.random.default_rng(0)
    for file in (tmp_path / "truth").rglob("*.npz"):
        x = np.load(file)["x"]
        np.savez(file, x=x, y=TASKS[labels].draw(len(x), rng)[1])
    with pytest.raises(UserError, match=says):
        bring_in(tmp_path, subject, [])


def test_names_are_stated_of_classes_and_findings_and_of_no_number(tmp_path: Path) -> None:
    subject = write(TASKS["regression"], EACH, tmp_path)
    subject["examples"]["classes"] = ["a", "b"]
    with pytest.raises(UserError, match="classes has 2 names, and task regression wants none"):
        bring_in(tmp_path, subject, [])
