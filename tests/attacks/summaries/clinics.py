"""Clinics with rows of a table, which send statistics of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_wine

from fedaudit.attacks.attack import Examples, Knowledge, Unseen
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.datasets.patients import Patients
from fedaudit.fl.kinds import Kind
from fedaudit.fl.tasks.survival import Survival

INVENTED = Patients(Patients.Config(patients=750)).load()
TABLES = {
    "diabetes": lambda: load_diabetes(scaled=False).data,
    "wine": lambda: load_wine().data,
    "patients": lambda: INVENTED.train.x,
}
Rows = NDArray[np.float64]


class Clinics:
    """As many clinics as there are sizes; whoever is left is public or held out."""

    canaries = ()

    def __init__(
        self, name: str = "diabetes", sizes: Sequence[int] = (20, 30, 40), seed: int = 0, classes: int = 1
    ) -> None:
        x = np.asarray(TABLES[name](), np.float64)
        order = np.random.default_rng(seed).permutation(len(x))
        self.parts = np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])
        rest = order[sum(sizes) :]
        self.x, half = x, len(rest) // 2
        self.y = np.array([int(v > np.median(x[:, -1])) for v in x[:, -1]]) * (classes - 1)
        self.auxiliary, self.reference = self._take(rest[:half]), self._take(rest[half:])
        self.columns = INVENTED.columns if name == "patients" else None
        self.knowledge = Knowledge(
            classes=classes,
            shape=(x.shape[1],),
            auxiliary=self.auxiliary,
            columns=self.columns,
            training={"lr": 0.05},
        )

    def _take(self, rows: NDArray[np.int64]) -> Examples:
        days = np.floor(100 * np.abs(np.sin(1.0 + rows))) + 1  # until something happened, to two of three
        labels = np.stack([days, rows % 3 > 0], axis=1).astype(np.float32)
        return Examples(x=self.x[rows], y=self.y[rows], labels=labels)

    def rows(self, client: int) -> Rows:
        return self.x[self.parts[client]]

    def client_examples(self, client: int) -> Examples:
        return self._take(self.parts[client])

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return self.parts[client]

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self.y[self.parts[client]], minlength=self.knowledge.classes)

    def unseen(self, clients: Collection[int]) -> Unseen:
        return Unseen(self.reference, "")


def send(client: int, round: int, payload: Mapping[str, Any]) -> Artifact:
    return Artifact(
        id=f"r{round:05d}/client-{client}.uplink/client:statistics",
        kind=Kind("client:statistics"),
        channel=Channel.UPLINK,
        round=round,
        sender=Party.client(client),
        seen_by=("server",),
        payload={name: np.asarray(v) for name, v in payload.items()},
    )


def sums_that_differ(by: int = 1) -> tuple[Clinics, list[Artifact]]:
    """Each clinic sends X'X of all its rows, and in the next round without the first of them."""
    world = Clinics()
    rows = [world.rows(k) for k in range(3)]
    sent = [send(k, r, {"xx": x[r * by :].T @ x[r * by :]}) for k, x in enumerate(rows) for r in range(2)]
    return world, sent


def centres_that_move(by: int = 1) -> tuple[Clinics, list[Artifact]]:
    """Each clinic sends two centres with their counts, and in the next round without the first of its rows."""
    world, sent = Clinics(), []
    for k in range(3):
        for r in range(2):
            groups = world.rows(k)[r * by : 10], world.rows(k)[10:]
            payload = {"center": np.stack([g.mean(axis=0) for g in groups]), "count": [len(g) for g in groups]}
            sent.append(send(k, r, payload))
    return world, sent


def newton_steps(
    name: str = "diabetes", sizes: Sequence[int] = (30, 60, 60), start: float = 0
) -> tuple[Clinics, list[Artifact]]:
    """Each clinic sends gradient and Hessian of the logistic loss, with all weights at `start`."""
    world, sent = Clinics(name, sizes, classes=2), []
    for k in range(len(sizes)):
        x = np.hstack([world.rows(k), np.ones((len(world.rows(k)), 1))])
        p = 1 / (1 + np.exp(-start * (x / np.abs(x).max(axis=0)).sum(axis=1)))
        payload = {"H": (x.T * (p * (1 - p))) @ x, "g": (x.T @ (p - world.client_examples(k).y))[:, None]}
        sent.append(send(k, 0, payload))
    return world, sent


def one_step(
    name: str = "patients", sizes: Sequence[int] = (1, 2, 4), units: int = 100
) -> tuple[Clinics, list[Artifact]]:
    """Each clinic takes one step on all its rows, through a layer of so many units."""
    world, rng = Clinics(name, sizes), np.random.default_rng(0)
    public = np.asarray(world.auxiliary.x, np.float64)
    mean, std = public.mean(axis=0), public.std(axis=0)
    give = (lambda x: (x - mean) / std) if world.columns is None else world.columns.model_input
    width = np.asarray(give(public[:1])).shape[1]
    start = {"in.weight": rng.normal(0, 0.1, (units, width)), "in.bias": rng.normal(0, 0.1, units)}
    start = {n: v.astype(np.float32) for n, v in start.items()}
    out, sent = rng.normal(0, 0.1, units), [replace(send(0, 0, start), kind=Kind.GLOBAL_MODEL)]
    sent[0] = replace(sent[0], id="r00000/server.downlink/global_model", channel=Channel.DOWNLINK)
    sent[0] = replace(sent[0], sender=SERVER, seen_by=("server", "client"))
    for k in range(len(sizes)):
        x = np.asarray(give(world.rows(k)), np.float64)
        on = x @ start["in.weight"].T + start["in.bias"] > 0
        slope = on * out * (1 - np.arange(len(x))[:, None] / 10) / len(x)
        after = {
            "in.weight": start["in.weight"] - 0.05 * slope.T @ x,
            "in.bias": start["in.bias"] - 0.05 * slope.sum(0),
        }
        upload = send(k, 0, {n: v.astype(np.float32) for n, v in after.items()})
        sent.append(
            replace(upload, id=upload.id.replace("client:statistics", "local_model"), kind=Kind.LOCAL_MODEL)
        )
    return world, sent


def tables(bins: int = 20, sizes: Sequence[int] = (40, 40, 40)) -> tuple[Clinics, list[Artifact]]:
    """Each clinic sends a histogram of every column, and a survival curve."""
    world = Clinics(sizes=sizes)
    world.knowledge = replace(world.knowledge, task=Survival())
    low, high = world.auxiliary.x.min(axis=0), world.auxiliary.x.max(axis=0)
    edges = np.linspace(low, high + 1e-6, bins + 1).T
    sent = []
    for k in range(len(sizes)):
        images = world.client_examples(k)
        counts = np.stack([np.histogram(v, e)[0] for v, e in zip(images.x.T, edges, strict=True)])
        times = np.unique(images.wanted[:, 0])
        at, event = images.wanted[:, 0][:, None] == times, images.wanted[:, 1:] > 0
        payload = {"t": times, "observed": (at & event).sum(axis=0), "censored": (at & ~event).sum(axis=0)}
        sent.append(send(k, 0, {"counts": counts, "edges": edges, **payload}))
    return world, sent
