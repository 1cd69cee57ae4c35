"""Kinds: what a message may contain, one row a kind, and all that anybody needs to know of it.

The names are those of the papers' shared quantities. Cards name kinds, the wire refuses those that a card does
not name, and what a kind is stands here and nowhere else: the report's words, the arrays, how secure aggregation
sums it and whose data it tells of. `fedaudit tools list messages` prints them.

This file imports nothing of ours and no library, so that cards can be read at no cost.
"""

import re
from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple


class Summed(Enum):
    """How the server's sum under secure aggregation is made of the uploads (fl/wire/sums.py)."""

    NO = "not summed"  # means nothing when summed: secure aggregation refuses it
    PLAIN = "added up"
    WEIGHTED = "added up, each times its client's num_examples"
    BY_CLASS = "added up class by class"  # one row for each of `classes`
    BY_CLASS_WEIGHTED = "added up class by class, each row times its proto_counts"


class Tells(StrEnum):
    """Whose data a message of a kind tells of: the finest group that it may be computed over."""

    NOBODY = "nobody"  # control plane: no release of data
    EXAMPLE = "one example"
    GROUP = "a few examples of one client"
    CLASS = "one client's examples of one class"
    CLIENT = "all examples of one client"
    CLIENTS = "examples of several clients"


# What an attack may need of examples, of their labels and of the network
Need = Literal["classes", "groups", "answers", "tokens", "next tokens", "numbers", "rows", "images", "one scale"]
NEEDS: dict[Need, str] = {  # as the end of "it needs"
    "classes": "a class for each example",
    "groups": "labels that make groups",
    "answers": "one answer of the network for each example",
    "tokens": "texts of tokens",
    "next tokens": "a model of the next token",
    "numbers": "examples of numbers",
    "rows": "rows of a table",
    "images": "images [channels, height, width]",
    "one scale": "numbers of one scale, and columns of a table have scales of their own",
}

MODEL = {"*": "as in the model"}  # one array a parameter or buffer, under its name
NUMBERS = {"*": "numbers"}
HOLDERS = "holders"  # an array of sums of rows, class by class: how many clients sent one


class Row(NamedTuple):
    """What one kind is."""

    name: str
    words: str  # what it is, for a reader outside the field: "Who saw what" of the report
    tells: Tells
    arrays: dict[str, str]  # name -> shape; "*": any name
    summed: Summed = Summed.NO
    about: bool = False  # tells how many, of which classes or how well they fit, and passes no example on
    counted: str = ""  # the array of which one example more raises one entry by one


OPEN = re.compile(r"(example|group|class|client|clients):([A-Za-z]\w{0,59})", re.ASCII)


