"""Which wrong protection is found by what: the tests of noise where its noise is wrong, the replay elsewhere.

The replay compares neighbouring runs and finds wrong sensitivities, structure and values that no line lists. The
ledger's checks and the lints find lines that do not add up. Both are tested elsewhere; here stands who has to.
"""

import importlib
import inspect
from functools import cache

import pytest
import torch

from fedaudit.audit.noise_audit.noise_tests import NoiseTest, run_tests
from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.discrete_laplace import DiscreteLaplace
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.laplace import Laplace
from fedaudit.fl.wire.protection import Message, Protection
from tests.audit.noise_audit import planted, wrong, wrong_means
from tests.audit.noise_audit.played import play

AMOUNT, TWICE = "amount of noise", "noise used twice"
PUBLIC = "noise that anybody can compute"
REPLAY, LEDGER = "replay on neighbours", "ledger and lints"
DECLARED = "nobody: its generator is the team's own, so that its bound stays declared"

FOUND_BY: dict[str, dict[str, str]] = {
    "planted": {
        "HalfTheNoise": AMOUNT,
        "TenthOfTheNoise": AMOUNT,
        "SlightlyLess": AMOUNT,
        "HalfTheSensitivity": REPLAY,
        "NoClip": REPLAY,
        "ClipPerTensor": REPLAY,
        "SameEveryRound": TWICE,
        "SameForEveryClient": TWICE,
        "SameInEveryTensor": TWICE,
        "DroppedComposition": LEDGER,
        "GrowsWithTheUpdate": REPLAY,
    },
    "wrong": {
        "SeedOfRoundAndClient": PUBLIC,
        "SeedOfTheMessage": PUBLIC,
        "ClipPerTensor": REPLAY,
        "ClipPerRow": REPLAY,
        "ClipOfLargeTensorsOnly": REPLAY,
        "ClipOfTheModelNotOfItsChange": REPLAY,
        "ClipInEveryNumber": REPLAY,
        "ClipFromTheSecondRound": REPLAY,
        "NoClipForOneClient": REPLAY,
        "WeightedByExamples": REPLAY,
        "ClipAfterTheNoise": AMOUNT,
        "EveryFifthRoundAgain": TWICE,
        "NeighboursShare": TWICE,
        "OneVectorForTwoKinds": TWICE,
        "SameInEveryRow": TWICE,
        "SmallerInLateRounds": AMOUNT,
        "SmallerForOneClient": AMOUNT,
        "OneTensorBare": AMOUNT,
        "EveryThirdNumberBare": AMOUNT,
        "SometimesNothing": AMOUNT,
        "Truncated": AMOUNT,
        "Uniform": AMOUNT,
        "OfLowRank": AMOUNT,
        "CancelsOverRounds": AMOUNT,
        "InProportionToTheNorm": AMOUNT,
        "InProportionToTheExamples": REPLAY,
        "SensitivityHalved": REPLAY,
        "AdjacencyMistaken": REPLAY,
        "ListsOneKind": LEDGER,
        "SendsItsSeed": LEDGER,
    },
    "wrong_means": {
        "DividesByThoseWhoCame": REPLAY,
        "LessWhereMoreCame": AMOUNT,
        "NothingInEmptyRounds": AMOUNT,
        "LessInTheLastRound": AMOUNT,
        "SeedOfTheRound": PUBLIC,
    },
    "small_noise": {
        "FadesAway": AMOUNT,
        "LastRoundsFree": AMOUNT,
        "PartnersFavoured": AMOUNT,
        "BiasesClear": AMOUNT,
        "BlocksOf64": AMOUNT,
        "WhereItMoved": AMOUNT,
        "RelativeNoise": AMOUNT,
        "NormOfNoise": AMOUNT,
        "VarianceAsScale": AMOUNT,
        "LargeInputsLess": REPLAY,
        "ShareOfNobody": AMOUNT,
        "MeanOfDraws": AMOUNT,
        "TopCoordinates": AMOUNT,
    },
    "reused_noise": {
        "KeptNoise": TWICE,
        "OneForAll": TWICE,
        "PublicSeed": PUBLIC,
        "SeedOfTheMessage": PUBLIC,
        "Antithetic": TWICE,
        "ZeroSum": TWICE,
        "SlowWalk": AMOUNT,
        "TakesBack": DECLARED,
        "Tiled": TWICE,
        "NoiseTable": TWICE,
        "FromTheStart": TWICE,
    },
    "wrong_clip": dict.fromkeys(
        (
            "EachTensor",
            "EachCoordinate",
            "EachRow",
            "LargestEntry",
            "FirstTensorsOnly",
            "Diameter",
            "MedianOfNorms",
            "OwnBase",
            "NotFinite",
            "PartnersUnclipped",
        ),
        REPLAY,
    )
    | {"AfterNoise": AMOUNT},
    "false_lines": {
        "SigmaDoubled": AMOUNT,
        "NamedLaplace": AMOUNT,
        "HalfPrecision": DECLARED,
        "CountsCalledNoised": AMOUNT,
        "HalfSensitivity": REPLAY,
        **dict.fromkeys(
            (
                "ReplacedUnpaid",
                "RecordsInstead",
                "ServerUnseen",
                "EveryOtherLine",
                "AmplifiedByHand",
                "OneLineForAll",
                "SomebodyElse",
                "FirstRoundOnly",
                "CountsUnlisted",
                "SameLineTwice",
                "CheapClaim",
            ),
            LEDGER,
        ),
    },
    "channels": {
        "SignsKept": AMOUNT,
        "CoarseNoise": DECLARED,
        "LossBesides": LEDGER,
        "SizeInTheCount": LEDGER,
        "RetriesBadLuck": DECLARED,
        "SilentWhenSmall": AMOUNT,
        "SilentWhenUnlucky": AMOUNT,
        "ClearCopy": AMOUNT,
        "LowBits": DECLARED,
        "DebugSwitch": AMOUNT,
    },
    "wrong_law": {
        "LaplaceCalledGaussian": AMOUNT,
        "UniformNoise": AMOUNT,
        "CutTails": AMOUNT,
        "RarelyLarge": AMOUNT,
        "CoinNoise": AMOUNT,
        "OneSidedCounts": AMOUNT,
        "PlusMinusOne": AMOUNT,
    },
    "central": {
        "DividedTwice": AMOUNT,
        "HalfMixed": AMOUNT,
        "NoiseOnOldModel": AMOUNT,
        "SameEachRound": TWICE,
        "SkipsFewAnswers": AMOUNT,
        "ClipsTooLate": REPLAY,
        "ServerTrusts": REPLAY,
    },
    "of_every_kind": {
        "CentredNoise": AMOUNT,
        "CutFarTails": AMOUNT,
        "LessInTheMiddle": AMOUNT,
        "MirroredHalves": TWICE,
        "NoneAlongTheUpdate": AMOUNT,
        "SeedOfTheModel": PUBLIC,
        "DebugArray": LEDGER,
        "NameWithAZero": LEDGER,
        "NotCounted": LEDGER,
        "TwoNames": LEDGER,
        "TwoRoundsAsOne": LEDGER,
    },
}
# their noise is right where messages say nothing
LEAN_ON_DATA = {"TopCoordinates", "SignsKept", "SilentWhenUnlucky", "LessInTheMiddle", "NoneAlongTheUpdate"}
HERE = {"planted", "wrong", "wrong_means"}
BY_NOISE = [
    (file, name) for file, own in FOUND_BY.items() for name, by in own.items() if by in (AMOUNT, TWICE, PUBLIC)
]


