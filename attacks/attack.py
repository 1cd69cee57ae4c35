"""The contract of every attack: artifacts in, a claim out; claim and truth compared, evidence out.

`run` receives only artifacts that its card requires and its position can see, and only the prior
knowledge its threat model grants. The truth reaches `measure` alone. So an attack cannot see the
answer, by signature.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evidence import Assertion, Evidence, ImageGallery, RowExhibit, Series, TextExhibit
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact, Party
from fedaudit.fl.data.columns import Columns
from fedaudit.fl.data.tokens import Canary, Tokens
from fedaudit.fl.kinds import NEEDS, Kind, Need
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.threats.threat import Aim, ThreatModel

if TYPE_CHECKING:  # it loads torch
    from fedaudit.fl.runtime.task import Task

T = TypeVar("T")
Floats = NDArray[np.floating[Any]]
# Named arrays; the attack's docstring says which. A claim that is a rule rather than an answer
# ("score any image") holds the Extractors it needs as an object array; claims stay in memory.
Claim = Mapping[str, NDArray[Any]]


Size = Literal[
    "pixels", "parameters", "network", "convolutions", "auxiliary", "replays", "updates", "clients", "rounds"
]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """About how long an attack takes: seconds of one core at the sizes of DIGITS, growing with each size named.

    A stored model (audit/planning/efforts.py), not a measurement of the machine at hand: the same config plans
    the same attacks everywhere. An attack that states none has the default.
    """

    seconds: float = 30.0
    grows: tuple[Size, ...] = ("pixels",)
    examples: int = 1  # that go through the network at a time, where it grows with that
    beside: float = 0.0  # share of the seconds, at those sizes, for which no network runs
    settings: tuple[str, ...] = ()  # numbers of its Config, which it takes as many times as long with


@dataclass(frozen=True, kw_only=True)
class Card:
    """What an attack is, for `fedaudit tools list attacks` and for every finding it leads to."""

    title: str
    source: str  # paper and algorithm number
    aim: Aim
    threat: ThreatModel
    requires: tuple[Kind, ...]  # needs all of these to be visible
    learns: str  # what the adversary gets if it works, in words of the reader
    does_not_show: str  # what a result of this attack cannot tell
    remedy: str  # what to do about a finding, naming the protection
    also_aims: tuple[Aim, ...] = ()  # what it claims besides
    also_reads: tuple[Kind, ...] = ()  # used where visible
    aids: tuple[Kind, ...] = ()  # of these, what only helps: the attack claims nothing about it
    # who makes its planted leak and dose response: a file of audit/controls/, "mine:Plant"; "": measure() itself
    control: str = ""
    rounds: Literal["latest", "all"] = "latest"  # "all": every recorded round
    any_numbers: bool = False  # reads open kinds as well: a message as numbers, whatever they are called
    # why an attack against people counts none of them, as a sentence; empty where it does
    uncounted: str = ""
    # of examples, labels and network: without these it says nothing
    needs: tuple[Need, ...] = ("images", "classes")
    effort: Effort = field(default_factory=Effort)  # about how long it takes, for planning

    @property
    def aims(self) -> tuple[Aim, ...]:
        """All that it claims something about."""
        return (self.aim, *self.also_aims)

    @property
    def reads(self) -> tuple[Kind, ...]:
        """All that it may read: what it needs, and what it uses where visible."""
        return (*self.requires, *self.also_reads)

    @property
    def targets(self) -> tuple[Kind, ...]:
        """What it makes claims about; there must be one of them, or an open kind, for it to attack."""
        return tuple(k for k in self.reads if k not in self.aids)

    def explain_unfit(self, gives: Collection[Need]) -> str:
        """Why it has nothing to say of examples that give this, as a sentence; empty where it has."""
        return next((f"it needs {NEEDS[need]}" for need in self.needs if need not in gives), "")

    def pick_read(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Of these kinds, those that it reads."""
        return [k for k in kinds if k in self.reads or (k.open and self.any_numbers)]

    def pick_targets(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Of these kinds, those that it makes claims about."""
        return [k for k in self.pick_read(kinds) if k not in self.aids]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples: x [N, ...] as clients hold them, and the group of each by its label, int64 [N]: its class."""

    x: Floats
    y: NDArray[np.int64]
    labels: NDArray[Any] | None = None  # [N, ...] as the task has them, where these are no classes

    def __len__(self) -> int:
        return len(self.y)

    @property
    def wanted(self) -> NDArray[Any]:
        """[N, ...] what is wanted of the network for each."""
        return self.y if self.labels is None else self.labels

    def only(self, rows: NDArray[Any]) -> "Examples":
        """Those of these rows, by number or as a mask."""
        labels = None if self.labels is None else self.labels[rows]
        return Examples(x=self.x[rows], y=self.y[rows], labels=labels)

    @classmethod
    def join(cls, images: "Sequence[Examples]") -> "Examples":
        """All of these, one after the other."""
        x, y = (np.concatenate([getattr(some, name) for some in images]) for name in ("x", "y"))
        labelled = [some.labels for some in images if some.labels is not None]
        return Examples(x=x, y=y, labels=np.concatenate(labelled) if len(labelled) == len(images) else None)

    def of_class(self, label: int) -> Floats:
        chosen: Floats = self.x[self.y == label]
        return chosen


@dataclass(frozen=True, kw_only=True)
class PublicExamples(Examples):
    """Examples that everybody has, in the order in which messages number them."""

    # [N] bool: those that a malicious server put among them, of each of which it knows that some client holds it
    candidates: NDArray[np.bool_]


class Extractor(Protocol):
    """A model with known weights, as an adversary who has the architecture can run it."""

    def features(self, images: Floats) -> Floats: ...  # [N, C, H, W] in [0, 1] -> [N, D]

    def logits(self, images: Floats) -> Floats: ...  # [N, C, H, W] in [0, 1] -> [N, classes]

    # the torch module itself, of tensors in [0, 1], with features(); its `net` takes what columns make of rows
    def module(self) -> Any: ...


class Layered(Extractor, Protocol):
    """The same of a network that clients and a server share."""

    # a torch module of the first so many layers, of tensors in [0, 1]
    def first_layers(self, layers: int) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the adversary knows beforehand. Anything the threat model does not grant is None."""

    classes: int  # groups that labels make; 1 where they make none
    width: int = 0  # numbers that the network gives for an example, or for each place; 0: as many as classes
    shape: tuple[int, ...]  # of one example: C, H, W of images
    architecture: "Architecture | None" = None
    generators: "GeneratorArchitecture | None" = None  # where the method has generators
    auxiliary: Examples | None = None
    public: PublicExamples | None = None  # where the method has public data
    training: Mapping[str, float] = field(default_factory=dict)  # public: local_epochs, lr, ...
    trainer: "Trainer | None" = None  # shadow training: architecture and auxiliary data granted
    heard: Mapping[int, frozenset[int]] = field(default_factory=dict)  # server: round -> who answered
    condenser: "Condenser | None" = None  # granted with the architecture, where clients condense
    player: "Player | None" = None  # granted with the architecture and images, where clients' code is known
    timing: "Timing | None" = None  # granted with the architecture, where there is a clock
    hijacker: "Hijacker | None" = None  # malicious server: where it trained clients' layers for itself
    device: str = "cpu"  # where the architecture's models lie, and what attacks train
    schema: Tokens | None = None  # what token ids stand for, where examples are text and somebody said
    columns: Columns | None = None  # what numbers of a row stand for, of a table, where somebody said
    task: "Task | None" = None  # what is wanted of the network; None: a class

    @property
    def granted_architecture(self) -> "Architecture":
        """The architecture; raises ValueError where the threat model does not grant it, which a card prevents."""
        if self.architecture is None:
            raise ValueError("the attack's threat model does not grant the architecture")
        return self.architecture

    @property
    def granted_auxiliary(self) -> Examples:
        """The adversary's own examples; raises ValueError as `granted_architecture`."""
        if self.auxiliary is None:
            raise ValueError("the attack's threat model does not grant examples of the adversary's own")
        return self.auxiliary


class Hijacker(Protocol):
    """What a server that trains clients' layers for itself reads of activations (fl/threats/adversary.py)."""

    def __call__(self, activations: Floats) -> Floats:
        """Images [n, C, H, W] in [0, 1] of activations [n, ...]."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What is published of how long devices take (fl/clients/time_model.py)."""

    bandwidth: float
    compute: float
    tiers: Floats  # capabilities that devices have
    # seconds of training an example, by what the client said it did
    cost: Callable[[Mapping[Kind, Mapping[str, NDArray[Any]]]], float]


class Architecture(Protocol):
    """Weights, as they crossed the wire, to a model that can be run."""

    def __call__(self, weights: Mapping[str, NDArray[Any]]) -> Extractor: ...


class GeneratorArchitecture(Protocol):
    """Generators and critics from their weights, and training of such, as the federation does both."""

    def images(
        self, weights: Mapping[str, NDArray[Any]], n: int, rng: np.random.Generator
    ) -> Examples: ...  # made from random z; labels are those wanted of a conditional generator

    def scores(self, weights: Mapping[str, NDArray[Any]], images: Examples) -> Floats: ...  # [N]

    def train(self, images: Examples, steps: int, rng: np.random.Generator) -> "TrainedPair": ...

    latent: int  # dimension of z
    classes: int  # 0: the generator cannot be wanted a class
    device: str  # where it trains, and what maker() works on

    # a differentiable function of torch tensors z [n, latent] and labels [n]: images in [0, 1]
    def maker(self, weights: Mapping[str, NDArray[Any]]) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class TrainedPair:
    """Weights of a generator and its critic."""

    generator: Mapping[str, NDArray[Any]]
    critic: Mapping[str, NDArray[Any]]


class Trainer(Protocol):
    """Trains models of the audited architecture on the adversary's own images, side by side."""

    def __call__(
        self,
        images: Examples,
        subsets: Sequence[NDArray[np.int64]],
        queries: Floats,
        *,
        epochs: int,
        seed: int,
        start: Mapping[str, NDArray[Any]] | None = None,
    ) -> Floats:
        """Logits [subsets, Q, classes] of queries [Q, C, H, W], one model a subset of rows.

        `start`: weights that training begins with; None draws them anew for every model.
        """


class Condenser(Protocol):
    """Condenses images of the adversary's own as clients do theirs: the algorithm is public."""

    def __call__(self, groups: Sequence[Examples], seed: int) -> Floats:
        """Groups of one class each -> [groups, C, H, W] as sent; NaN where a protection withholds it."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Which client is played, in which round, and with which weights."""

    sender: Party
    round: int
    weights: Mapping[str, NDArray[Any]]

    @property
    def client(self) -> int:
        return self.sender.index or 0


# What arrives of a message, kind by kind; empty where a protection withholds it
Sent = Mapping[Kind, Mapping[str, NDArray[Any]]]


class Player(Protocol):
    """Plays a client on images of the adversary's own: clients' code and protections are public."""

    def play(
        self,
        visit: Visit,
        holdings: Sequence[Examples],
        seed: int,
        *,
        steps: int | None = None,
        draws: int | None = None,
        noised: bool = True,
        protected: bool = True,
    ) -> list[Sent]:
        """All that would arrive of a client that begins with `visit.weights`, for each of the holdings.

        None of the holdings is empty. The client trains as the run does, or `steps` times on all that it holds;
        where that is 0 times, it sends what it makes of its examples with these weights. Visits draw from
        streams of their own, of `draws` where given: then what the client's code draws is the same in all.
        `noised`: with the protections' noise, else with noise at its mean, 0. Raises UserError where the client's
        code refuses such images.
        """

    def recall(self, key: Hashable, compute: Callable[[], T]) -> T:
        """compute(), or what it gave another attack that works with this player under the same key."""


OF_OTHERS = "of other people, so their style is not controlled"


class Unseen(NamedTuple):
    """Examples that nobody trained on, to compare members with; `whose`: "held out of the same clients' data"."""

    images: Examples
    whose: str  # empty where they are like the clients', class by class
    alike_in: str = "classes"  # or "groups" of other labels; empty where these make none

    @property
    def is_alike(self) -> bool:
        """Whether members differ from them by nothing but that they were trained on."""
        return self.whose != OF_OTHERS

    @property
    def words(self) -> str:
        alike = self.alike_in and f" of the same {self.alike_in}"
        return ", ".join(filter(None, (f"non-members{alike}", self.whose)))


@dataclass(frozen=True, kw_only=True)
class BatchTruth:
    """The examples behind a message that has a row for each of them, in the order of its rows."""

    client: int  # whose they are; -1: the auditor's own
    rows: NDArray[np.int64]  # of the training data
    images: Examples


class Truth(Protocol):
    """What the auditor knows and the attack does not."""

    @property
    def reference(self) -> Examples: ...  # never trained on and never given to an attacker

    @property
    def auxiliary(self) -> Examples: ...  # what the attacker had (for blind baselines)

    @property
    def canaries(self) -> Sequence[Canary]: ...  # secrets that the data set planted in texts; none elsewhere

    # training images of that class behind it, [n, C, H, W]: those of the clients heard for it
    def members(self, artifact: str, label: int) -> Floats: ...

    def find_members(self, artifact: str, label: int) -> Examples: ...  # the same, with their labels

    # who they are: client -> rows, [n] in all, in the order of members(); the auditor's own are client -1
    def people(self, artifact: str, label: int) -> Mapping[int, NDArray[np.int64]]: ...

    # the clients that a recorded one is made of, heard for it where the server made it; nobody for a replayed one
    def find_contributors(self, artifact: str) -> frozenset[int]: ...

    # what members of these clients' messages are compared with: their own where they held some out
    def unseen(self, clients: Collection[int]) -> Unseen: ...

    # which examples the rows of a message are of; None where nobody told
    def find_batch(self, artifact: str) -> BatchTruth | None: ...

    def read_upload(self, artifact: str) -> Mapping[str, NDArray[Any]]: ...  # the payload of a recorded one

    def label_counts(self, client: int) -> NDArray[np.int64]: ...  # [classes]

    def client_examples(self, client: int) -> Examples: ...

    # who they are, [n] rows of the training data, in the order of client_examples()
    def client_rows(self, client: int) -> NDArray[np.int64]: ...

    def capability(self, client: int) -> float: ...  # how fast its device is, by the simulated clock


class Attack(Plugin):
    """A passive attack. Subclasses set `card` and write run and measure; see attacks/README.md."""

    card: Card

    @abstractmethod
    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        """What the adversary asserts, from what it could see and knew."""

    @abstractmethod
    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        """The claim against the truth and against every blind baseline, with intervals."""

    def count_times(self) -> float:
        """How many times as long it takes with its settings as with those that it has by itself."""
        settings = self.card.effort.settings
        default = type(self).Config() if settings else None
        return float(math.prod(getattr(self.config, name) / getattr(default, name) for name in settings))

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whom the claim hits, person by person, of every kind of message apart.

        Empty by default: the attack bounds no harm to people, and its card says why (`uncounted`).
        """
        return []

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        """What to do about what was found, and whom it hit; the card's by default.

        A remedy that depends on a cause is given where the messages show that cause.
        """
        return self.card.remedy

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        """The claim in words, client by client; `classes` are their names. None by default: images and rules that
        score images have no words."""
        return []

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        """Images worth showing; none by default."""
        return []

    def exhibits(self, claim: Claim, truth: Truth) -> list[TextExhibit | RowExhibit]:
        """Texts or rows worth showing; none by default."""
        return []

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        """ROC curves of a membership attack; none by default."""
        return []

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        """Why this attack means nothing here, as a sentence; empty when it applies."""
        return ""
