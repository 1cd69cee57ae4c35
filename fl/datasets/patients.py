"""Patients: rows of invented patients, four numbers and eight categories each; no row is about any person.

What is predicted depends on age, weight, blood pressure, smoking and ward, with chance on top, so that a network
learns something and not everything. It is one of four things, by the task: where a patient goes after the stay
(three classes), how many days the stay took (a number, which then is no column), how soon the patient comes back
(a time, and whether that was seen), or which of five findings there are. The owner of a row is the patient.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.columns import SCALED_BY, Column, Columns
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.task import load_task

Numbers = NDArray[np.float64]

COLUMNS = (
    Column(name="age", unit="years", step=1, low=18, high=99),
    Column(name="bmi", unit="kg/m2", step=0.1, low=15, high=55, sensitive=True),
    Column(name="systolic", unit="mmHg", step=1, low=80, high=220, sensitive=True),
    Column(name="days", unit="days", step=1, low=0, high=120),
    Column(name="sex", kind="category", levels=("female", "male")),
    Column(
        name="ward",
        kind="category",
        levels=("surgery", "cardiology", "oncology", "neurology", "maternity", "psychiatry"),
        sensitive=True,
    ),
    Column(name="smoking", kind="category", levels=("never", "former", "current"), sensitive=True),
    Column(
        name="job",
        kind="category",
        levels=(
            "none",
            "office",
            "trade",
            "transport",
            "care",
            "school",
            "farm",
            "kitchen",
            "factory",
            "retired",
        ),
    ),
    Column(name="marital", kind="category", levels=("single", "married", "divorced", "widowed")),
    Column(name="insurance", kind="category", levels=("public", "private", "none"), sensitive=True),
    Column(name="blood", kind="category", levels=("0+", "0-", "A+", "A-", "B+", "B-", "AB+", "AB-")),
    Column(name="area", kind="category", levels=tuple(f"area {i}" for i in range(1, 31))),
)
NAMES = tuple(c.name for c in COLUMNS)
GOES = ("home", "rehabilitation", "care home")
FINDINGS = ("diabetes", "hypertension", "asthma", "anemia", "depression")
CLASSES = {"classify": GOES, "several": FINDINGS, "regression": (), "survival": ()}
WATCHED = 365  # days after the stay
BLOOD = (0.36, 0.07, 0.32, 0.06, 0.11, 0.02, 0.05, 0.01)


class Patients(Dataset):
    title = "Rows of invented patients"
    holds = "invented"
    source = "made by this program"

    @settings
    class Config:
        task: Literal["classify", "regression", "survival", "several"] = Field(
            default="classify",
            description="what is predicted: where a patient goes, days, time to the return, or findings",
        )
        patients: AtLeastOne = Field(default=2000, description="how many patients are invented")
        most_stays: AtLeastOne = Field(default=1, description="a patient has one to so many rows")
        scaled_by: Literal["public", "clients"] = Field(default="public", description=SCALED_BY)
        test_fraction: ProperShare = Field(default=0.2, description="share of the patients held out for testing")

    def load(self) -> Data:
        # what is invented belongs to the data set, so it does not depend on the run's seed
        rng = np.random.RandomState(0)
        stays = rng.randint(1, self.config.most_stays + 1, self.config.patients)
        owner = np.repeat(np.arange(self.config.patients), stays)
        x = _invent(rng, stays)
        y, kept = _predict(rng, x, self.config.task), list(range(len(NAMES)))
        if self.config.task == "regression":
            kept.remove(NAMES.index("days"))
        tests = rng.permutation(self.config.patients)[: round(self.config.test_fraction * self.config.patients)]
        is_test = np.isin(owner, tests)
        if not is_test.any() or is_test.all():
            raise UserError(
                f"{self.title}: test_fraction {self.config.test_fraction:g} of {self.config.patients} patients "
                "leaves a part empty",
                hint="invent more patients, or another test_fraction",
            )
        if self.config.task == "regression":
            y = ((y - y[is_test].mean()) / (y[is_test].std() or 1.0)).astype(np.float32)
        everything = Arrays(x=x[:, kept], y=y, owner=owner.astype(np.int64))
        train, test = (everything.take(np.flatnonzero(rows)) for rows in (~is_test, is_test))
        columns = Columns(columns=tuple(COLUMNS[i] for i in kept))
        return Data(
            train=train,
            test=test,
            classes=CLASSES[self.config.task],
            task=load_task(self.config.task)(),
            columns=columns.scale_by(self.config.scaled_by, test.x),
            about="Rows of invented patients, numbers and categories: made by this program, about no person.",
        )


def _invent(rng: np.random.RandomState, stays: NDArray[np.int64]) -> Numbers:
    """[rows, 12] of so many stays of each patient, alike but for ward, blood pressure, days and some weight."""
    n, rows = len(stays), int(stays.sum())
    places = {c.name: np.arange(len(c.levels)) for c in COLUMNS if c.levels}
    age = np.clip(np.round(rng.normal(58, 19, n)), 18, 99)
    bmi = np.clip(rng.normal(26.5, 5, n) + 0.02 * (age - 58), 15, 55)
    common = 1 / (3 + np.arange(30))
    person = {
        "age": age,
        "bmi": bmi,
        "sex": rng.choice(places["sex"], n),
        "smoking": rng.choice(places["smoking"], n, p=(0.5, 0.3, 0.2)),
        "job": np.where(age > 67, 9, rng.choice(places["job"][:9], n)),
        "marital": rng.choice(places["marital"], n, p=(0.3, 0.45, 0.15, 0.1)),
        "insurance": rng.choice(places["insurance"], n, p=(0.8, 0.17, 0.03)),
        "blood": rng.choice(places["blood"], n, p=BLOOD),
        "area": rng.choice(places["area"], n, p=common / common.sum()),
    }
    found = {name: np.repeat(values, stays).astype(np.float64) for name, values in person.items()}
    found["bmi"] = np.clip(found["bmi"] + rng.normal(0, 0.5, rows) * np.repeat(stays > 1, stays), 15, 55)
    found["ward"] = rng.choice(places["ward"], rows, p=(0.25, 0.22, 0.15, 0.15, 0.1, 0.13)).astype(np.float64)
    found["systolic"] = np.clip(
        105 + 0.35 * found["age"] + 0.5 * (found["bmi"] - 26) + rng.normal(0, 13, rows), 80, 220
    )
    risk = _weigh(found)
    found["days"] = np.clip(rng.gamma(2.0, 2.5 * np.exp(0.45 * risk)), 0, 120)
    return np.stack([c.snap(found[c.name]) for c in COLUMNS], 1)


def _weigh(found: dict[str, Numbers]) -> Numbers:
    """[rows] how ill somebody is, about 0 with a deviation of 1."""
    by_ward = np.array([-0.2, 0.4, 0.7, 0.3, -1.0, 0.0])[found["ward"].astype(np.int64)]
    smokes = np.array([-0.2, 0.1, 0.6])[found["smoking"].astype(np.int64)]
    weight = 0.035 * (found["age"] - 58) + 0.04 * (found["bmi"] - 26.5) + 0.015 * (found["systolic"] - 126)
    return np.asarray(weight + by_ward + smokes - 0.1)


def _predict(rng: np.random.RandomState, x: Numbers, task: str) -> NDArray[Any]:
    found = dict(zip(NAMES, x.T, strict=True))
    risk = _weigh(found)
    if task == "regression":
        return np.asarray(found["days"], np.float32)
    if task == "survival":
        returns = np.ceil(rng.exponential(250 * np.exp(-0.8 * risk)))
        leaves = np.ceil(rng.uniform(30, 2 * WATCHED, len(x)))  # moved away, or watching ended
        seen = returns <= np.minimum(leaves, WATCHED)
        time = np.where(seen, returns, np.minimum(leaves, WATCHED))
        return np.stack([time, seen], 1).astype(np.float32)
    if task == "several":
        each = np.stack(
            [
                0.08 * (found["bmi"] - 28) + 0.03 * (found["age"] - 60) - 1,
                0.06 * (found["systolic"] - 138),
                0.9 * (found["smoking"] == 2) - 1.6,
                0.8 * (found["sex"] == 0) + 0.8 * (found["ward"] == 2) - 1.8,
                1.5 * (found["ward"] == 5) + 0.4 * (found["marital"] == 2) - 1.5,
            ],
            1,
        )
        return np.asarray(rng.random_sample(each.shape) < 1 / (1 + np.exp(-each)), np.int64)
    felt = risk + 0.05 * (found["days"] - 6) + rng.normal(0, 0.6, len(x))
    return np.asarray(np.digitize(felt, (0.0, 1.0)), np.int64)
