"""Images from a gradient of your own, how far they explain it, and "no match" where they do not."""

import base64
import dataclasses
import html
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.gradients import Imitation, cosine_distance
from fedaudit.attacks.evaluation.ranking import match_images
from fedaudit.attacks.evaluation.update_inversion import UpdateInversion
from fedaudit.audit.case.custom import CustomCase
from fedaudit.audit.case.given import make_examples
from fedaudit.audit.case.messages import messages as messages_of
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.png import png
from fedaudit.audit.observer.view import grant_knowledge, observer, select_visible
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.runtime import workers as processes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.tasks.classify import Classify
from fedaudit.single_attacks import AttackResult, hold, measure, read_payloads, show_rows, write_case
from fedaudit.tables import make_page, write_file

if TYPE_CHECKING:
    from torch import Tensor, nn

NO_REPLAYS = Replay(updates=(), clients=0)
OF_ONE = ("analytic", "idlg", "idlg", "idlg", "inverting_gradients", "inverting_gradients")
OF_MORE = ("dlg", "inverting_gradients", "dlg", "inverting_gradients")
GREY = 0.5
LEAST_MATCHED = 0.9  # of what a grey image leaves of a gradient, below which no image explains it
# mean squared difference below which two tries drew the same; images of one digit are 0.05 apart
ALIKE = 0.005


@dataclass(frozen=True)
class Reconstruction:
    """Images that a gradient was made with; none unless one try explains the gradient, and another agrees.

    A notebook shows the images, with the class means beside them.
    """

    images: NDArray[np.float32]  # [n, C, H, W] in [0, 1]; [0, C, H, W] where there is no match
    labels: NDArray[np.int64]  # as the last layer's gradient tells them, match or not
    class_means: NDArray[np.float32] | None  # [n, C, H, W] of auxiliary images; what a blind adversary draws
    matched: float  # share of the gradient, less what a grey image explains, that the best try explains
    attack: str  # that drew it
    why: str  # there is a match, or none
    result: AttackResult | None  # measured, where the true images were given

    @property
    def found(self) -> bool:
        """Whether there is a match."""
        return len(self.images) > 0

    def save(self, path: str | Path) -> None:
        """Write the images: side by side as .png, as arrays in .npz, or what a notebook shows as .html.

        Raises UserError for another suffix, and where a .png has no image to show.
        """
        page = lambda: make_page(self._repr_html_())  # noqa: E731
        write_file(path, {".png": self._draw_row, ".npz": self._pack, ".html": page})

    def _draw_row(self) -> bytes:
        if not self.found:
            raise UserError(self.why, hint='save("mine.html") has what is known')
        return base64.b64decode(png(np.concatenate(list(self.images), axis=2)))

    def _pack(self) -> bytes:
        packed = io.BytesIO()
        np.savez(packed, images=self.images, labels=self.labels, matched=self.matched)
        return packed.getvalue()

    def _repr_html_(self) -> str:
        rows = {"reconstruction": [png(x) for x in self.images]} if self.found else {}
        if self.class_means is not None:
            rows["class mean"] = [png(x) for x in self.class_means]
        measured = self.result._repr_html_() if self.result else ""
        caption = f"labels {', '.join(map(str, self.labels))}; {self.why}"
        return show_rows(caption, rows) + measured if rows else f"<p>{html.escape(caption)}</p>"

    def __repr__(self) -> str:
        return f"<{self.why}; classes {self.labels.tolist()}>"


@dataclass(frozen=True)
class Try:
    """What one attack drew from one start."""

    attack: str
    seed: int
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    matched: float

    def is_like(self, other: "Try") -> bool:
        """Whether two tries drew the same images, in whatever order."""
        return len(self.images) == len(other.images) and bool(
            match_images(self.images, other.images)[1].mean() < ALIKE
        )


