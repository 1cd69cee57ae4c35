"""One tiny world for every attack: a view with its planted leak, what its adversary knows, and the truth.

An attack without a row in WORLDS is a red test. Settings are cheap and worlds small, so that all attacks that
are not in SLOW run within some seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from fedaudit.attacks.attack import Attack, Knowledge
from fedaudit.attacks.evaluation.targets import GLOBAL, RELAYED, UPDATE
from fedaudit.attacks.poisoning.imprint import imprint_model
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from tests.attacks.batches.batch_world import Batches as SplitBatches
from tests.attacks.batches.batch_world import Convolved, Described, Gradients, Hijacked, SentBack
from tests.attacks.condensed.condensed_world import CondensedWorld
from tests.attacks.condensed.test_condensed_refinement import QUICK, MeanCondenser, NoisyWorld
from tests.attacks.condensed.test_mashed_membership import means
from tests.attacks.generators import test_generators as generators
from tests.attacks.messages.telling import Telling
from tests.attacks.models.overfit import Played, light, overfit
from tests.attacks.models.released import Released
from tests.attacks.models.rows_by_heart import RowsByHeart
from tests.attacks.prototypes import test_prototype_collusion, test_prototype_difference
from tests.attacks.summaries import test_hidden_images
from tests.attacks.summaries import worlds as summaries
from tests.attacks.summaries.clinics import centres_that_move, newton_steps, one_step, sums_that_differ, tables
from tests.attacks.text.language_world import learnt
from tests.attacks.text.text_world import TextWorld
from tests.attacks.timing.timed import Timed
from tests.attacks.updates.gradients import Planted
from tests.attacks.updates.test_label_counts_from_gradient import Batches
from tests.attacks.updates.trained_rows import TrainedRows
from tests.attacks.updates.updates import Updates
from tests.attacks.world import World, weights

GAN = {"planted_steps": 150, "reference_steps": 60}
SMALL = {"members": 60, "others": 300}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What an attack is played on."""

    view: Sequence[Artifact]
    knowledge: Knowledge
    truth: Any  # fedaudit.attacks.attack.Truth, as far as these attacks ask
    settings: dict[str, Any] = field(default_factory=dict)
    # condition of the evidence that shows the planted leak; empty: what the attack marks as its positive control
    leak: dict[str, str] = field(default_factory=dict)


def of(world: Any, view: Sequence[Artifact] | None = None, leak: Any = None, **settings: Any) -> Stage:
    """A test world as it stands; its artifacts are the view."""
    seen = world.artifacts if view is None else view
    return Stage(view=seen, knowledge=world.knowledge, truth=world, settings=settings, leak=leak or {})


# Worlds that several attacks share


@cache
def groups(sizes: tuple[int, ...] = (1, 20), clients: int = 4, each: int = 40) -> World:
    return World(sizes=sizes, clients=clients, groups=each)


@cache
def condensed() -> CondensedWorld:
    return CondensedWorld(sizes=(1, 10))


@cache
def batches_of_digits() -> SplitBatches:
    return SplitBatches()


@cache
def updates() -> Updates:
    return Updates()


@cache
def gradients(kind: Kind = Kind.LOCAL_MODEL) -> Planted:
    return Planted(groups=8, kind=kind)


@cache
def fished() -> Planted:
    """The same, after a server that sent a model made to fish for images."""
    model = {k: torch.from_numpy(v) for k, v in weights(0).items()}
    start = {k: v.numpy().copy() for k, v in imprint_model(model, 0.2, 0.05).items()}
    return Planted(groups=6, start=start)


def trained(kind: Kind, channel: Channel, *seen: str, **settings: Any) -> Stage:
    """A network of client 0, not trained yet: the leak is what the attack plants, and trains, itself."""
    world = generators.world(0)
    weights = world.artifacts[0 if kind == Kind.GAN_D else 1].payload
    return of(world, [generators.artifact(kind, channel, weights, seen)], **settings)


def memorised(model: str, **settings: Any) -> Stage:
    """Models that have learnt sixty noisy images by heart: the world itself is the planted leak."""
    return of(overfit(), leak={"model": model}, **settings)


def played(**settings: Any) -> Stage:
    """Models that trained for two epochs, and an adversary who can run the clients' training."""
    stage = of(light(), **settings)
    return replace(stage, knowledge=replace(stage.knowledge, player=Played(light())))


