"""The verifier: an honest run's ledger passes, and whatever makes it cheaper, shorter or different is found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import yaml

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.status import NoiseResult, combine_status, list_bounds
from fedaudit.audit.accounting.verify import DECLARED, Verified, verify
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.other_lines import find_other_line
from fedaudit.audit.noise_audit.replay import _refute_ledger, audit_bounds
from fedaudit.audit.phases import simulate
from fedaudit.audit.plays.run import RunPlayer
from fedaudit.audit.plays.world import Listener, Probe
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.dp_sgd import DPSGD
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Sending
from fedaudit.reports.result import AuditResult
from fedaudit.reports.sections.budget import Budget as Section
from tests.audit.tiny import HERE
from tests.reports.sample import result as sample

LOCAL = "{name: dp_gaussian, kinds: [local_model], noise_multiplier: 4.0}"
CENTRAL = "{name: central_dp, clip_norm: 0.5, noise_multiplier: 1.2}"
SHARES = "{name: dp_gaussian, kinds: [local_model], noise_multiplier: 4.0, contributors: 4}"
STEPS = "{name: dp_sgd, noise_multiplier: 1.0, sample_rate: 0.2, steps: 3}"
BERNOULLI = "{name: bernoulli, p: 0.8}"
ME = __name__
AUTO = [PluginSpec(name="auto", settings={"cross_check": False})]


@dataclass(frozen=True)
class Ran:
    run: RunDir
    config: Config

    @property
    def case(self) -> SimulatedCase:
        found = open_case(self.run, self.config)
        assert isinstance(found, SimulatedCase)
        return found

    @property
    def releases(self) -> list[Release]:
        return read(self.run.ledger)

    @property
    def played(self) -> list[Release]:
        return RunPlayer(self.case).play(Listener("server", Probe())).lines

    def verified(self, releases: list[Release]) -> Verified:
        return verify(self.case, releases, manifest(self.run.artifacts))


@cache
def ran(protections: str, availability: str = BERNOULLI, method: str = "name: fedavg", rounds: int = 6) -> Ran:
    text = f"""
federation:
  dataset: {HERE}:TinyImages
  clients: 6
  partition: {HERE}:Thirds
  availability: {availability}
  empty_round: skip
  model: {{name: "{HERE}:Linear", width: 5}}
