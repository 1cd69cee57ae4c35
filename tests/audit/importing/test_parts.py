"""A part of a network: adapters on a base that nobody sends; and kinds that a federation names itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedaudit.attacks.summaries.hidden_images import HiddenImages
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.layout import Layout
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.importing.survey import Survey
from fedaudit.audit.observer.models import Runner
from fedaudit.audit.observer.reach import ObservedTraffic
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.artifact import Channel
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.kinds import Kind, Tells
from fedaudit.fl.model import adapt
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.shared_weights import find_shared_names
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.result import Outcome
from tests.audit.importing.inboxes import INBOXES
from tests.audit.importing.odd_inboxes import write_base
from tests.audit.importing.theirs import check

HERE = Path(__file__).parent


def take(
    folder: Path, name: str, attacks: list[str], base: bool = False, **stated: Any
) -> tuple[RunDir, Config, Any]:
    one = INBOXES[name]
    one.write(folder)
    (folder / "subject.yaml").write_text(write_first_subject(folder / "inbox", folder / "truth"))
    subject = read_yaml(folder / "subject.yaml") | {"model": one.model or None} | dict(one.states) | stated
    settings = {"subject": subject, "attacks": attacks, "report": ["json"], "workers": 0}
    config, run = validate(Config, settings, "test"), RunDir.create(folder / "run")
    if base:
        write_base(folder / "base.safetensors")
    given = folder / "base.safetensors" if base else None
    sources = ImportSources(inbox=folder / "inbox", subject=HERE / "x", truth=folder / "truth", base=given)
    return run, config, bring(run.path, config.set_origin(Origin(trust=True)), sources, lambda *_: None)


def attack(run: RunDir, config: Config) -> dict[str, Any]:
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    return {f.id: f for f in read_result(run.path).findings}


ADAPTERS = "adapters, their base only named"
OF_NETWORKS = ["loss_threshold", "played_message", "label_counts_from_update"]


def test_adapters_are_audited_on_the_base_that_was_given(tmp_path: Path) -> None:
    run, config, found = take(tmp_path, ADAPTERS, OF_NETWORKS, base=True, trained=["*lora_*"])
    assert check(found, "base").status == "holds"
    assert "of which the weights were given" in check(found, "base").text
    fit = check(found, "fit")
    assert fit.status == "holds" and "95% of 220 own examples" in fit.text.replace("\u00a0", "")
    assert "another normalisation" in fit.text
    names = {n for a in read(run.artifacts) if a.kind == Kind.LOCAL_MODEL for n in a.payload}
    assert "hidden.lora_A.default.weight" in names and len(names) == 4
    findings = attack(run, config)
    assert [f.id for f in findings.values() if f.outcome is Outcome.FAILED] == []
    assert findings["loss_threshold"].outcome is not Outcome.NOT_APPLICABLE


def test_of_a_base_that_is_only_named_nothing_is_asked_that_needs_the_network(tmp_path: Path) -> None:
    run, config, found = take(tmp_path, ADAPTERS, OF_NETWORKS)
    assert check(found, "fit").status == "open" and "no weights were given" in check(found, "base").text
    findings = attack(run, config)
    assert "gave its base's weights" in findings["loss_threshold"].reason


@pytest.mark.nightly
def test_a_base_that_does_not_fit_and_an_array_that_was_trained_as_well(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the subject names none"):
        take(tmp_path / "a", "changes", [], base=True)
    _, _, found = take(tmp_path / "b", ADAPTERS, [], base=True, trained=["hidden.lora_*"])
    assert check(found, "base").status == "contradicted" and "'head.lora_" in check(found, "base").text
    with pytest.raises(UserError, match="with a base, state none"):
        take(tmp_path / "c", ADAPTERS, [], method={"name": "fedavg"})


def test_an_open_kind_says_whose_data_it_is_of_and_what_its_operator_calls_it() -> None:
    kind = Kind("class:pixel_statistics")
    assert kind.open and kind.tells is Tells.CLASS and kind == "class:pixel_statistics"
    assert kind.words == "what its operator calls pixel statistics" and not Kind.LOCAL_MODEL.open
    for wrong in ("weights", "hospital:x", "client:", "client:a b", "client:a/b", "client:ё"):
        with pytest.raises(ValueError, match="is not a valid Kind"):
            Kind(wrong)


@pytest.mark.nightly
def test_examples_that_stand_in_an_open_kind_are_found(tmp_path: Path) -> None:
    assert not ObservedTraffic(kinds={Channel.UPLINK: (Kind("client:buffer"),)}).missing(HiddenImages.card, "it")
    run, config, _ = take(tmp_path, "examples under a name of their own", ["hidden_images"])
    found = attack(run, config)["hidden_images"]
    assert found.is_demonstrated
    questions = {kind for q in read_result(run.path).questions for kind in q.kinds}
    assert "example:buffer" in questions


MEANS = {"class:class_means": ["mean", "of", "n"]}


def test_means_of_classes_are_prototypes_once_their_shape_and_role_are_stated(tmp_path: Path) -> None:
    attacks = ["count_recovery", "prototype_collusion", "hidden_images"]
    name = "prototypes under a name of their own"
    run, config, found = take(tmp_path / "own", name, attacks, prototypes=MEANS)
    other, same, _ = take(tmp_path / "ours", "page: prototypes alone", attacks)
    assert "class:class_means read as local_prototypes" in " ".join(found.changes)
    sent, known = ([(a.kind, a.sender, a.payload) for a in read(folder.artifacts)] for folder in (run, other))
    assert len(sent) == len(known) == 10
    for (kind, who, a), (kind_too, who_too, b) in zip(sent, known, strict=True):
        assert (kind, who) == (kind_too, who_too) and a.keys() == b.keys()
        assert all(np.array_equal(a[n], b[n]) for n in a)
    theirs, ours = attack(run, config), attack(other, same)
    for id in attacks:
        assert theirs[id].outcome is ours[id].outcome and theirs[id].evidence == ours[id].evidence
    read_off = [e for e in theirs["count_recovery"].evidence if e.measure == "count_exact_match"]
    assert max(e.value for e in read_off if e.control == "none") == 1
    asked = [{q.id: q.kinds for q in read_result(folder.path).questions} for folder in (run, other)]
    assert asked[0] == asked[1]


def test_what_nobody_states_stays_a_kind_of_its_own_and_init_proposes_it(tmp_path: Path) -> None:
    name = "prototypes under a name of their own"
    run, _, _ = take(tmp_path / "a", name, [], prototypes={})
    assert {a.kind for a in read(run.artifacts)} == {Kind("class:class_means")}
    text = write_first_subject(tmp_path / "a" / "inbox", tmp_path / "a" / "truth")
    assert "prototypes:  # guessed" not in text  # two arrays of whole numbers: which has labels is not guessed
    inbox = Inbox(tmp_path / "plain")
    rows = {"label": np.arange(2), "row": np.ones((2, 4), np.float32)}
    inbox.message(0, "uplink", inbox.client("a"), ["server"], {"class:prototypes": rows})
    shown = write_first_subject(tmp_path / "plain")
    assert 'class:prototypes: ["row", "label"]' in shown


@pytest.mark.parametrize(
    ("stated", "phrase"),
    [
        ({"class:class_means": ["means"]}, "'means' of class:class_means is not there"),
        ({"class:class_means": ["of"]}, "states an array of 2 axes"),
        ({"client:class_means": ["mean"]}, "prototypes"),
    ],
)
def test_prototypes_that_are_none_are_refused(stated: Any, phrase: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=phrase):
        take(tmp_path, "prototypes under a name of their own", [], prototypes=stated)


class Named(nn.Module):
    """Submodules called as parts of our networks are."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.features(x))
        return out


