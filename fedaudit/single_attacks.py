"""One attack at a time from Python: on a model, on prototypes, on a gradient or an update of your own.

The attack, its controls and its measures are those of an audit; nothing is a second implementation.
"""

import html
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedaudit.attacks.attack import Attack, Card
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.custom import (
    CustomCase,
    CustomHoldings,
    count_outputs,
    make_examples,
    record_messages,
    to_array,
)
from fedaudit.audit.case.messages import messages as messages_of
from fedaudit.audit.case.networks import require_outputs
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.png import png
from fedaudit.audit.observer.view import grant_knowledge, observer, select_visible
from fedaudit.audit.phases.attack_bench import Bench
from fedaudit.audit.phases.load import make_config
from fedaudit.audit.phases.one_attack import attack_once
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.verdict.figures import roc
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime import workers as processes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.side_by_side import share_cores
from fedaudit.fl.tasks._task import Task, choose_task, load_task
from fedaudit.fl.tasks.classify import Classify
from fedaudit.fl.threats.threat import Aim
from fedaudit.tables import Chart, Row, Table, describe_evidence

if TYPE_CHECKING:
    from torch import Tensor, nn

WHOSE = "give a pair (x, y), or what each client has: {'client-0': ..., 'client-1': ...}"
IMAGE_WIDTH = 64  # pixels in a notebook
REPLAY, NO_REPLAYS = Replay(), Replay(update_groups=0, clients=0)


@dataclass(frozen=True)
class AttackResult:
    """What an attack came to. A notebook shows its measurements, curves and images."""

    name: str
    title: str
    evidence: Table[Evidence]  # measurements, with intervals and what blind adversaries reach
    people: Table[PeopleCount]  # who is exposed, kind of message by kind
    curves: Sequence[Mapping[str, Any]]  # ROC curves of a membership attack
    galleries: Sequence[Mapping[str, Any]]  # images beside originals

    def to_frame(self) -> Any:
        """The measurements as a pandas DataFrame."""
        return self.evidence.to_frame()

    def plot(self) -> Chart:
        """ROC curves. Raises UserError where the attack has none."""
        figures = roc(self.name, self.curves)
        if not figures:
            raise UserError(f"{self.name} draws no curve", hint="evidence has its numbers")
        return Chart(figures)

    def _repr_html_(self) -> str:
        curves = self.plot()._repr_html_() if self.curves else ""
        return f"<h4>{html.escape(self.title)}</h4>{self.evidence._repr_html_()}{curves}" + "".join(
            _show_rows(g["caption"], g["rows"]) for g in self.galleries
        )

    def __repr__(self) -> str:
        return f"<{self.title}: {self.evidence!r}>"


@dataclass(frozen=True)
class Reconstruction:
    """Images that an attack drew. A notebook shows them, with the class means beside them."""

    images: NDArray[np.float32]  # [n, C, H, W] in [0, 1]
    labels: NDArray[np.int64]  # [n], as the attack reads them
    class_means: NDArray[np.float32] | None  # [n, C, H, W] of auxiliary images; what a blind adversary draws
    result: AttackResult | None  # measured, where the true images were given

    def _repr_html_(self) -> str:
        rows = {"reconstruction": [png(x) for x in self.images]}
        if self.class_means is not None:
            rows["class mean"] = [png(x) for x in self.class_means]
        measured = self.result._repr_html_() if self.result else ""
        return _show_rows(f"labels {', '.join(map(str, self.labels))}", rows) + measured

    def __repr__(self) -> str:
        return f"<{len(self.images)} reconstructed images of classes {self.labels.tolist()}>"


