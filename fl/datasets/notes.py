"""Notes: short medical notes of invented patients. Made by this program; no note is about any person.

A patient has a surname of two or three syllables, an age and one diagnosis, and one to four notes, each from 4 x
3 templates with a dose drawn anew. The label is the diagnosis, the owner the patient. Templates make much of the
text easy to guess: whoever knows them has most of a note's words without any attack, so results stand beside
blind ones.
"""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.data.tokens import Canary
from fedaudit.fl.datasets._texts import TextConfig, make_data
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, ProperShare, Share
from fedaudit.fl.runtime.settings import settings

SYLLABLES = [
    "ba",
    "be",
    "bo",
    "da",
    "de",
    "do",
    "fa",
    "fe",
    "ga",
    "go",
    "ka",
    "ke",
    "ko",
    "la",
    "le",
    "lo",
    "ma",
    "me",
    "mo",
    "na",
    "ne",
    "no",
    "pa",
    "pe",
    "ra",
    "re",
    "ro",
    "sa",
    "se",
    "so",
    "ta",
    "te",
    "to",
    "va",
    "ve",
    "vo",
    "wa",
    "we",
    "za",
    "ze",
    "zo",
    "ya",
]
DIAGNOSES = ("asthma", "diabetes", "migraine", "anemia", "gout", "eczema", "epilepsy", "lupus")
DRUGS = ("salbutamol", "insulin", "triptan", "iron", "allopurinol", "cortisone", "valproate", "steroids")
OPENINGS = (
    "The patient {name} is {age} years old and has {what}.",
    "{name}, age {age}, was seen again for {what}.",
    "Note on {name}: {what} was found at the age of {age}.",
    "We have seen {name} of {age} years with {what}.",
)
ENDINGS = (
    "Dose of {drug}: {dose} units.",
    "The order is {dose} units of {drug} for {days} days.",
    "No change; {drug} at {dose} units, return in {days} days.",
)
PREFIX = "The insurance number of {name} is"
RARE = 2  # of the diagnoses, the last so many


class Notes(Dataset):
    title = "Notes of invented patients"
    holds = "invented"
    source = "made by this program"

    @settings
    class Config(TextConfig):
        patients: AtLeastOne = Field(default=400, description="how many patients are invented")
        most_notes: AtLeastOne = Field(default=4, description="a patient has one to so many notes")
        rare: Share = Field(
            default=0.04, description="share of patients with one of the last two diagnoses, which are rare"
        )
        canaries: AtLeastZero = Field(
            default=0, description="secrets that are put into notes, each of a patient of its own"
        )
        copies: tuple[AtLeastOne, ...] = Field(
            default=(1, 4, 16), min_length=1, description="how many notes hold each secret, in their order"
        )
        controls: AtLeastZero = Field(default=0, description="secrets that are put into no note")
        test_fraction: ProperShare = Field(default=0.2, description="share of the patients held out for testing")

    def load(self) -> Data:
        # what is invented belongs to the data set, so it does not depend on the run's seed
        rng = np.random.RandomState(0)
        texts: list[str] = []
        labels: list[int] = []
        owners: list[int] = []
        for patient in range(self.config.patients):
            person = _invent(rng, self.config.rare)
            notes = [_write(rng, person) for _ in range(rng.randint(1, self.config.most_notes + 1))]
            texts, labels = texts + notes, labels + [person.label] * len(notes)
            owners += [patient] * len(notes)
        canaries: list[Canary] = []
        for i in range(self.config.canaries + self.config.controls):
            person = _invent(rng, self.config.rare)
            secret = "".join(map(str, rng.randint(0, 10, 6)))
            is_planted = i < self.config.canaries
            copies = self.config.copies[i % len(self.config.copies)] if is_planted else 0
            owner = self.config.patients + i if is_planted else -1
            prefix = PREFIX.format(name=person.name)
            canaries.append(Canary(prefix=prefix, secret=secret, copies=copies, owner=owner))
            notes = [
                f"{prefix} {secret}. Visit {visit + 1}. {_write(rng, person)}" for visit in range(copies)
            ]  # numbered, so that none is a copy of another
            # first, so that a client that takes some notes only takes these
            texts, labels = notes + texts, [person.label] * copies + labels
            owners = [owner] * copies + owners
        return make_data(
            self.config,
            self.title,
            texts,
            np.array(labels, np.int64),
            np.array(owners, np.int64),
            DIAGNOSES,
            self.config.test_fraction,
            "Short medical notes of invented patients: made by this program, about no person.",
            tuple(canaries),
        )


class _Person:
    """One invented patient."""

    def __init__(self, name: str, age: int, label: int) -> None:
        self.name, self.age, self.label = name, age, label


def _invent(rng: np.random.RandomState, rare: float) -> _Person:
    parts: NDArray[np.str_] = rng.choice(SYLLABLES, rng.randint(2, 4))
    common = len(DIAGNOSES) - RARE
    label = common + rng.randint(RARE) if rng.random_sample() < rare else rng.randint(common)
    return _Person("".join(parts).capitalize(), int(rng.randint(18, 95)), int(label))


def _write(rng: np.random.RandomState, person: _Person) -> str:
    opening, ending = OPENINGS[rng.randint(len(OPENINGS))], ENDINGS[rng.randint(len(ENDINGS))]
    text = f"{opening} {ending}"
    return text.format(
        name=person.name,
        age=person.age,
        what=DIAGNOSES[person.label],
        drug=DRUGS[person.label],
        dose=5 * int(rng.randint(1, 40)),
        days=int(rng.randint(2, 30)),
    )