def test_a_network_whose_parts_are_called_features_and_head_is_called_with_other_weights() -> None:
    none = Arrays(x=np.zeros((0, 1, 8, 8), np.float32), y=np.zeros(0, np.int64))
    data = Data(train=none, test=none, classes=("a", "b"), mean=(0.0,), std=(1.0,), about="")
    runner = Runner(adapt(Named()), data)
    zero = {n: torch.zeros_like(p) for n, p in runner.named_parameters()}
    assert len(zero) == 6 and not functional_call(runner, zero, (torch.ones(2, 1, 8, 8),)).any()


def test_a_recorder_stores_types_that_an_import_takes(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    odd = {"pairs": x + 1j * x, "long": x.astype(np.longdouble), "turned": x.T[::2], "swapped": x.astype(">f4")}
    inbox = Inbox(tmp_path)
    inbox.message(
        0, "uplink", inbox.client("a"), ["server"], {"client:odd": odd | {"none": x[:0], "one": x[0, 0]}}
    )
    assert not inbox.message(
        0, "uplink", inbox.client("b"), ["server"], {"client:odd": {"things": np.array([object()])}}
    )
    (found,) = [a for a in read(tmp_path) if a.kind.open]
    assert Survey.from_inbox(tmp_path).errors and found.payload["pairs"].shape == (2, 3, 2)
    assert found.payload["long"].dtype == np.float64 and np.array_equal(found.payload["turned"], x.T[::2])
    assert np.array_equal(found.payload["swapped"], x) and found.payload["one"].shape == ()


class Tied(nn.Module):
    """The last layer is the first one's matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        self.head.weight = self.embed.weight


def test_of_an_array_with_two_names_one_may_be_sent() -> None:
    tied = find_shared_names(Tied()).others
    assert tied == {"head.weight": "embed.weight"}
    whole = {f"local_model/{name}": value.numpy() for name, value in Tied().state_dict().items()}
    layout = Layout({name: tuple(v.shape) for name, v in Tied().state_dict().items()}, tied=tied)
    for name in ("local_model/head.weight", "local_model/embed.weight"):
        settled = layout.settle("m", {k: v for k, v in whole.items() if k != name})
        assert settled.keys() == whole.keys() and np.array_equal(settled[name], whole[name])
    assert layout.settle("m", whole) is whole and layout.describe()[0].startswith("2 messages: an array")