class Kind(StrEnum):
    """What a message may contain. A method's card lists the kinds it sends; the wire refuses others.

    Besides those named here there are open kinds, WHOSE:ROLE: numbers of any shape with the role that a recorded
    federation gives them and the finest group that they are computed over, such as client:optimizer.

    `str(kind)` is its name; words, tells, arrays, summed, counted and about are those of its Row. In shapes
    C is the number of classes, c or m of them or of examples are listed, D is the number of features.
    """

    words: str
    tells: Tells
    arrays: MappingProxyType[str, str]
    summed: Summed
    counted: str
    about: bool

    def __new__(cls, *fields: Any) -> "Kind":
        row = Row(*fields)
        kind = str.__new__(cls, row.name)
        kind._value_, kind.words, kind.tells = row.name, row.words, row.tells
        kind.arrays, kind.summed = MappingProxyType(row.arrays), row.summed
        kind.counted, kind.about = row.counted, row.about
        return kind

    @classmethod
    def _missing_(cls, value: object) -> "Kind | None":
        found = OPEN.fullmatch(str(value))
        if found is None:
            return None
        whose, role = found.groups()
        kind = str.__new__(cls, value)
        kind._name_ = kind._value_ = str(value)
        kind.words = f"what its operator calls {role.replace('_', ' ')}"
        kind.tells, kind.arrays, kind.summed = Tells[whose.upper()], MappingProxyType(NUMBERS), Summed.NO
        kind.counted, kind.about = "", False
        return kind

    @property
    def open(self) -> bool:
        """Whether an operator named it, and nothing but its role and whose data it tells of is known."""
        return ":" in self

    @property
    def listed(self) -> bool:
        """Whether arrays have a row for each of so many classes or examples as the sender holds or chose."""
        return any(shape.startswith(("[c", "[m")) for shape in self.arrays.values())

    @property
    def control_plane(self) -> bool:
        """Whether it says nothing about anybody's examples: no release of data."""
        return self.tells is Tells.NOBODY

    GLOBAL_MODEL = Row("global_model", "the shared model's weights", Tells.CLIENTS, MODEL)
    LOCAL_MODEL = Row(
        "local_model", "one client's model after its local training", Tells.CLIENT, MODEL, Summed.WEIGHTED
    )
    MODEL_DELTA = Row(  # after minus before
        "model_delta", "the change one client's training made to the model", Tells.CLIENT, MODEL, Summed.WEIGHTED
    )
    NORMALIZED_DELTA = Row(  # FedNova's d_k: before minus after, over rate times ||a||_1
        "normalized_delta",
        "one client's change of the model per local step",
        Tells.CLIENT,
        MODEL,
        Summed.WEIGHTED,
    )
    ADAPTER = Row(  # below a frozen base: LAYER.lora_A.weight [rank, in], LAYER.lora_B.weight [out, rank]
        "adapter",
        "one client's adapter of the shared model after its local training",
        Tells.CLIENT,
        MODEL,
        Summed.WEIGHTED,
    )
    ADAPTER_DELTA = Row(
        "adapter_delta",
        "the change one client's training made to its adapter",
        Tells.CLIENT,
        MODEL,
        Summed.WEIGHTED,
    )
    EMBEDDING_DELTA = Row(  # where nothing else is sent
        "embedding_delta",
        "the change one client's training made to the vectors of the tokens",
        Tells.CLIENT,
        MODEL,
        Summed.WEIGHTED,
    )
    GRADIENT = Row(
        "gradient", "the gradient of one batch of one client's examples", Tells.GROUP, MODEL, Summed.PLAIN
    )
    CONTROL_GLOBAL = Row(  # SCAFFOLD's c
        "control_global", "the average direction of all clients' training", Tells.CLIENTS, MODEL
    )
    CONTROL_DELTA = Row(  # SCAFFOLD's c_k+ - c_k
        "control_delta", "the change of one client's training direction", Tells.CLIENT, MODEL, Summed.PLAIN
    )
    RELAY_MODEL = Row(
        "relay_model", "a model handed on, trained by one client after the other", Tells.CLIENT, MODEL
    )
    GAN_G = Row("gan_G", "weights of an image generator trained on clients' data", Tells.CLIENT, MODEL)
    GAN_D = Row("gan_D", "weights of a critic trained on clients' data", Tells.CLIENT, MODEL)

    FEATURE_STATS = Row(  # 0 of a category; the server sends what all of them tell together
        "feature_stats",
        "number, mean, deviation, least and greatest value of each column over one client's rows",
        Tells.CLIENT,
        {"count": "[F]", "mean": "[F]", "deviation": "[F]", "least": "[F]", "greatest": "[F]"},
    )
    NUM_EXAMPLES = Row(
        "num_examples",
        "how many examples one client holds",
        Tells.CLIENT,
        {"count": "[]"},
        Summed.PLAIN,
        counted="count",
        about=True,
    )
    NUM_STEPS = Row(  # FedNova adds the norm ||a||_1 of its steps
        "num_steps",
        "how many local steps one client took; with known settings, its size",
        Tells.CLIENT,
        {"steps": "[]", "norm": "[]"},
        Summed.WEIGHTED,
        about=True,
    )
    LABEL_COUNTS = Row(
        "label_counts",
        "how many examples of each class one client holds, exactly",
        Tells.CLASS,
        {"counts": "[C]"},
        Summed.PLAIN,
        counted="counts",
        about=True,
    )
    NOISED_LABEL_DIST = Row(  # a row for each generator where a client is given several
        "noised_label_dist",
        "one client's share of each class, with noise",
        Tells.CLASS,
        {"counts": "[C] or [J, C]"},
        about=True,
    )
    CLASS_VOLUME = Row(  # Seol & Kim
        "class_volume",
        "how many examples of each class one client trains on, after it repeats those of rare classes",
        Tells.CLASS,
        {"counts": "[C]"},
        about=True,
    )
    LOCAL_PROTOTYPES = Row(
        "local_prototypes",
        "one client's mean feature vector of each of its classes",
        Tells.CLASS,
        {"classes": "[c]", "features": "[c, D]"},
        Summed.BY_CLASS_WEIGHTED,
    )
    GLOBAL_PROTOTYPES = Row(
        "global_prototypes",
        "mean feature vectors of each class over all uploads",
        Tells.CLIENTS,
        {"classes": "[c]", "features": "[c, D]"},
    )
    PROTO_COUNTS = Row(
        "proto_counts",
        "how many examples are behind each prototype: a label histogram",
        Tells.CLASS,
        {"classes": "[c]", "counts": "[c]"},
        Summed.BY_CLASS,
        counted="counts",
        about=True,
    )
    PROXIES = Row(  # FedAwS
        "proxies",
        "the rows of the model's last layer for the classes one client holds",
        Tells.CLASS,
        {"classes": "[m]", "rows": "[m, D]"},
    )
    MEAN_LOGIT_TABLE = Row(  # row c: the mean output on class c
        "mean_logit_table",
        "one client's mean model output on each of its classes",
        Tells.CLASS,
        {"table": "[C, C]", "present": "[C]"},
        Summed.PLAIN,
    )
    GLOBAL_LOGIT_TABLE = Row(
        "global_logit_table",
        "mean model outputs on each class over all uploads",
        Tells.CLIENTS,
        {"table": "[C, C]", "present": "[C]"},
    )

    FISHER = Row(  # FedCurv: u = F and v = F w; downwards the sums of clients'
        "fisher",
        "how steep one client's loss is in each of the model's weights, squared; from the server, their sum",
        Tells.CLIENT,
        {"*": "u/NAME and v/NAME, each as in the model"},
        Summed.PLAIN,
    )
    PUBLIC_LOGITS = Row(  # index: places in the public data
        "public_logits",
        "one client's model outputs on examples that everybody has; from the server, their mean",
        Tells.CLIENT,
        {"index": "[m]", "logits": "[m, C]"},
    )
    FEATURES = Row(  # FedGKT
        "features",
        "what one client's model makes of each of its examples, with their labels and its outputs on them",
        Tells.EXAMPLE,
        {"features": "[n, D]", "labels": "[n]", "logits": "[n, C]"},
    )
    SERVER_LOGITS = Row(  # FedGKT: one row an example, in the order of the client's features
        "server_logits",
        "the server's outputs on each of one client's examples",
        Tells.CLIENTS,
        {"logits": "[n, C]"},
    )

    CONDENSED_IMAGES = Row(
        "condensed_images",
        "synthetic images that stand for one client's classes",
        Tells.CLASS,
        {"images": "[m, channels, H, W]"},
    )
    CONDENSED_LABELS = Row(
        "condensed_labels", "which classes one client holds", Tells.CLASS, {"labels": "[m]"}, about=True
    )
    MASHED_BATCH = Row(  # labels: shares of classes
        "mashed_batch",
        "averages of a few examples each, with their mean labels",
        Tells.GROUP,
        {"images": "[m, channels, H, W]", "labels": "[m, C]"},
    )
    SEED_SAMPLES = Row(  # in [0, 1]
        "seed_samples", "clients' own examples", Tells.EXAMPLE, {"images": "[m, channels, H, W]", "labels": "[m]"}
    )

    # Split learning: of every batch, both ways
    SMASHED = Row(  # without labels where the client keeps them
        "smashed",
        "what the first layers of the model make of each example of a batch, and its labels",
        Tells.EXAMPLE,
        {"activations": "[b, ...]", "labels": "[b] or absent"},
    )
    SMASHED_GRADIENT = Row(
        "smashed_gradient",
        "the gradient of the loss by what the first layers made of each example of a batch",
        Tells.EXAMPLE,
        {"gradient": "[b, ...]"},
    )

    LOCAL_LOSS = Row(  # of a GAN: [critic, generator]
        "local_loss", "one client's loss on its own data", Tells.CLIENT, {"loss": "[] or [2]"}, about=True
    )
    CLUSTER_ID = Row("cluster_id", "which cluster one client chose", Tells.CLIENT, {"cluster": "[]"}, about=True)
    STALENESS = Row(  # the server step that the client started from
        "staleness",
        "how old the model was that one client trained from",
        Tells.CLIENT,
        {"version": "[]"},
        about=True,
    )
    GROUP_MAP = Row(
        "group_map",
        "which client trains its generator with which others, grouped by how similar their classes are",
        Tells.CLIENTS,
        {"client": "[m]", "group": "[m]"},
        about=True,
    )
    ALLOCATION = Row(  # "counts", "ratios" or "present", [C] or a row a client
        "allocation",
        "how many examples of each class clients are to share or add, from what they said of theirs",
        Tells.CLIENTS,
        NUMBERS,
        about=True,
    )
    OVERSAMPLE_DECAY = Row(  # Seol & Kim
        "oversample_decay",
        "one number that says how strongly clients repeat examples of rare classes",
        Tells.CLIENTS,
        {"decay": "[]"},
        about=True,
    )
    UNFROZEN_LAYERS = Row(
        "unfrozen_layers", "the layers that one client trained, after its training", Tells.CLIENT, MODEL
    )
    FROZEN_COUNT = Row(
        "frozen_count", "how many layers one client did not train", Tells.CLIENT, {"count": "[]"}, about=True
    )
    TASK_TIME = Row(  # by the server's clock
        "task_time",
        "how long one client took, as the server sees it",
        Tells.CLIENT,
        {"time": "[]", "bytes_down": "[]", "bytes_up": "[]"},
        about=True,
    )

    TRAIN_ORDER = Row("train_order", "an order to begin training", Tells.NOBODY, {"visit": "[]"})
    HEARTBEAT = Row("heartbeat", "a sign that a client is still at work", Tells.NOBODY, NUMBERS)
    ROLLBACK_REQUEST = Row(
        "rollback_request", "a request to send the last intact model again", Tells.NOBODY, NUMBERS
    )
    SOFT_DEADLINE = Row(
        "soft_deadline", "the time at which clients are to answer", Tells.NOBODY, {"deadline": "[]"}
    )
    WIDTH = Row(  # values: how many numbers of the model are sent; the others are zero
        "width",
        "how large a part of the model a client is to train",
        Tells.NOBODY,
        {"width": "[]", "values": "[]"},
    )

    # clients: how many are in it; for each array of the uploads "KIND/NAME", and how many clients sent each class
    AGGREGATE = Row(
        "aggregate",
        "the sum of all uploads of a round, for each array in them",
        Tells.CLIENTS,
        {"clients": "[]", "KIND/NAME": "as uploaded", "KIND/holders": "[c]"},
    )


