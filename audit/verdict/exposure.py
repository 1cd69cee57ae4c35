"""Who saw what: the manifest's traffic added up by party and artifact kind."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fl.artifact import Channel, Kind
from reports.result import Exposure

_PARTIES = {
    "server": "server",
    "client": "every selected client",
    "mediator": "mediators",
    "public": "whoever gets the release",
    "": "nobody singly (secure aggregation)",
}

_TEXT = {
    Kind.GLOBAL_MODEL: "the shared model's weights",
    Kind.LOCAL_MODEL: "one client's model after its local training",
    Kind.MODEL_DELTA: "the change one client's training made to the model",
    Kind.NUM_EXAMPLES: "how many examples one client holds",
    Kind.LABEL_COUNTS: "how many examples of each class one client holds, exactly",
    Kind.NOISED_LABEL_DIST: "one client's share of each class, with noise",
    Kind.LOCAL_PROTOTYPES: "one client's mean feature vector of each of its classes",
    Kind.GLOBAL_PROTOTYPES: "mean feature vectors of each class over the clients heard",
    Kind.PROTO_COUNTS: "how many examples are behind each prototype: a label histogram",
    Kind.CONTROL_GLOBAL: "the average direction of all clients' training",
    Kind.CONTROL_DELTA: "the change of one client's training direction",
    Kind.NUM_STEPS: "how many local steps one client took; with known settings, its size",
    Kind.NORMALIZED_DELTA: "one client's change of the model per local step",
    Kind.CONDENSED_IMAGES: "synthetic images that stand for one client's classes",
    Kind.CONDENSED_LABELS: "which classes one client holds",
    Kind.MASHED_BATCH: "averages of a few examples each, with their mean labels",
    Kind.SEED_SAMPLES: "clients' own examples",
    Kind.MEAN_LOGIT_TABLE: "one client's mean model output on each of its classes",
    Kind.GLOBAL_LOGIT_TABLE: "mean model outputs on each class over the clients heard",
    Kind.CLUSTER_ID: "which cluster one client chose",
    Kind.LOCAL_LOSS: "one client's loss on its own data",
    Kind.STALENESS: "how old the model was that one client trained from",
    Kind.GAN_G: "weights of an image generator trained on clients' data",
    Kind.GAN_D: "weights of a critic trained on clients' data",
    Kind.AGGREGATE: "the sum of all uploads of a round, for each array in them",
}


def exposures(lines: Iterable[Mapping[str, Any]]) -> list[Exposure]:
    """One row a party and kind, in the order: uplink, relay, downlink, release."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        if "traffic" in line:
            for role in line["seen_by"] or [""]:
                groups[line["channel"], role, line["traffic"]].append(line)
    order = [Channel.UPLINK, Channel.RELAY, Channel.DOWNLINK, Channel.RELEASE]
    rows = []
    for (channel, role, kind), found in sorted(
        groups.items(), key=lambda g: (order.index(Channel(g[0][0])), g[0][1])
    ):
        rounds = sorted({int(line["round"]) for line in found})
        rows.append(
            Exposure(
                party=_PARTIES.get(role, role),
                kind=kind,
                description=_TEXT.get(Kind(kind), kind.replace("_", " ")),
                single_client=channel in (Channel.UPLINK, Channel.RELAY)
                and role != ""
                and kind != Kind.AGGREGATE,
                senders=max(int(line["senders"]) for line in found),
                messages=sum(int(line["messages"]) for line in found),
                bytes=sum(int(line["bytes"]) for line in found),
                rounds=len(rounds),
                first_round=rounds[0],
                last_round=rounds[-1],
            )
        )
    return rows
