"""Models of scikit-learn that were trained on a table of one's own, attacked as networks are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import fedaudit as fa
from fedaudit.fl.data.guess_schema import guess_schema
from fedaudit.fl.data.table_file import read_table
from fedaudit.fl.datasets.csv import CSV
from tests.audit.cli.test_own_table import invoke, write_clinic

Pair = tuple[NDArray[Any], NDArray[Any]]


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """The first and the next 300 rows of a CSV file, as a network is given them, and their labels."""
    folder = tmp_path_factory.mktemp("clinic")
    write_clinic(folder / "clinic.csv", 1000)
    assert invoke("init", str(folder / "a.yaml"), "--from", str(folder / "clinic.csv"))[0] == 0
    data = CSV(CSV.Config(path=str(folder / "clinic.csv"), schema=str(folder / "clinic.schema.yaml"))).load()
    assert data.columns is not None
    x, y = data.columns.model_input(data.train.x), data.train.y
    return (x[:300], y[:300]), (x[300:600], y[300:600])


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_forest_that_knows_its_rows_by_heart_is_told_from_its_own_probabilities(
    halves: tuple[Pair, Pair], pipeline: bool
) -> None:
    (x, y), (others, theirs) = halves
    forest = RandomForestClassifier(n_estimators=40, random_state=0)
    model = make_pipeline(StandardScaler(), forest) if pipeline else forest
    model.fit(x, y)
    found = fa.attack("loss_threshold", model=model, members=(x, y), nonmembers=(others, theirs))
    own, other = (model.predict_proba(a)[np.arange(len(b)), b] for a, b in halves)
    by_hand = roc_auc_score([1] * 300 + [0] * 300, np.concatenate([own, other]))
    assert found.evidence[0].measure == "auc" and found.evidence[0].value == pytest.approx(by_hand, abs=0.02)
    assert by_hand > 0.8


@pytest.mark.parametrize("name", ["confidence", "entropy"])
def test_rows_that_a_model_never_saw_are_not_told_from_others(halves: tuple[Pair, Pair], name: str) -> None:
    (x, y), others = halves
    model = LogisticRegression(max_iter=500).fit(x[:100], y[:100])
    found = fa.attack(name, model=model, members=(x[100:], y[100:]), nonmembers=others).evidence[0]
    assert found.interval is not None and found.interval[0] < 0.5 < found.interval[1]


def test_of_a_number_what_is_predicted_is_compared() -> None:
    rng = np.random.default_rng(0)
    y, theirs = rng.normal(size=40), rng.normal(size=40)
    wide = rng.normal(size=(80, 60))
    model = Ridge(1e-6).fit(wide[:40], y)  # more columns than rows: it fits any number
    held = {"members": (wide[:40], y), "nonmembers": (wide[40:], theirs)}
    assert fa.attack("loss_threshold", model=model, **held).evidence[0].value > 0.95


def test_a_model_without_a_single_difference_tells_nothing(halves: tuple[Pair, Pair]) -> None:
    members, others = halves
    model = DummyClassifier(strategy="prior").fit(*members)
    found = fa.attack("loss_threshold", model=model, members=members, nonmembers=others).evidence[0]
    assert found.value == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x, y: LinearSVC().fit(x, y), "LinearSVC, has no predict_proba"),
        (lambda x, y: LogisticRegression().fit(x, y + 1), "the model's classes are 1, 2, 3, expected 0, 1, 2"),
        (lambda x, y: LogisticRegression(), "not fitted yet"),
        (lambda x, y: LogisticRegression().fit(x[:, :5], y), "features"),
        (lambda x, y: RandomForestClassifier, "expected a torch.nn.Module"),
        (lambda x, y: "model.pkl", "expected a torch.nn.Module"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(halves: tuple[Pair, Pair], make: Any, says: str) -> None:
    members, others = halves
    with pytest.raises(fa.UserError, match=says) as caught:
        fa.attack("loss_threshold", model=make(*members), members=members, nonmembers=others)
    assert caught.value.hint


def test_a_guess_of_one_column_alone_is_its_label(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("y\n" + "1\n0\n" * 20)
    assert guess_schema(read_table(tmp_path / "one.csv")).label == ("y",)


def test_a_place_of_few_is_nobody_whose_row_it_is(tmp_path: Path) -> None:
    rows = "".join(f"{'ABC'[i % 3]},p{i // 2},{i % 50},{i % 2}\n" for i in range(60))
    (tmp_path / "sites.csv").write_text("site,patient,age,outcome\n" + rows)
    guess = guess_schema(read_table(tmp_path / "sites.csv"))
    assert (guess.owner, guess.left_out) == ("patient", ["site"])
    assert guess.why["site"] == "a place, and no person; as `owner`, with partition: natural, each is a client"


def test_entries_that_a_pipeline_reads_and_no_network_are_refused_with_what_to_give(
    halves: tuple[Pair, Pair],
) -> None:
    (x, y), (others, labels) = halves
    model = RandomForestClassifier(5, random_state=0).fit(x, y)
    for change in (lambda v: np.where(np.arange(v.shape[1]) == 0, np.nan, v), lambda v: v.astype(object)):
        with pytest.raises(fa.UserError, match="members: examples are") as caught:
            fa.attack("loss_threshold", model=model, members=(change(x), y), nonmembers=(change(others), labels))
        assert "of a pipeline of scikit-learn's give its last step" in caught.value.hint


def test_attacks_by_shadow_models_say_that_nobody_can_train_them(halves: tuple[Pair, Pair]) -> None:
    (x, y), (others, labels) = halves
    model = RandomForestClassifier(5, random_state=0).fit(x, y)
    with pytest.raises(fa.UserError, match="here nobody can train one so"):
        fa.attack(
            "rmia",
            model=model,
            members=(x, y),
            nonmembers=(others[:150], labels[:150]),
            auxiliary=(others[150:], labels[150:]),
        )