TRAINED = (Kind.LOCAL_MODEL, Kind.ADAPTER)  # all weights that a client trains, after its training
# Weights after one client's training, of all or some layers, and the change from those before; UPDATES: both
MODELS = (Kind.LOCAL_MODEL, Kind.UNFROZEN_LAYERS, Kind.ADAPTER)
DELTAS = (Kind.MODEL_DELTA, Kind.ADAPTER_DELTA, Kind.EMBEDDING_DELTA)
UPDATES = (*MODELS, *DELTAS)  # what one client's local training made of the model


def explain_misfit(
    kind: Kind, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, int] | None = None
) -> str:
    """How arrays of a message are not those of its kind, as the end of a sentence; empty where they are.

    Counts dimensions, of which `...` stands for any number, and compares those that bear the same letter in
    several arrays, or in `known`, such as C, the number of classes. The network's own shapes are not known here.
    """
    declared = {name: shape for name, shape in kind.arrays.items() if shape.startswith("[")}
    first = next(iter(declared), "")
    if first and first not in shapes:
        return f"has no array {first!r}"
    sizes = {**(known or {})}
    for name in declared.keys() & shapes.keys():
        options = [option.strip("[]").replace(",", " ").split() for option in declared[name].split(" or ")]
        options = [
            o[:-1] + [f"{name}.{i}" for i in range(len(shapes[name]) - len(o) + 1)] if o[-1:] == ["..."] else o
            for o in options
        ]  # of any number of dimensions more
        letters = next((o for o in options if len(o) == len(shapes[name])), None)
        fits = letters is not None and all(
            size == (int(letter) if letter.isdecimal() else sizes.setdefault(letter, size))
            for letter, size in zip(letters, shapes[name], strict=True)
        )
        if not fits:
            return f"has {name!r} of shape {list(shapes[name])}, expected {declared[name]}"
    return ""