def relayed() -> Stage:
    """The same models, handed from client to client."""
    world = overfit()
    handed = [
        replace(a, kind=Kind.RELAY_MODEL, channel=Channel.RELAY, seen_by=(f"client/{(a.sender.index or 0) + 1}",))
        for a in world.artifacts
        if a.kind == Kind.LOCAL_MODEL
    ]
    return of(world, handed, leak={"model": RELAYED})


def unfrozen() -> Stage:
    """Replayed and recorded layers; the last client keeps the first one."""
    world = Planted(groups=8, kind=Kind.UNFROZEN_LAYERS, recorded=5)
    view = [replace(a, kind=Kind.UNFROZEN_LAYERS) if a.kind == Kind.LOCAL_MODEL else a for a in world.artifacts]
    left = {k: v for k, v in view[-1].payload.items() if not k.startswith("conv")}
    return of(world, [*view[:-1], replace(view[-1], payload=left)], iterations=50, inverted=3, gallery=20)


def refined() -> Stage:
    world = NoisyWorld(sizes=(1, 10))
    known = replace(world.knowledge, condenser=MeanCondenser(world))
    return Stage(view=world.artifacts, knowledge=known, truth=world, settings=dict(QUICK))


def mashed() -> Stage:
    world = World(sizes=())
    return of(world, [means(world, k, 1) for k in range(len(world.clients))])


def batches() -> Stage:
    world = Batches(sizes=(1,), each=20)
    return of(world, world.view)


def joined() -> Stage:
    world = test_prototype_difference.world()
    return of(world, [*world.artifacts, *test_prototype_difference.pairs()])


def summed() -> Stage:
    view, known = summaries.sums([(0, 1, 2), (0, 1), (1, 2), (3, 4, 5), (3, 5), (4, 5)])
    return Stage(view=view, knowledge=known, truth=summaries.world())


@cache
def texts() -> TextWorld:
    return TextWorld()