method: {{{method}, rounds: {rounds}, weighting: uniform, local_epochs: 1}}
protections: [{protections}]
record: last
"""
    config, run = validate(Config, yaml.safe_load(text), "config"), RunDir(Path(mkdtemp()))
    simulate.run(run, config, lambda *_: None)
    return Ran(run, config)


HONEST = {
    "nothing": ("",),
    "local noise": (LOCAL,),
    "central noise": (CENTRAL,),
    "central noise of everybody": (CENTRAL, "{name: full}"),
    "central noise of a fixed number": (CENTRAL, "{name: uniform, count: 3}"),
    "central noise of a draw that lasts": (CENTRAL, "{name: persistent, p: 0.5, period: 3}"),
    "central noise of clients that come and go": (CENTRAL, "{name: markov}"),
    "central noise under secure aggregation": (f"{CENTRAL}, {{name: secure_aggregation}}",),
    "private training": (STEPS,),
    "noise on two kinds": ("{name: dp_gaussian, kinds: [local_model, local_prototypes, proto_counts]}",),
    "secure aggregation": ("{name: secure_aggregation}",),
    "noise on what a threshold lets through": (
        "{name: prototype_threshold, least: 2}, {name: dp_gaussian, kinds: [local_prototypes]}",
        BERNOULLI,
        "name: rebafl",
        2,
    ),
    "shares of noise": (f"{SHARES}, {{name: secure_aggregation}}",),
    "shares of noise of some": (f"{SHARES}, {{name: secure_aggregation}}", "{name: bernoulli, p: 0.5}"),
    "clusters": (LOCAL, "{name: clustered}"),
    "chosen clients": (LOCAL, BERNOULLI, "name: power_of_choice, candidates: 4, chosen: 2"),
    "control variates": ("{name: dp_gaussian, kinds: [local_model, control_delta]}", BERNOULLI, "name: scaffold"),
}


ALWAYS = "private training"  # of the others a sample
ORDERED = [pytest.param(n, marks=() if n == ALWAYS else pytest.mark.sample(7)) for n in HONEST]


@pytest.mark.parametrize("name", ORDERED)
def test_an_honest_ledger_passes_and_its_bounds_are_not_declared(name: str) -> None:
    here = ran(*HONEST[name])
    found = here.verified(here.releases)
    assert found.issues == () and not found.declared


@pytest.mark.parametrize("name", ORDERED)
def test_a_play_of_an_honest_run_enters_its_ledger(name: str) -> None:
    here = ran(*HONEST[name])
    assert find_other_line(here.releases, here.played) is None and len(here.played) == len(here.releases)


@pytest.mark.nightly
def test_lines_of_a_methods_own_noise_are_those_of_a_play_and_stay_declared() -> None:
    here = ran("", "{name: full}", "name: feddpgan, noise: {mode: accounted, scale: 2.0}", 2)
    assert here.verified(here.releases) == Verified(declared=True)
    assert find_other_line(here.releases, here.played) is None
    assert "noise" in (find_other_line(noised(noise_std=10.0)(here.releases), here.played) or "")
    nothing = [r for r in here.releases if not r.noise_multiplier]
    assert "no line of that" in here.verified(nothing).issues[0].what


def noised(**changes: Any) -> Callable[[list[Release]], list[Release]]:
    """Every noised line with other numbers; a number that is given as a factor is multiplied."""

    def changed(r: Release) -> Release:
        if not r.noise_multiplier:
            return r
        new = {
            k: getattr(r, k) * v if isinstance(v, float) and k != "sample_rate" else v for k, v in changes.items()
        }
        return replace(r, **new)

    return lambda releases: [changed(r) for r in releases]


FORGED: dict[str, tuple[tuple[str, ...], Callable[[list[Release]], list[Release]], str]] = {
    "ten times the noise": ((LOCAL,), noised(noise_std=10.0), "noise 40 towards server; it is 4"),
    "ten times the central noise": ((CENTRAL,), noised(noise_std=10.0), "noise"),
    "one line's noise": ((LOCAL,), lambda r: [replace(r[0], noise_std=5.0), *r[1:]], "noise 5 towards"),
    "half the sensitivity": ((LOCAL,), noised(sensitivity=0.5, clip_norm=0.5), "sensitivity 0.5; it is 1"),
    "half the sensitivity of its clip": ((LOCAL,), noised(sensitivity=0.5), "its clip lets 1 through"),
    "another unit": ((LOCAL,), noised(unit="record"), "unit record; it is client"),
    "other neighbours": ((CENTRAL,), noised(adjacency="replace_one"), "adjacency replace_one"),
    "all lines deleted": ((LOCAL,), lambda r: [], "the ledger has 0 lines"),
    "one line deleted": ((LOCAL,), lambda r: r[1:], "lines for it"),
    "two rounds of six": ((LOCAL,), lambda r: [x for x in r if x.round < 2], "lines for it"),
    "the noise of more shares than came": (
        (f"{SHARES}, {{name: secure_aggregation}}", "{name: bernoulli, p: 0.5}"),
        noised(noise_std=1.2),
        "it is ",
    ),
    "two central rounds of six": ((CENTRAL,), lambda r: [x for x in r if x.round < 2], "lines for it"),
    "one central line": (
        (CENTRAL,),
        lambda r: [x for x in r if x.kind != "global_model" or x.round],
        "the line of global_model by client/* in round 0 is missing",
    ),
    "a lower rate": ((CENTRAL,), noised(sample_rate=0.01), "rate 0.01"),
    "a rate below who came": ((CENTRAL,), noised(sample_rate=0.01), "clients were heard in "),
    "fresh draws": ((CENTRAL, "{name: persistent, p: 0.5, period: 3}"), noised(coin=""), "a draw of its own"),
    "a draw for each release": ((STEPS,), noised(count=1), "1 releases; they are 3"),
    "fewer steps": ((STEPS,), noised(count=2, steps=2), "2 releases; they are 3"),
    "a lower rate of records": ((STEPS,), noised(sample_rate=0.001), "it is at 0.2"),
    "no observers": ((LOCAL,), noised(observers=()), "leaves out client, public, server"),
    "fewer observers": ((LOCAL,), noised(observers=("server",)), "leaves out client, public"),
    "nobody who can tell": ((CENTRAL,), noised(participation_seen_by=()), "cannot tell who took part"),
    "noise that nobody adds": (
        ("",),
        lambda r: [replace(x, mechanism="gaussian", noise_std=9.0, sensitivity=1.0) for x in r],
        "it is none",
    ),
    "a line of nothing": ((LOCAL,), lambda r: [*r, replace(r[0], kind="gradient")], "nothing that crossed"),
    "a round that never was": ((LOCAL,), lambda r: [*r, replace(r[0], round=77)], "nothing that crossed"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_ledger_is_found_and_no_bound_holds(name: str) -> None:
    settings, forge, said = FORGED[name]
    here = ran(*settings)
    forged = forge(here.releases)
    found = here.verified(forged)
    other = find_other_line(forged, ran(*settings).played)
    assert said in " ".join([other or "", *(issue.what for issue in found.issues)])
    checks = [_refute_ledger(o, u, here.releases, other) for o, u in list_bounds(forged)] if other else []
    bounds = combine_status(budgets(forged, [PluginSpec(name="exact")], 1e-5), found, checks, ())
    assert all(b.epsilon == float("inf") for b in bounds)


class Turns(Availability):
    """States coins and takes turns."""

    title = "Turns"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        mine = tuple(k for k in candidates if k % 2 == round % 2)
        return Participation(mine, mine)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)

    def describe(self) -> str:
        return "each client answers with probability 0.5"


def test_a_draw_that_is_not_as_stated_is_found_where_it_is_credited() -> None:
    here = ran(CENTRAL, f'"{ME}:Turns"')
    assert "two clients depend on each other" in here.verified(here.releases).issues[0].what
    local = ran(LOCAL, f'"{ME}:Turns"')  # there, everybody sees who came
    assert local.verified(local.releases).issues == ()


class Coins(Turns):
    """States coins and throws them, as far as anybody can see."""

    title = "Coins of theirs"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        came = streams.numpy("participation", round, attempt).random(len(candidates)) < 0.5
        return Participation(tuple(candidates), tuple(k for k, c in zip(candidates, came, strict=True) if c))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


@pytest.mark.nightly
def test_the_law_of_somebodys_own_draw_is_declared_where_it_earns_credit() -> None:
    here, ours = ran(CENTRAL, f'"{ME}:Coins"'), ran(CENTRAL, "{name: bernoulli, p: 0.5}")
    found = here.verified(here.releases)
    assert not found.issues and not found.declared
    for known, whose, declared in ((found, here, True), (ours.verified(ours.releases), ours, False)):
        (public,) = [b for b in budgets(whose.releases, AUTO, 1e-5, known) if b.observer == "public"]
        assert public.assumed == (
            ["that clients are drawn as Coins of theirs states, which is not code of ours"] if declared else []
        )
        passed = [NoiseResult(kind, "law", True, "") for kind in public.kinds]
        (status,) = (b.status for b in combine_status([public], known, (), passed))
        assert status == ("declared" if declared else "verified")
    everybody = ran(LOCAL, f'"{ME}:Coins"')  # there, nothing is credited
    plain = budgets(everybody.releases, AUTO, 1e-5, everybody.verified(everybody.releases))
    assert not any(b.assumed for b in plain)


@pytest.mark.parametrize("cls", ["ChoosesByLoss", "ChoosesByRows"])
def test_an_honest_line_of_a_servers_look_is_no_issue(cls: str) -> None:
    here = ran(LOCAL, method=f'name: "tests.fl.test_training_statistics:{cls}"')
    assert {"training_statistics", "client_data"} & {r.kind for r in here.releases}
    assert here.verified(here.releases).issues == ()


# Protections that lie: recomputing them would only repeat the lie -------------------------------


class Silent(DPGaussian):
    """Marks what it noised as listed, and lists nothing."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.releases.clear()