def classes(file: str) -> dict[str, type[Protection]]:
    module = importlib.import_module(
        f"tests.audit.{'noise_audit' if file in HERE else 'wrong_protections'}.{file}"
    )
    found = inspect.getmembers(module, lambda c: inspect.isclass(c) and issubclass(c, Protection))
    return {name: c for name, c in found if c.__module__ == module.__name__ and not name.startswith("_")}


def configured(file: str, name: str) -> Protection:
    if file == "planted":
        return planted.FAULTS[name]
    cls = classes(file)[name]
    settings: dict[str, object] = {}
    if file == "wrong":
        settings = {"clip_norm": wrong.CLIP, "noise_multiplier": wrong.Z, "kinds": wrong.KINDS}
    if file == "wrong_means":
        settings = {"clip_norm": 1.0, "noise_multiplier": 1.5}
    return cls(cls.Config(**settings))


def message_as_it_is(message: Message) -> Message:
    return message


def linear(message: Message) -> Message:
    """A model of one layer, alone."""
    return {Kind.LOCAL_MODEL: {"weight": torch.zeros(640), "bias": torch.zeros(10)}}


@cache
def answers_of(file: str, name: str) -> list[NoiseTest]:
    protections = [configured(file, name)]
    change = linear if file == "planted" else message_as_it_is
    still, other = (play(protections, seed, change=change) for seed in (3, 4))
    return run_tests(play(protections, 3, length=0.5) if name in LEAN_ON_DATA else still, other)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("file", "name"), BY_NOISE)
def test_wrong_noise_is_found_by_the_test_that_says_what_is_wrong(file: str, name: str) -> None:
    assert FOUND_BY[file][name] in {t.name for t in answers_of(file, name) if not t.passed}


def test_the_table_names_every_wrong_protection() -> None:
    bases = {"Wrong", "Seeded", "WrongMean", "PerRecord", "PerRecordMean", "Refusing"}  # correct, or not of noise
    for file, own in FOUND_BY.items():
        assert own.keys() == classes(file).keys() - bases, file


CORRECT: dict[str, Protection] = {
    "dp_gaussian": DPGaussian(DPGaussian.Config(kinds=(Kind.LOCAL_MODEL, Kind.LOCAL_PROTOTYPES))),
    "laplace": Laplace(Laplace.Config(kinds=(Kind.LOCAL_MODEL,))),
    "discrete_laplace": DiscreteLaplace(DiscreteLaplace.Config(floor=False)),
    "central_dp": CentralDP(CentralDP.Config()),
    "wrong, put right": wrong.Wrong(wrong.Wrong.Config(kinds=wrong.KINDS, noise_multiplier=wrong.Z)),
    "a mean, put right": wrong_means.WrongMean(wrong_means.WrongMean.Config(noise_multiplier=1.5)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CORRECT)
def test_correct_noise_passes(name: str) -> None:
    for length in (0.0, 0.5):
        still, other = (play([CORRECT[name]], seed, length=length) for seed in (3, 4))
        assert still
        found = run_tests(still, other)
        assert [t.text for t in found if not t.passed] == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(classes("correct")))
def test_unusual_correct_noise_passes(name: str) -> None:
    protections = [configured("correct", name)]
    still, other = (play(protections, seed) for seed in (3, 4))
    assert [t.text for t in run_tests(still, other) if not t.passed] == []