def attack(
    name: str,
    *,
    model: "nn.Module",
    members: Any = None,
    nonmembers: Any = None,
    auxiliary: Any = None,
    messages: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    task: str = "",
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    seed: int = 7,
    workers: int | str = 0,
    **settings: Any,
) -> AttackResult:
    """Attack a model, or what clients sent, and measure what the attack finds.

    Args:
        name: Of an attack (`fedaudit tools list attacks`), or module:Class.
        model: The network, with the weights that the adversary sees. It maps (x - mean) / std to logits.
        members: (x, y) that it was trained on: images [N, C, H, W] from 0 to 1 or rows [N, F], labels from 0 or
            as the task has them. With `messages`, what each client holds: {"client-0": (x, y)}.
        nonmembers: (x, y) that nobody trained on; without them half of `auxiliary`.
        auxiliary: (x, y) that the adversary has, for attacks that need some.
        messages: What clients sent: {"client-0": {"local_prototypes": {"classes": ..., "features": ...}}}; for an
            attack on prototypes {"client-0": {label: features}} will do, and for a single kind its arrays.
            Without them the model itself was released.
        training: How it was trained, for shadow models and planted leaks: local_epochs, batch_size, lr, ...
        task: What the model gives, a file of fl/tasks/: several, regression, survival, ...; what y allows by
            default, and survival only where it is said.
        mean: Of each channel.
        std: Of each channel.
        seed: Of all draws.
        workers: Processes for shadow models, or "auto"; no number depends on it.
        **settings: Of the attack.

    Raises:
        UserError: Where the attack does not apply, with the reason, or input is wrong.

    Examples:
        >>> import fedaudit as fa
        >>> result = fa.attack("loss_threshold", model=net, members=(x_in, y_in), nonmembers=(x_out, y_out))
        >>> result.evidence[0].measure
        'auc'
    """
    chosen: Attack = build_plugin("attacks", PluginSpec(name=name, settings=settings), name)
    held = _read_members(members, messages, task)
    first = next(iter(held.values()), None)
    shape = first.x.shape[1:] if first else None
    wanted = _find_task(task, first)
    holdings = _hold(held, nonmembers, auxiliary, shape, chosen.card, wanted)
    with tempfile.TemporaryDirectory() as folder:
        case = _write_case(
            Path(folder),
            model,
            holdings,
            messages or {},
            chosen,
            wanted,
            training=training,
            mean=mean,
            std=std,
            seed=seed,
        )
        return _measure(chosen, name, case, workers)


def invert(
    model: "nn.Module",
    gradient: Mapping[str, Any] | Sequence[Any],
    *,
    shape: Sequence[int],
    number: int = 1,
    attack: str = "inverting_gradients",
    kind: str = "gradient",
    images: Any = None,
    auxiliary: Any = None,
    training: Mapping[str, Any] | None = None,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    seed: int = 7,
    **settings: Any,
) -> Reconstruction:
    """Draw the images that a gradient, or a client's update, was made with.

    Args:
        model: The network with the weights at which the gradient was taken.
        gradient: Of the mean cross-entropy: {name: array}, or a list in the order of model.parameters().
        shape: Of one image, [channels, height, width].
        number: How many images are behind it.
        attack: dlg, idlg, inverting_gradients, grnn_updates or analytic.
        kind: "gradient"; "model_delta" for a change of weights, "local_model" for weights: they take `training`.
        images: (x, y), the true ones, to measure the reconstruction among `auxiliary`; without them nothing is
            measured.
        auxiliary: (x, y) of the same kind: class means are drawn beside the reconstruction, and half of them are
            those among which the true images are looked for.
        training: Of a client: local_epochs, batch_size, lr, ...
        mean: Of each channel.
        std: Of each channel.
        seed: Of all draws.
        **settings: Of the attack.

    Raises:
        UserError: Where the attack does not apply, with the reason, or input is wrong.

    Examples:
        >>> import fedaudit as fa
        >>> drawn = fa.invert(net, gradient, shape=(1, 28, 28), attack="dlg", auxiliary=(x_own, y_own))
        >>> drawn.images.shape, bool(drawn.labels[0] == y[0])
        ((1, 1, 28, 28), True)
    """
    settings = {"most_recorded": number} | settings
    chosen: Attack = build_plugin("attacks", PluginSpec(name=attack, settings=settings), attack)
    named = gradient if isinstance(gradient, Mapping) else _name_arrays(model, gradient)
    messages = {"client-0": {kind: named, "num_examples": {"count": np.array(number)}}}
    wanted = tuple(int(n) for n in shape)
    truth = {} if images is None else {0: make_examples("images", images, wanted, task="classify")}
    if truth and auxiliary is None:
        raise UserError(
            "a reconstruction is measured among images of others, and there are none",
            hint="auxiliary=(x, y), of the same kind",
        )
    holdings = _hold(truth, None, auxiliary, wanted, chosen.card, Classify())
    training = {"local_epochs": 1, "batch_size": number} if training is None else training
    with tempfile.TemporaryDirectory() as folder:
        case = _write_case(
            Path(folder),
            model,
            holdings,
            messages,
            chosen,
            Classify(),
            training=training,
            mean=mean,
            std=std,
            seed=seed,
        )
        claim = _claim(chosen, attack, case)
        result = _measure(chosen, attack, case, 0, NO_REPLAYS) if truth else None
    drawn, labels = np.asarray(claim["images"]), np.asarray(claim["label"], np.int64)
    return Reconstruction(drawn, labels, _draw_means(holdings.auxiliary, labels), result)