WORLDS: dict[str, Callable[[], Stage]] = {
    "adapter_span": lambda: of(
        TextWorld(rounds=2, trained=("q.weight", "v.weight"), planted=1), clients=6, planted=6
    ),
    "activation_decoder": lambda: of(batches_of_digits(), least_steps=400, width=64, gallery=20),
    "activation_ridge": lambda: of(batches_of_digits(), gallery=20),
    "analytic": lambda: of(gradients(Kind.GRADIENT), gallery=20, iterations=30),
    "buffer_membership": lambda: of(summaries.Buffers(4)),
    "canary_exposure": lambda: of(learnt(), leak={"copies": 4}),
    "analytic_rows": lambda: of(*one_step()),
    "centre_rows": lambda: of(*centres_that_move()),
    "class_list": lambda: of(condensed()),
    "condensed_class": lambda: of(condensed()),
    "condensed_membership": lambda: of(condensed()),
    "condensed_recovery": lambda: of(condensed()),
    "condensed_refinement": refined,
    "count_recovery": lambda: of(groups((), 6)),
    "curve_rows": lambda: of(*tables(sizes=(100, 100, 100))),
    "lone_cells": lambda: of(*tables()),
    "critic_score": lambda: trained(Kind.GAN_D, Channel.RELAY, "client/1", planted_steps=100),
    "dlg": lambda: of(gradients(), iterations=40, gallery=20, optimiser="adam", lr=0.1),
    "entropy": lambda: memorised(GLOBAL),
    "confidence": lambda: memorised(GLOBAL),
    "example_numbers": lambda: of(summaries.world(), summaries.numbers()),
    "fisher_classes": lambda: of(summaries.world(), summaries.diagonals()),
    "fisher_images": lambda: of(summaries.steep(1)),
    "fisher_membership": lambda: of(summaries.world(), summaries.diagonals()),
    "frozen_layers": unfrozen,
    "generator_distance": lambda: trained(Kind.GAN_G, Channel.UPLINK, "server", **GAN, images=2000),
    "generator_extraction": lambda: trained(Kind.GAN_G, Channel.UPLINK, "server", **GAN, images=2000),
    "grnn": lambda: of(groups((1, 20), 2, 20), steps=500, per_size=16),
    "grnn_updates": lambda: of(gradients(), iterations=60, per_size=5, gallery=20, lr=1e-3, momentum=0.5),
    "hidden_images": lambda: of(test_hidden_images.WORLD, test_hidden_images.sent(None)),
    "hijacked_images": lambda: of(Hijacked(), gallery=20),
    "idlg": lambda: of(gradients(), iterations=20, gallery=20),
    "imprint_recovery": lambda: of(fished(), iterations=30, gallery=20, per_size=6),
    "inverting_gradients": lambda: of(gradients(), iterations=50, per_size=6, gallery=20),
    "label_counts_from_gradient": batches,
    "label_counts_from_update": lambda: of(updates()),
    "label_cosine": lambda: of(Gradients()),
    "label_norm": lambda: of(Gradients(classes=2)),
    "latent_inversion": lambda: trained(
        Kind.GAN_G, Channel.UPLINK, "server", planted_steps=400, reference_steps=60, non_members=500
    ),
    "lira": lambda: memorised(GLOBAL, shadows=4, epochs=20, **SMALL),
    "lookup": lambda: of(groups()),
    "loss_threshold": lambda: memorised(GLOBAL),
    "majority_class": lambda: of(summaries.world(), summaries.losses()),
    "mashed_membership": mashed,
    "played_facts": lambda: of(Telling(), plays=100),
    "played_message": lambda: played(auxiliary=100, held_out=120),
    "missing_column": lambda: of(RowsByHeart(), people=75),
    "newton_means": lambda: of(*newton_steps()),
    "output_shares": lambda: Stage(
        view=summaries.leaning(), knowledge=summaries.asked(), truth=summaries.world()
    ),
    "prototype_collusion": lambda: of(test_prototype_collusion.world()),
    "prototype_difference": joined,
    "prototype_linkage": lambda: of(groups((1, 2), 10, 60)),
    "prototype_membership": lambda: of(groups((1, 2), 10, 60)),
    "public_membership": lambda: Stage(
        view=summaries.answers(), knowledge=summaries.asked(), truth=summaries.world()
    ),
    "regurgitation": lambda: of(learnt(), leak={"model": UPDATE}, samples=2, least=1),
    "relayed_generator": lambda: trained(Kind.GAN_G, Channel.RELAY, "client/1", **GAN, images=2000),
    "relayed_model": relayed,
    "ridge": lambda: of(groups()),
    "rmia": lambda: memorised(GLOBAL, references=2, epochs=20, **SMALL),
    "row_membership": lambda: of(Described(4)),
    "span_check": lambda: of(texts(), recorded=6, replayed=12),
    "model_inversion": lambda: of(Released(models=6), iterations=40, gallery=20),
    "sequence_loss": lambda: of(learnt(), leak={"model": UPDATE}, **SMALL),
    "sequence_min_k": lambda: of(learnt(), leak={"model": UPDATE}, **SMALL),
    "sequence_reference": lambda: of(learnt(), leak={"model": UPDATE}, **SMALL),
    "spear": lambda: of(gradients(Kind.GRADIENT), gallery=20),
    "speed_profile": lambda: of(Timed()),
    "sum_difference": summed,
    "sums_rows": lambda: of(*sums_that_differ()),
    "tableak": lambda: of(TrainedRows((1, 1, 2))),
    "upcnn": lambda: of(groups(), max_clients=2, least_steps=500, width=256),
    "unsplit": lambda: of(
        Convolved(clients=1), gallery=20, image_steps=10, clone_steps=10, lr=0.05, clone_lr=0.005
    ),
    "unsplit_labels": lambda: of(SentBack()),
    "token_set": lambda: of(texts()),
    "uploaded_critic": lambda: trained(Kind.GAN_D, Channel.UPLINK, "server", planted_steps=100),
    "vae": lambda: of(groups(), max_clients=2, least_steps=500, width=256),
}
# Those that need more than some seconds to find their leak
SLOW = frozenset({"grnn", "latent_inversion", "upcnn", "vae"})


@cache
def stage(name: str) -> Stage:
    return WORLDS[name]()


def made(name: str) -> Attack:
    """The attack with its world's settings."""
    cls = catalog.load("attacks", name)
    settings = stage(name).settings
    attack: Attack = cls(cls.Config(**settings)) if settings else cls()
    return attack
