"""Tables that come with scikit-learn, nothing is downloaded: two of classes and one of numbers.

A fifth of the rows is held out for testing, always the same. Columns are scaled by that part, which no client
holds, and have its ranges: of clients' own rows they would be a message of theirs. Names are scikit-learn's.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.columns import Column, Columns
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import hold_out, read_numbers
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.tasks.regression import Regression

PLUGINS = ("breast_cancer", "diabetes", "wine")
NUCLEI = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
CHEMICALS = (
    "alcohol",
    "malic_acid",
    "ash",
    "alcalinity_of_ash",
    "magnesium",
    "total_phenols",
    "flavanoids",
    "nonflavanoid_phenols",
    "proanthocyanins",
    "color_intensity",
    "hue",
    "od280/od315_of_diluted_wines",
    "proline",
)


class Table(Dataset):
    """Base class: a subclass names its file, of which the last column is the class of a row."""

    holds = "public"
    file: str
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...]
    about: str

    @settings
    class Config:
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the rows that is held out for testing"
        )

    def load(self) -> Data:
        numbers = read_numbers(self.file, ",", skip=1)  # names of classes
        everything = Arrays(x=numbers[:, :-1].copy(), y=numbers[:, -1].astype(np.int64))
        train, test = hold_out(everything, self.config.test_fraction)
        columns = Columns(columns=self.columns).learn(test.x)
        return Data(train=train, test=test, classes=self.classes, columns=columns, about=self.about)


class BreastCancer(Table):
    """Breast cancer: 569 people, 30 measures of cell nuclei in an image of a sample, malignant or benign."""

    title = "Breast cancer"
    source = "scikit-learn; UCI Breast Cancer Wisconsin (Diagnostic), 1995"
    file, classes = "breast_cancer.csv", ("malignant", "benign")
    columns = tuple(
        Column(name=f"{kind} {measure}".strip() if kind != "error" else f"{measure} error", sensitive=True)
        for kind in ("mean", "error", "worst")
        for measure in NUCLEI
    )
    about = "Thirty measures of cell nuclei of 569 people, malignant or benign, which come with scikit-learn."


class Wine(Table):
    """Wine: 178 wines of three growers, 13 chemical measures."""

    title = "Wine"
    source = "scikit-learn; UCI Wine, 1991"
    file, classes = "wine_data.csv", ("grower 1", "grower 2", "grower 3")
    columns = tuple(Column(name=name) for name in CHEMICALS)
    about = "Thirteen chemical measures of 178 wines of three growers, which come with scikit-learn."


class Diabetes(Table):
    """Diabetes: 442 people, age, sex, body mass, blood pressure and six serum measures.

    What is predicted is how far it had got a year later, in deviations from the mean, both of the test part.
    """

    title = "Diabetes"
    source = "scikit-learn; Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 2004"
    file = "diabetes_data_raw.csv.gz"
    columns = (
        Column(name="age", unit="years", step=1),
        Column(name="sex", step=1, sensitive=True),  # 1 or 2, and nobody says which is which
        Column(name="bmi", step=0.1, sensitive=True),
        Column(name="bp", sensitive=True),
        *(Column(name=f"s{i}", sensitive=True) for i in range(1, 7)),
    )
    about = "Ten measures of 442 people with diabetes and how far it had got a year later, with scikit-learn."

    def load(self) -> Data:
        x, target = read_numbers(self.file), read_numbers("diabetes_target.csv.gz").ravel()
        order = np.random.RandomState(0).permutation(len(x))
        tests = round(self.config.test_fraction * len(x))
        of_test, of_train = np.sort(order[:tests]), np.sort(order[tests:])
        y = (target - target[of_test].mean()) / target[of_test].std()
        everything = Arrays(x=x.copy(), y=y.astype(np.float32))
        train, test = everything.take(of_train), everything.take(of_test)
        columns = Columns(columns=self.columns).learn(test.x)
        return Data(train=train, test=test, task=Regression(), columns=columns, about=self.about)