def _measure(
    chosen: Attack, name: str, case: CustomCase, workers: int | str, replay: Replay = REPLAY
) -> AttackResult:
    with processes.one_thread(), share_cores(processes.processes(workers, "cpu")):
        file = attack_once(chosen, name, Bench(case, [chosen.card], replay))
    if file["status"] != "ran":
        raise UserError(f"{name}: {file['reason']}", hint="`fedaudit tools list attacks` says what each needs")
    return AttackResult(
        name=name,
        title=chosen.card.title,
        evidence=Table(TypeAdapter(list[Evidence]).validate_python(file["evidence"]), describe_evidence),
        people=Table(TypeAdapter(list[PeopleCount]).validate_python(file["people"]), _describe_people),
        curves=file["curves"],
        galleries=file["galleries"],
    )


def _claim(chosen: Attack, name: str, case: CustomCase) -> Mapping[str, NDArray[Any]]:
    """What it asserts of what was sent, with nothing planted."""
    card = chosen.card
    assert case.artifacts is not None
    with processes.one_thread():
        artifacts = index(messages_of(case.artifacts, card.reads, card.rounds))
        view = select_visible(artifacts, observer(case, artifacts, card), card)
        known = grant_knowledge(case, card)
        if reason := chosen.not_applicable(view, known):
            raise UserError(f"{name}: {reason}", hint="`fedaudit tools list attacks` says what each needs")
        return chosen.run(view, known, case.streams.numpy("attack", name))


def _write_case(
    folder: Path,
    model: "nn.Module",
    holdings: CustomHoldings,
    messages: Mapping[str, Any],
    chosen: Attack,
    task: Task,
    *,
    training: Mapping[str, Any] | None,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
) -> CustomCase:
    sent = {_read_client(k): _read_payloads(given, chosen) for k, given in messages.items()}
    shape = holdings.auxiliary.x.shape[1:]
    groups = (*holdings.members.values(), holdings.nonmembers, holdings.auxiliary)
    width = count_outputs(model, shape, task)
    require_outputs(
        width, max([1, task.fewest_names, *(task.width(part.y) for part in groups if len(part))]), task
    )
    subject = {
        "title": "A model of your own",
        "clients": max([*holdings.members, *sent, 0]) + 1,
        "examples": {
            "classes": [str(c) for c in range(width)] if task.fewest_names else [],
            "task": repr(task),
            "are": "table" if len(shape) == 1 else None,
            "shape": list(shape),
            "mean": list(mean),
            "std": list(std),
        },
        "method": None if training is None else {"name": "fedavg", **training},
    }
    config = make_config({"case": "recorded", "seed": seed, "subject": subject}).require_recorded()
    record_messages(folder, model, list(holdings.members), sent)
    return CustomCase(config, folder, None, None, model, holdings.join())


def _hold(
    members: Mapping[int, Arrays],
    nonmembers: Any,
    auxiliary: Any,
    shape: tuple[int, ...] | None,
    card: Card,
    task: Task,
) -> CustomHoldings:
    """Who has what; without non-members every second of the auxiliary examples is none."""
    if shape is None:
        raise UserError("there are no examples to measure the attack on", hint="members=(x, y)")
    first = next(iter(members.values()), None)
    known = make_examples("auxiliary", auxiliary, shape, first, repr(task))
    others = make_examples("nonmembers", nonmembers, shape, first, repr(task))
    if nonmembers is None and len(known):
        others, known = known.take(np.arange(0, len(known), 2)), known.take(np.arange(1, len(known), 2))
    if "auxiliary_data" in card.threat.knows and not len(known):
        raise UserError(
            f"{card.title}: the adversary has images of its own, and there are none",
            hint="auxiliary=(x, y), of the same kind and of nobody that trained the model",
        )
    if card.aim is Aim.MEMBERSHIP and members:
        _refuse_unmeasurable(np.concatenate([part.y for part in members.values()]), others.y, task)
    return CustomHoldings(members=members, nonmembers=others, auxiliary=known)


def _refuse_unmeasurable(members: NDArray[Any], others: NDArray[Any], task: Task) -> None:
    """Raise UserError where no member, by its label, has somebody of its class beside it who trained nothing."""
    for name, y in (("members", members), ("nonmembers", others)):
        if len(y) < 2:
            raise UserError(
                f"there {'is one of' if len(y) else 'are no'} {name}, and membership is measured on two or more",
                hint="members=(x, y) that it was trained on, nonmembers=(x, y) that nobody trained on",
            )
    if task.has_classes and not np.intersect1d(members, others).size:
        raise UserError(
            "members and nonmembers have no class in common, and are compared class by class",
            hint="nonmembers=(x, y) of the same kind as members",
        )


