"""One attack at a time from Python: on a model, or on messages of your own.

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
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.custom import CustomCase, CustomHoldings, Messages, record_messages
from fedaudit.audit.case.given import Names, make_examples, number_class, prepare_network, to_array
from fedaudit.audit.case.networks import require_outputs
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.cli.load import make_config
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.verdict.figures import roc
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime import workers as processes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.side_by_side import share_cores
from fedaudit.fl.runtime.task import Task, choose_task, load_task
from fedaudit.fl.tasks.classify import Classify
from fedaudit.fl.threats.threat import Aim
from fedaudit.tables import Chart, Row, Table, describe_evidence, make_json, make_page, write_file

if TYPE_CHECKING:
    from torch import Tensor, nn

PROBED = 64  # examples that a network is tried on
IMAGE_WIDTH = 64  # pixels in a notebook
REPLAY = Replay()


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

    def save(self, path: str | Path) -> None:
        """Write what a notebook shows as .html, or measurements and people as .json. Raises UserError."""
        told = {"attack": self.name, "evidence": self.evidence.to_dicts(), "people": self.people.to_dicts()}
        write_file(path, {".html": lambda: make_page(self._repr_html_()), ".json": lambda: make_json(told)})

    def plot(self) -> Chart:
        """ROC curves. Raises UserError where the attack has none."""
        figures = roc(self.name, self.curves)
        if not figures:
            raise UserError(f"{self.name} draws no curve", hint="evidence has its numbers")
        return Chart(figures)

    def _repr_html_(self) -> str:
        curves = self.plot()._repr_html_() if self.curves else ""
        return f"<h4>{html.escape(self.title)}</h4>{self.evidence._repr_html_()}{curves}" + "".join(
            show_rows(g["caption"], g["rows"]) for g in self.galleries
        )

    def __repr__(self) -> str:
        return f"<{self.title}: {self.evidence!r}>"


def attack(
    name: str,
    *,
    model: "nn.Module",
    members: Any = None,
    nonmembers: Any = None,
    auxiliary: Any = None,
    messages: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
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
        model: The network, with the weights that the adversary sees, of any type of numbers. It maps
            (x - mean) / std to logits: alone, as `logits` of what it gives, or as its only output [N, classes];
            one logit is that of class 1 of two. Or a fitted model of scikit-learn's, which is given x as it is.
        members: (x, y) that it was trained on, or a Dataset or DataLoader of such pairs: images [N, C, H, W] from
            0 to 1 or rows [N, columns], labels from 0, names of `classes`, or as the task has them. With
            `messages`, what each client holds: {"Alice": (x, y)}.
        nonmembers: (x, y) that nobody trained on; without them half of `auxiliary`.
        auxiliary: (x, y) that the adversary has, for attacks that need some.
        messages: What clients sent: {"Alice": {"local_prototypes": {"classes": ..., "features": ...}}}; for an
            attack on prototypes {"Alice": {label: features}} will do, and for a single kind its arrays.
            Without them the model itself was released.
        classes: Their names, in the order of the logits, where labels are names.
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
    if members is not None and not isinstance(members, Mapping):
        members = {"client-0": members}
    numbers = _number_clients(messages or {}, members or {})
    held = _read_members(members or {}, numbers, classes, load_task(task, "task")() if task else None)
    first = next(iter(held.values()), None)
    wanted = load_task(task)() if task else choose_task(first.y, first.x.shape[1:]) if first else Classify()
    holdings = hold(
        held, nonmembers, auxiliary, first.x.shape[1:] if first else None, chosen.card, classes, task=wanted
    )
    sent = {numbers[who]: read_payloads(given, chosen, classes) for who, given in (messages or {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        case = write_case(
            Path(folder),
            model,
            holdings,
            sent,
            task=wanted,
            classes=classes,
            training=training,
            mean=mean,
            std=std,
            seed=seed,
        )
        return measure(chosen, name, case, workers)


def measure(
    chosen: Attack, name: str, case: CustomCase, workers: int | str, replay: Replay = REPLAY
) -> AttackResult:
    """Carry the attack out on the case, and compare what it claims with the truth. Raises UserError."""
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


def write_case(
    folder: Path,
    model: "nn.Module",
    holdings: CustomHoldings,
    sent: Messages,
    *,
    task: Task,
    classes: Names | None = None,
    training: Mapping[str, Any] | None,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
) -> CustomCase:
    """A case of one round: the network goes out, and what clients sent comes back. Raises UserError."""
    groups = (*holdings.members.values(), holdings.nonmembers, holdings.auxiliary)
    known = max([1, task.fewest_names, len(classes or ()), *(task.width(part.y) for part in groups if len(part))])
    some, shape = np.concatenate([part.x[:PROBED] for part in groups]), holdings.auxiliary.x.shape[1:]
    some = some if len(some) else np.zeros((1, *shape), np.float32)
    net, width = prepare_network(model, some, known, task)
    require_outputs(width, known, task)
    names = [*(classes or ()), *map(str, range(len(classes or ()), width))]
    subject = {
        "title": "A model of your own",
        "clients": max([*holdings.members, *sent, 0]) + 1,
        "examples": {
            "classes": names if task.fewest_names else [],
            "task": repr(task),
            "are": "table" if len(shape) == 1 else None,
            "shape": list(shape),
            "mean": list(mean),
            "std": list(std),
        },
        "method": None if training is None else {"name": "fedavg", **training},
    }
    config = make_config({"seed": seed, "subject": subject}).require_recorded()
    record_messages(folder, net, list(holdings.members), sent)
    return CustomCase(config, folder, None, None, net, holdings.join())


def hold(
    members: Mapping[int, Arrays],
    nonmembers: Any,
    auxiliary: Any,
    shape: tuple[int, ...] | None,
    card: Card,
    classes: Names | None = None,
    *,
    task: Task,
) -> CustomHoldings:
    """Who has what; without non-members every second of the auxiliary examples is none."""
    if shape is None:
        raise UserError("there are no examples to measure the attack on", hint="members=(x, y)")
    first = next(iter(members.values()), None)
    known = make_examples("auxiliary", auxiliary, shape, classes, task=task, like=first)
    others = make_examples("nonmembers", nonmembers, shape, classes, task=task, like=first)
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


def _read_members(
    given: Mapping[str, Any], numbers: Mapping[str, int], classes: Names | None, task: Task | None
) -> dict[int, Arrays]:
    whose = "members" if len(given) == 1 else "members[{!r}]"
    held = {
        numbers[who]: make_examples(whose.format(who), part, classes=classes, task=task)
        for who, part in given.items()
    }
    if len({part.x.shape[1:] for part in held.values()}) > 1:
        raise UserError("members of different clients have different shapes", hint="give them alike")
    return held


def _number_clients(messages: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, int]:
    """Name -> number: that of "client-3", or in the order in which clients of other names are given."""
    if messages and (unknown := [name for name in members if name not in messages]):
        raise UserError(
            f"members of {unknown[0]!r:.60}, who sent no message", hint="name it in messages, or leave it out"
        )
    names = list(dict.fromkeys([*messages, *members]))
    stated = [str(name).removeprefix("client").lstrip("-/") for name in names]
    if all(number.isdecimal() for number in stated):
        return dict(zip(names, map(int, stated), strict=True))
    return {name: i for i, name in enumerate(names)}


def read_payloads(given: Any, chosen: Attack, classes: Names | None = None) -> dict[Kind, dict[str, "Tensor"]]:
    """What one client sends, by kind, in the shorthand of attack() or written out."""
    if isinstance(given, Mapping) and given and all(name in set(Kind) for name in given):
        return {Kind(kind): _to_tensors(kind, arrays) for kind, arrays in given.items()}
    read = chosen.card.requires[0] if chosen.card.requires else None
    if read is Kind.LOCAL_PROTOTYPES and isinstance(given, Mapping) and not set(given) & set(read.arrays):
        rows = sorted((number_class(label, classes), label) for label in given)
        features = np.stack([np.asarray(to_array(given[label]), np.float32) for _, label in rows])
        given = {"classes": np.array([c for c, _ in rows], np.int64), "features": features}
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


def show_rows(caption: str, rows: Mapping[str, Sequence[str]]) -> str:
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
