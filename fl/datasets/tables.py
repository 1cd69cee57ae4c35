"""Tables that come with scikit-learn, nothing is downloaded: two of classes and one of numbers.

A fifth of the rows is held out for testing, always the same. Models see a column less its mean over its deviation
in that part, which no client holds: scaling by clients' own rows would be a message of theirs.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import hold_out, moments, read_numbers
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.tasks.regression import Regression

PLUGINS = ("breast_cancer", "diabetes", "wine")


class Table(Dataset):
    """Base class: a subclass names its file, of which the last column is the class of a row."""

    holds = "public"
    file: str
    classes: tuple[str, ...] = ()
    about: str

    @settings
    class Config:
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the rows that is held out for testing"
        )

    def load(self) -> Data:
        numbers = read_numbers(self.file, ",", skip=1)  # names of classes
        everything = Arrays(x=numbers[:, :-1].astype(np.float32), y=numbers[:, -1].astype(np.int64))
        train, test = hold_out(everything, self.config.test_fraction)
        mean, std = moments(test.x)
        return Data(train=train, test=test, classes=self.classes, mean=mean, std=std, about=self.about)


class BreastCancer(Table):
    """Breast cancer: 569 people, 30 measures of cell nuclei in an image of a sample, malignant or benign."""

    title = "Breast cancer"
    source = "scikit-learn; UCI Breast Cancer Wisconsin (Diagnostic), 1995"
    file, classes = "breast_cancer.csv", ("malignant", "benign")
    about = "Thirty measures of cell nuclei of 569 people, malignant or benign, which come with scikit-learn."


class Wine(Table):
    """Wine: 178 wines of three growers, 13 chemical measures."""

    title = "Wine"
    source = "scikit-learn; UCI Wine, 1991"
    file, classes = "wine_data.csv", ("grower 1", "grower 2", "grower 3")
    about = "Thirteen chemical measures of 178 wines of three growers, which come with scikit-learn."


class Diabetes(Table):
    """Diabetes: 442 people, age, sex, body mass, blood pressure and six serum measures.

    What is predicted is how far it had got a year later, in deviations from the mean, both of the test part.
    """

    title = "Diabetes"
    source = "scikit-learn; Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 2004"
    file = "diabetes_data_raw.csv.gz"
    about = "Ten measures of 442 people with diabetes and how far it had got a year later, with scikit-learn."

    def load(self) -> Data:
        x, target = read_numbers(self.file), read_numbers("diabetes_target.csv.gz").ravel()
        order = np.random.RandomState(0).permutation(len(x))
        tests = round(self.config.test_fraction * len(x))
        of_test, of_train = np.sort(order[:tests]), np.sort(order[tests:])
        y = (target - target[of_test].mean()) / target[of_test].std()
        everything = Arrays(x=x.astype(np.float32), y=y.astype(np.float32))
        train, test = everything.take(of_train), everything.take(of_test)
        mean, std = moments(test.x)
        return Data(train=train, test=test, task=Regression(), mean=mean, std=std, about=self.about)