def _find_task(name: str, members: Arrays | None) -> Task:
    """As it is said, or what labels of members allow."""
    found: Task = load_task(name, "task")() if name else Classify()
    return found if name or members is None else choose_task(members.y, members.x.shape[1:])


def _read_members(members: Any, messages: Mapping[str, Any] | None, task: str) -> dict[int, Arrays]:
    if members is None:
        return {}
    if not isinstance(members, Mapping):
        members = {"client-0": members}
    held = {
        _read_client(name): make_examples(f"members[{name!r}]", given, task=task)
        for name, given in members.items()
    }
    if len({part.x.shape[1:] for part in held.values()}) > 1:
        raise UserError("members of different clients have different shapes", hint="give them alike")
    if messages and (unknown := set(held) - {_read_client(name) for name in messages}):
        raise UserError(
            f"members of client-{min(unknown)}, who sent no message", hint="name it in messages, or leave it out"
        )
    return held


def _read_client(name: str) -> int:
    number = str(name).removeprefix("client").lstrip("-/")
    if not number.isdecimal():
        raise UserError(f"{name!r:.60} is no client", hint=WHOSE)
    return int(number)


def _read_payloads(given: Any, chosen: Attack) -> dict[Kind, dict[str, "Tensor"]]:
    """What one client sends, by kind, in the shorthand of attack() or written out."""
    if isinstance(given, Mapping) and given and all(name in set(Kind) for name in given):
        return {Kind(kind): _to_tensors(kind, arrays) for kind, arrays in given.items()}
    read = chosen.card.requires[0] if chosen.card.requires else None
    if read is Kind.LOCAL_PROTOTYPES and isinstance(given, Mapping) and not set(given) & set(read.arrays):
        labels = sorted(int(label) for label in given)
        features = np.stack([np.asarray(to_array(given[label]), np.float32) for label in labels])
        given = {"classes": np.array(labels, np.int64), "features": features}
    if read is None or not isinstance(given, Mapping):
        raise UserError(
            "a message is no mapping of kinds to arrays",
            hint='{"client-0": {"local_prototypes": {"classes": [0, 1], "features": ...}}}',
        )
    return {read: _to_tensors(read, given)}


def _to_tensors(kind: str, arrays: Mapping[str, Any]) -> dict[str, "Tensor"]:
    import torch

    try:
        return {str(name): torch.from_numpy(np.array(to_array(values))) for name, values in arrays.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{kind} holds what is no array: {error}", hint="name -> array, all numbers") from error


def _name_arrays(model: "nn.Module", gradient: Sequence[Any]) -> dict[str, Any]:
    """By the names of the parameters, in their order; None where a parameter has no gradient."""
    names = [name for name, _ in model.named_parameters()]
    if len(names) != len(gradient):
        raise UserError(
            f"the gradient has {len(gradient)} arrays, and the model {len(names)} parameters",
            hint="give torch.autograd.grad(loss, model.parameters()), or {name: array}",
        )
    return {name: g for name, g in zip(names, gradient, strict=True) if g is not None}


def _draw_means(auxiliary: Arrays, labels: NDArray[np.int64]) -> NDArray[np.float32] | None:
    if not len(auxiliary):
        return None
    every = auxiliary.x.mean(0)
    means = {c: auxiliary.x[auxiliary.y == c].mean(0) if (auxiliary.y == c).any() else every for c in set(labels)}
    return np.stack([means[c] for c in labels]).astype(np.float32)


def _show_rows(caption: str, rows: Mapping[str, Sequence[str]]) -> str:
    shown = "".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(
            f'<td><img width="{IMAGE_WIDTH}" style="image-rendering: pixelated" alt="{html.escape(name)} {i}" '
            f'src="data:image/png;base64,{code}"></td>'
            for i, code in enumerate(codes)
        )
        + "</tr>"
        for name, codes in rows.items()
    )
    return f"<figure><table>{shown}</table><figcaption>{html.escape(caption)}</figcaption></figure>"


def _describe_people(p: PeopleCount) -> Row:
    tested, hit = sum(map(len, p.tested.values())), sum(map(len, p.hit.values()))
    return {
        "kind": str(p.kind) if p.kind else "",
        "tested": tested,
        "hit": hit,
        "hit_means": p.hit_means,
        "by_luck": p.luck.hits / p.luck.trials if p.luck.trials else None,
    }
