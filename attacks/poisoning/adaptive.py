"""Attackers who try what they could send on the very rule that the server uses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import (
    KINDS,
    Colluding,
    Crowd,
    follow,
    gather_updates,
    shape_vector,
    vector,
)
from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.attacks.stats import ALPHA, Estimate, paired_difference
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, Share
from fedaudit.fl.threats.adversary import Adversary, Card, Colluded, JudgedModel, Meeting, Payload, Trail
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel

PLUGINS = ("adaptive", "adaptive_backdoor")

Member = str | dict[str, Any]
FAMILY: tuple[Member, ...] = (
    *({"name": "ipm", "tau": tau} for tau in (0.1, 0.5, 1.0, 2.0, 6.0, 16.0)),
    *({"name": "alie", "z": z} for z in (-4.0, -1.5, -0.5, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0)),
    *({"name": "min_max", "direction": d, "times": t} for d in ("sd", "unit", "sign") for t in (1.0, 2.0)),
    *({"name": "min_sum", "direction": d} for d in ("sd", "unit", "sign")),
    "fang_krum",
    "fang_trimmed_mean",
    *({"name": name, "knows": "own"} for name in ("min_max", "fang_krum", "fang_trimmed_mean")),
)
NEAR = 0.02  # of what is left; members that leave so little more are nearly as harmful


@dataclass(frozen=True)
class TriedMember:
    """One member, and what has become of the model so far if it is sent from now on."""

    member: Mapping[str, Any]  # of the family, as a config writes it
    adversary: Colluding
    forged: Mapping[int, Tensor]  # client -> [P]
    changes: tuple[Payload, ...]  # of the shared model; several where the rule draws at random
    rounds: int = 1  # in which it came to that
    left: float = 0.0  # of the model, as it was ranked by


class Adaptive(Adversary):
    """Adaptive: compromised clients try a family of attacks on the very rule in use, and send what harms most.

    Tramer, Carlini, Brendel, Madry. On Adaptive Attacks to Adversarial Example Defenses. NeurIPS 2020.
    arXiv:2002.08347 (the principle); Fang et al. USENIX Security 2020. arXiv:1911.11815 (knowing the rule).
    In each round every member of the `family` forges its updates, the rule makes a model of them and of the
    honest ones, and what is left of that model is measured: right answers and their probability, half each, of
    all classes or of the worst one. Compromised clients keep half of each class to measure on and train on the
    other half, twice as often. For classes they do not hold it is how far the model went the honest mean's way,
    or how often it answers with them whatever it is shown. The `looks` attacks that leave least are followed for
    `ahead` rounds more, in which the compromised clients really train on the model so far, and honest clients are
    taken to change what they sent by as much as these changed. Who leaves least at the end is sent; what was sent
    the round before is kept while nothing leaves two points less, because an attack that is kept up does more
    than one that changes. The rule's state is known, and what it would remember of rounds ahead; its random
    draws are not: where it draws, `draws` are tried. Each class counts alike.
    """

    card = Card(
        title="Adaptive attacker",
        needs="classes",
        source="arXiv:2002.08347, arXiv:1911.11815",
        does="finds in every round what harms the rule in use most, and sends it",
        remedy="do not trust a rule by attacks that do not know it; bound what one client can change",
        threat=ThreatModel(
            position=Position.CLIENT, conduct=Conduct.MALICIOUS, knows=frozenset({"honest_updates", "aggregator"})
        ),
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        family: Annotated[
            tuple[Member, ...],
            Field(min_length=1, max_length=100, description="what is tried, as a config writes adversaries"),
        ] = FAMILY
        minimises: Annotated[
            Literal["mean", "worst_class"],
            Field(description="what is to be left least of: the mean over the examples, or the worst class"),
        ] = "mean"
        ahead: Annotated[AtLeastZero, Field(description="rounds for which the most harmful are followed")] = 2
        looks: Annotated[AtLeastOne, Field(description="how many members are followed")] = 4
        draws: Annotated[AtLeastOne, Field(description="how often a rule that draws at random is tried")] = 3

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gather_updates(meeting)
        if meeting.aggregate is None:
            return Colluded(messages={})
        draws, kept = range(self.config.draws if is_random(crowd) else 1), meeting.before.get("member")
        tried = [try_member(crowd, m, make_member(m), draws) for m in map(write_whole, self.config.family)]
        ranked = self._rank(crowd, tried)
        if self.config.ahead and meeting.train is not None and len(ranked) > 1:
            best = {type(t.adversary): t for t in reversed(ranked)}  # of each attack its most harmful settings
            followed = [t for t in ranked if best[type(t.adversary)] is t][: self.config.looks]
            followed += [t for t in ranked if t.member == kept and t not in followed]
            ranked = self._rank(crowd, [self._look_ahead(crowd, t) for t in followed])
        least = ranked[0].left
        worst = next((t for t in ranked if t.member == kept and t.left <= least + NEAR), ranked[0])
        near = [t.member for t in ranked if t is not worst and t.left <= least + NEAR]
        sent = crowd.send(lambda k: worst.forged[k])
        return replace(sent, member=worst.member, near=near, state={"member": dict(worst.member)})

    def _look_ahead(self, crowd: Crowd, tried: TriedMember) -> TriedMember:
        """What it comes to in the rounds after this one; what is sent stays."""
        assert crowd.meeting.train is not None
        ends = []
        for draw in range(len(tried.changes)):
            trail = Trail()  # a rule that remembers does so in these rounds too
            change = aggregate(crowd, tried.forged, draw, trail)
            for t in range(1, self.config.ahead + 1):
                later = follow(crowd, crowd.meeting.train(change))
                forge = tried.adversary.forge_seeing(later)
                forged = {k: forge(k) for k in later.meeting.own}
                more = aggregate(later, forged, draw + t * self.config.draws, trail)
                change = {k: v + more[k] for k, v in change.items()}
            ends.append(change)
        return replace(tried, changes=tuple(ends), rounds=1 + self.config.ahead)

    def _rank(self, crowd: Crowd, tried: list[TriedMember]) -> list[TriedMember]:
        """The most harmful first: by what is left on own examples, or where nothing tells by the way it moved."""
        changes, way = [c for t in tried for c in t.changes], find_honest_way(crowd)
        if crowd.meeting.judge is None:
            each = [-float((vector(c) - way).norm()) for c in changes]
        else:
            rounds = [t.rounds for t in tried for _ in t.changes]
            judged = zip(crowd.meeting.judge(changes), changes, rounds, strict=True)
            each = [self._measure(estimate_recalls(j, measure_progress(way, c, n))) for j, c, n in judged]
        left = torch.tensor(each, dtype=torch.float64).reshape(len(tried), -1).mean(1).tolist()
        return sorted((replace(t, left=x) for t, x in zip(tried, left, strict=True)), key=lambda t: t.left)

    def _measure(self, recalls: Tensor) -> float:
        return float(recalls.mean() if self.config.minimises == "mean" else recalls.min())


class AdaptiveBackdoor(Backdoors):
    """Adaptive backdoor: sent as strongly as the rule in use lets through at a bounded loss of accuracy.

    Bagdasaryan et al. AISTATS 2020. arXiv:1807.00459, sec. 3.3 (constrain and scale), with the rule known as in
    Fang et al. USENIX Security 2020. arXiv:1911.11815. In each round what the compromised clients learnt from
    triggered batches is tried at every strength, by itself, cut to the median honest norm, and as a distance from
    the honest mean. Of those whose model loses at most `loss` beside what the rule makes of the honest mean in
    their place, the one with most success is sent, by answers and their probability, half each; where all lose
    more, it is the honest mean. The clients judge on half of their examples, each class alike, and train on the
    other half, twice as often. Where a class is not held nothing tells what it loses, and the model may move no
    further than an honest client's update in their place would move it. The metrics hold what is claimed of each
    round's model: success, loss, and the most that may be lost, with confidence over all that was tried.
    """

    card = Card(
        title="Adaptive backdoor",
        needs="classes",
        aim=Aim.BACKDOOR,
        source="arXiv:1807.00459, sec. 3.3; arXiv:1911.11815",
        does="plants a backdoor as strong as the rule in use lets through, at little cost in accuracy",
        remedy="do not trust a rule by backdoors that do not know it; bound what one client can change",
        threat=Adaptive.card.threat,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        strengths: Annotated[
            tuple[Amount, ...], Field(min_length=1, max_length=50, description="factors that are tried")
        ] = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
        loss: Annotated[Share, Field(description="accuracy that may be lost, beside the honest mean")] = 0.02

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gather_updates(meeting)
        if meeting.aggregate is None or meeting.judge is None:
            return Colluded(messages={})
        draws = range(3 if is_random(crowd) else 1)
        tried = [dict.fromkeys(meeting.own, crowd.mean), *self._forge_all(crowd)]
        changes = [[aggregate(crowd, sent, draw) for draw in draws] for sent in tried]
        judged = meeting.judge([c for each in changes for c in each])
        models = [judged[k : k + len(draws)] for k in range(0, len(judged), len(draws))]
        losses = [estimate_loss(models[0], m, ALPHA / len(tried)) for m in models]
        success = [self._measure_success(m) for m in models]  # by answers, and by probabilities too
        near = self._find_near(crowd, [vector(c[0]) for c in changes], judged[0])
        best = max((k for k in near if losses[k].value <= self.config.loss), key=lambda k: sum(success[k]))
        loss = losses[best]
        claims = {"loss": loss.value, "loss_at_most": loss.interval[1], "success": success[best][0]}
        return replace(crowd.send(lambda k: tried[best][k]), claims=claims)

    def _measure_success(self, models: list[JudgedModel]) -> tuple[float, float]:
        """Share of the examples of other classes that are answered with the target, and its mean probability."""
        other = models[0].labels != self.config.target
        hits = torch.stack([m.turned[other].double() for m in models]).mean().nan_to_num()
        chances = torch.stack([m.turned_chances[other] for m in models]).mean().nan_to_num()
        return float(hits), float(chances)

    def _find_near(self, crowd: Crowd, made: list[Tensor], judged: JudgedModel) -> list[int]:
        """Which of what the rule made [P] is no further from the first than an honest client's change moves it.

        All of them, where the compromised clients hold every class: examples then tell more than distances.
        """
        if len({*judged.labels.tolist()}) == judged.classes:
            return list(range(len(made)))
        honest = (dict.fromkeys(crowd.meeting.own, row) for row in crowd.honest)
        far = max(float((vector(aggregate(crowd, sent, 0)) - made[0]).norm()) for sent in honest)
        return [k for k, x in enumerate(made) if float((x - made[0]).norm()) <= far]

    def _forge_all(self, crowd: Crowd) -> Iterator[dict[int, Tensor]]:
        own = {k: crowd.compute_honest_update(k) for k in crowd.meeting.own}
        for strength in self.config.strengths:
            yield {k: strength * v for k, v in own.items()}
            yield {k: v * (strength * crowd.median_norm / v.norm().clamp(min=1e-300)) for k, v in own.items()}
            yield {k: crowd.mean + strength * (v - crowd.mean) for k, v in own.items()}


def try_member(
    crowd: Crowd, member: Mapping[str, Any], adversary: Colluding, draws: Iterable[int]
) -> TriedMember:
    """What it would send, and what the rule would make of that."""
    forge = adversary.forge_seeing(crowd)
    forged = {k: forge(k) for k in crowd.meeting.own}
    return TriedMember(member, adversary, forged, tuple(aggregate(crowd, forged, draw) for draw in draws))


def aggregate(crowd: Crowd, sent: Mapping[int, Tensor], draw: int, trail: Trail | None = None) -> Payload:
    """What the rule would make of the honest changes and of what is `sent` [P] by the compromised clients."""
    rows = dict(zip(crowd.clients, crowd.honest, strict=True)) | dict(sent)
    assert crowd.meeting.aggregate is not None
    made = crowd.meeting.aggregate({k: shape_vector(rows[k], crowd.like) for k in sorted(rows)}, draw, trail)
    return {k: made[k] for k in crowd.like}


def is_random(crowd: Crowd) -> bool:
    """Whether the rule makes something else of the same changes when it draws anew."""
    own = {k: crowd.compute_honest_update(k) for k in crowd.meeting.own}
    one, other = (vector(aggregate(crowd, own, draw)) for draw in (0, 1))
    return not torch.equal(one, other)


def estimate_recalls(judged: JudgedModel, progress: float) -> Tensor:
    """[C] how far examples of each class are answered rightly: the answer and its probability, half each.

    Of a class without an example it is how far the model went the honest way, `progress`. But what is answered to
    some examples of every class is answered to those too, so that of a model that knows one answer alone that
    class is left, and no less.
    """
    seen = torch.bincount(judged.labels, minlength=judged.classes)
    held = seen > 0
    answers = torch.zeros(judged.classes, judged.classes + 1, dtype=torch.float64)  # the last: no answer
    one = torch.ones(len(judged.labels), dtype=torch.float64)
    answers.index_put_((judged.labels, judged.answers), one, accumulate=True)
    right = (judged.chances + (judged.answers == judged.labels)) / 2
    shares = answers[held, :-1] / seen[held, None]
    always = shares.amin(0) if held.any() else torch.zeros(judged.classes, dtype=torch.float64)
    found = torch.zeros(judged.classes, dtype=torch.float64).index_add(0, judged.labels, right) / seen
    return found.where(held, always.clamp(min=max(0.0, progress)))


def estimate_loss(before: Sequence[JudgedModel], after: Sequence[JudgedModel], alpha: float) -> Estimate:
    """Accuracy that is lost from one model to the other, by answers, each class alike; of each one model a draw.

    Classes of few examples weigh as much as others, so there are fewer trials than examples.
    """
    labels = before[0].labels
    seen = torch.bincount(labels)
    weights = 1 / (seen[labels] * (seen > 0).sum()).double()
    trials = 1 / float(weights.square().sum()) if len(labels) else 0.0
    first, second = (torch.stack([m.answers == labels for m in models]) for models in (before, after))
    cells = (first & second, first & ~second, ~first & second, ~first & ~second)
    both, lost, won, neither = (trials * float((weights * c.double().mean(0)).sum()) for c in cells)
    return paired_difference(both, lost, won, neither, alpha)


def find_honest_way(crowd: Crowd) -> Tensor:
    """[P]: how the shared model would move, were everybody's change the honest mean."""
    made = crowd.meeting.expect(shape_vector(crowd.mean, crowd.like))
    return vector({k: made[k] for k in crowd.like})


def measure_progress(way: Tensor, change: Payload, rounds: int) -> float:
    """How far a model went the honest way [P], over how far that goes itself in these rounds; from -1 to 1."""
    far = float(way.square().sum()) * rounds
    return max(-1.0, min(1.0, float(vector(change) @ way) / far)) if far else 0.0


def write_whole(member: Member) -> dict[str, Any]:
    """A member of the family with its name as a setting."""
    return {"name": member} if isinstance(member, str) else dict(member)


def make_member(member: Mapping[str, Any]) -> Colluding:
    """Raises UserError where it is no adversary that forges changes from those of the round."""
    settings = dict(member)
    where = "adversary.family"
    cls = plugin.load("fedaudit.attacks.poisoning", str(settings.pop("name", "")), Adversary, where)
    if not issubclass(cls, Colluding):
        raise UserError(
            f"adversary.family takes adversaries that forge changes, and {cls.card.title} does not",
            hint="take ipm, alie, min_max, min_sum, fang_krum, fang_trimmed_mean or gaussian",
            key=where,
        )
    made: Colluding = plugin.configure(cls, settings, where)
    return made