class Unseen(DPGaussian):
    """Nobody reads what it lists."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.releases[:] = [replace(r, observers=()) for r in sending.releases]


class Halved(DPGaussian):
    """Lists half of what its clip lets through."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.releases[:] = [replace(r, sensitivity=(r.sensitivity or 0) / 2) for r in sending.releases]


class Fifth(DPSGD):
    """Trains five times the steps that it lists."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.releases[:] = [replace(r, count=r.count // 5, steps=r.count // 5) for r in sending.releases]


class Rare(DPSGD):
    """Lists a lower rate than its steps draw with."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.releases[:] = [replace(r, sample_rate=0.001) for r in sending.releases]


class Sampled(DPGaussian):
    """Claims that its noise is in DP-SGD's steps."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        told: dict[str, Any] = {"unit": "record", "sampling": "poisson", "sample_rate": 0.01}
        sending.releases[:] = [replace(r, participation_seen_by=(), **told) for r in sending.releases]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (f'{{name: "{ME}:Silent", kinds: [local_model]}}', "the ledger has 0 lines"),
        (f'{{name: "{ME}:Unseen", kinds: [local_model]}}', "leaves out client, public, server"),
        (f'{{name: "{ME}:Halved", kinds: [local_model]}}', "its clip lets 1 through"),
    ],
)
def test_a_protection_that_lists_too_little_is_found(settings: str, said: str) -> None:
    here = ran(settings)
    assert any(said in issue.what for issue in here.verified(here.releases).issues)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (f'{{name: "{ME}:Fifth", steps: 10, sample_rate: 0.2}}', "drawn 10 times by the line in the ledger"),
        (f'{{name: "{ME}:Rare", steps: 2, sample_rate: 0.2}}', "which says that it is drawn at rate 0.001"),
        (f'{{name: "{ME}:Sampled", kinds: [local_model]}}', "which says unit record; it is client"),
    ],
)
def test_a_line_that_says_another_noise_than_was_drawn_is_refuted_by_a_play(settings: str, said: str) -> None:
    here = ran(settings)
    checks = [c for c in audit_bounds(here.case, here.releases) if c.unit == "record"]
    assert {c.status for c in checks} == {"refuted"}
    assert all(said in c.reason for c in checks), checks


# What nobody can make once more -----------------------------------------------------------------


def test_a_ledger_that_nobody_can_verify_declares_its_bounds() -> None:
    here = ran(LOCAL)
    costs = budgets(here.releases, [PluginSpec(name="exact")], 1e-5)
    passed = [NoiseResult(kind, "law", True, "") for kind in costs[0].kinds]
    declared = combine_status(costs, DECLARED, (), passed)
    verified = combine_status(costs, here.verified(here.releases), (), passed)
    assert {b.status for b in declared} == {"declared"} and {b.status for b in verified} == {"verified"}
    assert [b.epsilon for b in declared] == [b.epsilon for b in verified]
    result: AuditResult = sample().model_copy(update={"bounds": declared, "figures": []})
    text = str(Section().build(result))
    assert "declared by the ledger: " in text and "at most" not in text
    assert "at most" in str(Section().build(sample().model_copy(update={"bounds": verified})))