def invert(
    model: "nn.Module",
    gradient: Mapping[str, Any] | Sequence[Any],
    *,
    shape: Sequence[int],
    number: int = 1,
    attack: str | None = None,
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
        model: The network with the weights at which the gradient was taken, as of `attack`.
        gradient: Of the cross-entropy, its mean or any multiple: {name: array}, or a list in the order of
            model.parameters().
        shape: Of one image, [channels, height, width].
        number: How many images are behind it.
        attack: analytic, idlg, dlg, inverting_gradients or grnn_updates, from two starts. By default several,
            until two tries agree.
        kind: "gradient"; "model_delta" for a change of weights, "local_model" for weights: they take `training`.
        images: (x, y), the true ones, to measure the reconstruction among `auxiliary`; without them nothing is
            measured.
        auxiliary: (x, y) of the same kind: class means are drawn beside the reconstruction, and half of them are
            those among which the true images are looked for.
        training: Of a client: local_epochs, batch_size, lr, ...
        mean: Of each channel.
        std: Of each channel.
        seed: Of all draws.
        **settings: Of the attack that is named.

    Raises:
        UserError: Where the attack does not apply, with the reason, or input is wrong.

    Examples:
        >>> import fedaudit as fa
        >>> drawn = fa.invert(net, gradient, shape=(1, 28, 28), auxiliary=(x_own, y_own))
        >>> drawn.images.shape, bool(drawn.labels[0] == y[0])
        ((1, 1, 28, 28), True)
    """
    if settings and attack is None:
        raise UserError(
            f"{next(iter(settings))} is a setting of an attack, and none is named",
            hint='attack="inverting_gradients"',
        )
    names = (attack, attack) if attack else OF_ONE if number == 1 else OF_MORE
    chosen = {name: _build(name, number, settings) for name in names}
    first = chosen[names[0]]
    named = gradient if isinstance(gradient, Mapping) else _name_arrays(model, gradient)
    sent = {0: read_payloads({kind: named, "num_examples": {"count": np.array(number)}}, first)}
    wanted = tuple(int(n) for n in shape)
    truth = {} if images is None else {0: make_examples("images", images, wanted, task=Classify())}
    if truth and auxiliary is None:
        raise UserError(
            "a reconstruction is measured among images of others, and there are none",
            hint="auxiliary=(x, y), of the same kind",
        )
    holdings = hold(truth, None, auxiliary, wanted, first.card, task=Classify())
    training = {"local_epochs": 1, "batch_size": number} if training is None else training
    with tempfile.TemporaryDirectory() as folder:
        case = write_case(
            Path(folder), model, holdings, sent, task=Classify(), training=training, mean=mean, std=std, seed=seed
        )
        best, why = _choose(_iterate_tries(names, chosen, case))
        result = (
            measure(chosen[best.attack], best.attack, _reseed(case, best.seed), 0, NO_REPLAYS) if truth else None
        )
    drawn = best.images if not why.startswith("no match") else best.images[:0]
    means = _draw_means(holdings.auxiliary, best.labels)
    return Reconstruction(drawn, best.labels, means, best.matched, best.attack, why, result)


def _build(name: str, number: int, settings: dict[str, Any]) -> UpdateInversion:
    cls = catalog.load("attacks", name)
    if not issubclass(cls, UpdateInversion):
        raise UserError(
            f"{name} draws no images of a gradient", hint="analytic, idlg, dlg, inverting_gradients, grnn_updates"
        )
    spec = PluginSpec(name=name, settings={"most_recorded": number} | settings)
    made: UpdateInversion = build_plugin("attacks", spec, name)
    return made


def _iterate_tries(
    names: Sequence[str], chosen: Mapping[str, UpdateInversion], case: CustomCase
) -> Iterator[Try]:
    """What each attack draws, from another start each time. Raises UserError where none applies."""
    refused, drew = "", False
    for i, name in enumerate(names):
        seed = case.config.seed + names[:i].count(name)
        try:
            found = _try(chosen[name], name, _reseed(case, seed), seed)
        except UserError as error:
            refused = refused or f"{name}: {error.sentence}"
            continue
        drew = True
        yield found
    if not drew:
        raise UserError(refused, hint="`fedaudit tools list attacks` says what each needs")


def _choose(tries: Iterator[Try]) -> tuple[Try, str]:
    """The best of the first two that agree, or of all, and why it is a match or none."""
    made: list[Try] = []
    for one in tries:
        near = [other for other in made if other.is_like(one) and min(one.matched, other.matched) > LEAST_MATCHED]
        made.append(one)
        if near:
            best = max([one, *near], key=lambda t: t.matched)
            return best, f"{best.attack} explains {best.matched:.1%} of the gradient, and two tries agree"
    best = max(made, key=lambda t: t.matched)
    told = f"no match: the best of {len(made)} tries, {best.attack}, explains {best.matched:.1%} of the gradient"
    return best, told + (", and no other drew the same" if best.matched > LEAST_MATCHED else "")


def _try(attack: UpdateInversion, name: str, case: CustomCase, seed: int) -> Try:
    """What it draws of what was sent, with nothing planted. Raises UserError where it does not apply."""
    import torch

    card = attack.card
    assert case.artifacts is not None
    with processes.one_thread():
        artifacts = index(messages_of(case.artifacts, card.reads, card.rounds))
        view = select_visible(artifacts, observer(case, artifacts, card), card)
        known = grant_knowledge(case, card)
        if reason := attack.not_applicable(view, known):
            raise UserError(reason)
        claim: Claim = attack.run(view, known, case.streams.numpy("attack", name))
        x, y = np.asarray(claim["images"]), np.asarray(claim["label"], np.int64)
        update = attack.find_first(view, known)
        assert update is not None, "applies, by the reason above"
        copy = Imitation(update, known)
        labels = torch.from_numpy(y).to(copy.device)
        left = [
            _measure_rest(
                copy.descent(torch.from_numpy(drawn).to(copy.device), labels, update.steps), copy.target
            )
            for drawn in (x, np.full_like(x, GREY))
        ]
    return Try(name, seed, x, y, max(0.0, 1 - left[0] / max(left[1], 1e-12)))


def _measure_rest(found: "Sequence[Tensor]", target: "Sequence[Tensor]") -> float:
    """The share of the target's square that no multiple of the gradient found explains."""
    cosine = 1 - float(cosine_distance([g.double() for g in found], [g.double() for g in target]).detach())
    return 1 - max(0.0, cosine) ** 2


def _reseed(case: CustomCase, seed: int) -> CustomCase:
    return dataclasses.replace(case, config=case.config.model_copy(update={"seed": seed}))


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
