"""Artifacts: what crossed a trust boundary, as the recorder keeps it and the attacks read it.

A message travels; an artifact is one kind of content inside a recorded message. Kinds carry the
names of the papers' shared quantities. Payloads are named numpy arrays, never Python objects, so
that reading an artifact can run nobody's code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]


class Kind(StrEnum):
    """What a message may contain. A method's card lists the kinds it sends; the wire refuses others."""

    GLOBAL_MODEL = "global_model"  # server -> client: w, one array a parameter
    LOCAL_MODEL = "local_model"  # client -> server: w_k
    MODEL_DELTA = "model_delta"  # client -> server: w_k - w, after minus before
    NUM_EXAMPLES = "num_examples"  # client -> server: {"count": []}
    LABEL_COUNTS = "label_counts"  # client -> server: {"counts": [C]}
    NOISED_LABEL_DIST = "noised_label_dist"  # normalised and noised label counts
    GLOBAL_PROTOTYPES = "global_prototypes"  # {"classes": [c], "features": [c, D]}
    LOCAL_PROTOTYPES = "local_prototypes"  # {"classes": [c], "features": [c, D]}
    PROTO_COUNTS = "proto_counts"  # {"classes": [c], "counts": [c]}
    CONTROL_GLOBAL = "control_global"  # SCAFFOLD c
    CONTROL_DELTA = "control_delta"  # SCAFFOLD c_k+ - c_k
    NUM_STEPS = "num_steps"  # {"steps": []}: local steps, or their norm (FedNova)
    NORMALIZED_DELTA = "normalized_delta"  # FedNova d_k
    CONDENSED_IMAGES = "condensed_images"  # {"images": [m, C, H, W]}
    CONDENSED_LABELS = "condensed_labels"  # {"labels": [m]}
    CLASS_VOLUME = "class_volume"  # Seol & Kim: counts after oversampling
    ALLOCATION = "allocation"
    OVERSAMPLE_DECAY = "oversample_decay"
    MEAN_LOGIT_TABLE = "mean_logit_table"  # FD: {"table": [C, C], "present": [C]}
    GLOBAL_LOGIT_TABLE = "global_logit_table"
    GAN_G = "gan_G"  # generator weights
    GAN_D = "gan_D"  # critic weights
    GROUP_MAP = "group_map"
    RELAY_MODEL = "relay_model"
    TRAIN_ORDER = "train_order"
    HEARTBEAT = "heartbeat"
    ROLLBACK_REQUEST = "rollback_request"
    SOFT_DEADLINE = "soft_deadline"
    UNFROZEN_LAYERS = "unfrozen_layers"
    FROZEN_COUNT = "frozen_count"
    TASK_TIME = "task_time"
    WIDTH = "width"
    MASHED_BATCH = "mashed_batch"
    SEED_SAMPLES = "seed_samples"
    CLUSTER_ID = "cluster_id"
    LOCAL_LOSS = "local_loss"
    STALENESS = "staleness"  # {"version": []}: the server step the client started from
    PROXIES = "proxies"  # FedAwS {"classes": [m], "rows": [m, D]}: head rows of a client's classes
    GRADIENT = "gradient"  # the gradient of one batch, where a method sends it
    AGGREGATE = "aggregate"  # all that secure aggregation leaves the server: sums by "KIND/NAME"


class Channel(StrEnum):
    """The direction a message travels."""

    DOWNLINK = "downlink"
    UPLINK = "uplink"
    RELAY = "relay"  # client to client, possibly through a mediator
    RELEASE = "release"  # to whoever gets the final model or generator


class Role(StrEnum):
    SERVER = "server"
    CLIENT = "client"
    MEDIATOR = "mediator"
    PUBLIC = "public"


@dataclass(frozen=True, order=True)
class Party:
    """One participant. `str(Party.client(3))` is "client/3"; parse() reads it back."""

    role: Role
    index: int | None = None

    @classmethod
    def client(cls, index: int) -> "Party":
        return cls(Role.CLIENT, index)

    @classmethod
    def parse(cls, text: str) -> "Party":
        """Read "client/3"; raises ValueError on anything else."""
        role, _, index = text.partition("/")
        return cls(Role(role), int(index) if index else None)

    def __str__(self) -> str:
        return self.role.value if self.index is None else f"{self.role.value}/{self.index}"


SERVER = Party(Role.SERVER)
PUBLIC = Party(Role.PUBLIC)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One kind of content of one recorded message.

    `seen_by` holds who could read it: roles for a broadcast ("client"), parties otherwise
    ("client/3", "server"). `origin` is "recorded" for what crossed the wire and "replayed" for
    what the auditor recomputed as a control; the report always tells the two apart.
    """

    id: str  # unique in a run: "r00003/client-7.uplink/local_prototypes"
    kind: Kind
    channel: Channel
    round: int
    sender: Party
    seen_by: tuple[str, ...]
    payload: Mapping[str, Array]
    origin: str = "recorded"
    note: Mapping[str, float | str] = field(default_factory=dict)  # replayed artifacts: {"n": 5}

    @property
    def size_bytes(self) -> int:
        return sum(int(a.nbytes) for a in self.payload.values())
