"""Plugins: found by file name or by dotted path, checked against their Config, errors with hints."""

import dataclasses
import itertools
import os
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from fedaudit.fl.data.participation import Availability
from fedaudit.fl.method import Method
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.settings import settings

_fresh = itertools.count()
Write = Callable[..., str]


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """write("class ...") -> the name of a module of the user's own, on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        name = f"users_own_{next(_fresh)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """package(one="...") -> the name of a package with a file one.py."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**files: str) -> str:
        folder = tmp_path / f"plugins_{next(_fresh)}"
        folder.mkdir()
        for name, text in {"__init__": "", **files}.items():
            (folder / f"{name}.py").write_text(text)
        return folder.name

    return write


BASE = "from fedaudit.fl.runtime.plugin import Plugin\n"


# Finding ------------------------------------------------------------------------------------


def test_a_file_is_a_plugin() -> None:
    assert plugin.load("fedaudit.fl.methods", "fedavg", Method) is FedAvg


def test_a_near_miss_names_the_nearest() -> None:
    with pytest.raises(UserError) as error:
        plugin.load("fedaudit.fl.methods", "fedagv", Method)
    assert str(error.value) == "no 'fedagv' in fl/methods/\n  hint: did you mean 'fedavg'?"


def test_a_far_miss_lists_what_there_is_or_names_the_command_that_does() -> None:
    with pytest.raises(UserError) as error:
        plugin.load("fedaudit.fl.availability", "zzzzzz", Availability)
    known = ", ".join(plugin.names("fedaudit.fl.availability"))
    assert error.value.hint == f"known: {known}" and "uniform" in known
    with pytest.raises(UserError) as error:
        plugin.load("fedaudit.fl.methods", "zzzzzz", Method)
    assert error.value.hint == "`fedaudit tools list methods` lists what there is"


def test_several_folders_are_searched_and_named() -> None:
    both = ("fedaudit.fl.availability", "fedaudit.fl.methods")
    assert plugin.load(both, "fedavg", Method) is FedAvg
    with pytest.raises(UserError, match=r"no 'fulll' in fl/availability/ or fl/methods/"):
        plugin.load(both, "fulll", Availability)


def test_files_with_an_underscore_are_no_plugins(package: Write) -> None:
    assert plugin.names(package(_helper="", one="", two="")) == ["one", "two"]


def test_a_dotted_path_is_a_users_own_file(user_file: Write) -> None:
    name = user_file("from fedaudit.fl.methods.fedavg import FedAvg\nclass Mine(FedAvg): ...\n")
    found = plugin.load("fedaudit.fl.methods", f"{name}:Mine", Method)
    assert (found.__name__, found.__bases__) == ("Mine", (FedAvg,))


def test_a_dotted_path_to_nothing_says_what_to_write(user_file: Write) -> None:
    name = user_file("x = 1\n")
    for path in (f"{name}:Absent", "no.such.module:Class", ":Class", f"{name}:"):
        with pytest.raises(UserError, match="cannot load") as error:
            plugin.load("fedaudit.fl.methods", path, Method)
        assert error.value.hint.startswith("write module:Class")


def test_a_dotted_path_to_another_kind_of_thing_is_refused(user_file: Write) -> None:
    name = user_file("class Mine: ...\nvalue = 3\n")
    for part in ("Mine", "value"):
        with pytest.raises(UserError, match="is not a Method") as error:
            plugin.load("fedaudit.fl.methods", f"{name}:{part}", Method)
        assert error.value.hint == "derive it from fedaudit.fl.method:Method"


def test_two_classes_are_told_apart_by_the_file_name(package: Write) -> None:
    two = BASE + "class Another(Plugin): ...\nclass MyThing(Plugin): ...\nclass _Base(Plugin): ...\n"
    assert plugin.load(package(my_thing=two), "my_thing", Plugin).__name__ == "MyThing"


def test_two_classes_of_other_names_are_refused(package: Write) -> None:
    two = package(thing=BASE + "class A(Plugin): ...\nclass B(Plugin): ...\n")
    with pytest.raises(UserError, match=r"thing must define one Plugin, found 2"):
        plugin.load(two, "thing", Plugin)


def test_a_file_without_the_class_is_refused(package: Write) -> None:
    imported = package(fedavg="from fedaudit.fl.methods.fedavg import FedAvg\nclass Other: ...\n")
    with pytest.raises(UserError, match=r"fedavg must define one Method, found 0"):
        plugin.load(imported, "fedavg", Method)  # an imported class is somebody else's plugin


def test_two_files_of_one_name_are_an_error_that_names_both(package: Write) -> None:
    one, two = package(thing=BASE, other=""), package(thing=BASE)
    for shelf in ((one, two), (two, one)):
        with pytest.raises(UserError, match=rf"'thing': {shelf[0]}/thing.py and {shelf[1]}/thing.py"):
            plugin.names(*shelf)
        with pytest.raises(UserError, match="two plugins are called"):
            plugin.load(shelf, "thing", Plugin)


# Several plugins in one file -------------------------------------------------------------------

SHARED = f"""{BASE}
PLUGINS = ("rule", "twice_rule", "small_cnn")
class Rule(Plugin): ...
class TwiceRule(Rule): ...
class SmallCNN(Plugin): ...
class Helper(Plugin): ...
"""


def test_a_file_may_list_several_plugins(package: Write) -> None:
    shelf = package(rules=SHARED, alone=BASE + "class Alone(Plugin): ...\n")
    assert plugin.names(shelf) == ["alone", "rule", "small_cnn", "twice_rule"]  # neither rules nor helper
    for name, cls in {
        "rule": "Rule",
        "twice_rule": "TwiceRule",
        "small_cnn": "SmallCNN",
        "alone": "Alone",
    }.items():
        loaded = plugin.load(shelf, name, Plugin)
        assert (loaded.__name__, plugin.name_of(loaded)) == (cls, name)
        assert plugin.shares_file(loaded) == (name != "alone")
    for name in ("rules", "helper"):
        with pytest.raises(UserError, match=f"no '{name}' in {shelf}/"):
            plugin.load(shelf, name, Plugin)


def test_names_are_read_without_importing_a_file(package: Write) -> None:
    shelf = package(rules=SHARED + "raise RuntimeError\n", broken="PLUGINS = (\n", torn="x\nPLUGINS = (\n")
    assert plugin.names(shelf) == ["broken", "rule", "small_cnn", "torn", "twice_rule"]


def test_a_changed_file_is_read_anew(package: Write, tmp_path: Path) -> None:
    shelf = package(rules=SHARED)
    assert "small_cnn" in plugin.names(shelf)
    (tmp_path / shelf / "rules.py").write_text(SHARED.replace(', "small_cnn"', ""))
    os.utime(tmp_path / shelf / "rules.py", (1, 1))
    assert plugin.names(shelf) == ["rule", "twice_rule"]


def test_a_listed_plugin_without_its_class_is_refused(package: Write) -> None:
    shelf = package(rules=BASE + 'PLUGINS = ("one", "two")\nclass One(Plugin): ...\n')
    with pytest.raises(UserError, match=r"rules must define one Plugin called 'two', found 0") as error:
        plugin.load(shelf, "two", Plugin)
    assert error.value.hint == "name the class as the plugin, in CamelCase"


def test_a_file_and_a_listed_plugin_of_one_name_are_an_error_that_names_both(package: Write) -> None:
    shelf = package(rules=SHARED, small_cnn=BASE)
    with pytest.raises(UserError, match=rf"'small_cnn': {shelf}/rules.py and {shelf}/small_cnn.py"):
        plugin.names(shelf)


# Settings -----------------------------------------------------------------------------------


class Example(Plugin):
    @settings
    class Config:
        rate: float = 0.1
        count: int = 3
        on: bool = False
        form: Literal["square", "abs"] = "square"
        sizes: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            if self.rate < 0:
                raise UserError(f"example.rate must be >= 0, got {self.rate}", hint="use 0")


def refusal(**settings: object) -> UserError:
    with pytest.raises(UserError) as error:
        plugin.configure(Example, settings, "attacks[2]")
    return error.value


def test_defaults_are_the_configs() -> None:
    assert plugin.configure(Example, {}, "x").config == Example().config == Example.Config()


def test_text_is_converted_by_declared_type() -> None:
    # YAML 1.1 reads 1e-5 as text
    settings = {"rate": "1e-5", "count": "7", "on": "true", "sizes": [1, "2"]}
    config = plugin.configure(Example, settings, "x").config
    assert config == Example.Config(rate=1e-5, count=7, on=True, sizes=(1, 2))
    assert isinstance(config.rate, float) and isinstance(config.count, int)


def test_an_unknown_key_names_the_nearest() -> None:
    error = refusal(ratee=1)
    assert str(error) == "unknown key attacks[2].ratee\n  hint: did you mean 'rate'?"
    assert refusal(zzz=1).hint == "known: rate, count, on, form, sizes"


def test_a_plugin_without_settings_says_so() -> None:
    with pytest.raises(UserError) as error:
        plugin.configure(Plugin, {"x": 1}, "here")
    assert error.value.hint == "known: no settings"


def test_a_wrong_value_is_named_with_its_place() -> None:
    assert "attacks[2].rate must be a number, got 'fast'" in str(refusal(rate="fast"))
    assert "attacks[2].form must be 'square' or 'abs', got 'cube'" in str(refusal(form="cube"))
    assert "attacks[2].sizes[1] must be a whole number, got 'b'" in str(refusal(sizes=[1, "b"]))
    assert "attacks[2].count must be a whole number, got 2.5" in str(refusal(count=2.5))
    assert refusal(sizes=[1, "b"]).key == "attacks[2].sizes[1]"


def test_yes_is_not_a_number() -> None:
    assert "attacks[2].count must be a whole number, got True" in str(refusal(count=True))
    assert "attacks[2].rate must be a number, got False" in str(refusal(rate=False))


def test_a_plugins_own_check_is_heard() -> None:
    assert str(refusal(rate=-1)) == "example.rate must be >= 0, got -1.0\n  hint: use 0"


class Inner(Plugin):
    @settings
    class Config:
        steps: int = Field(default=5, ge=1, le=9, description="of descent; the paper takes 5")
        share: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False, description="of the data")


class Bounded(Plugin):
    @settings
    class Config(Inner.Config):
        mu: float = Field(default=0.01, ge=0, description="proximal weight")
        gan: Inner.Config = field(default_factory=Inner.Config)
        limit: int | None = Field(default=None, ge=1, description="at most so many")


@pytest.mark.parametrize(
    ("settings", "expected", "hint"),
    [
        ({"mu": -1}, "method.mu must be >= 0, got -1", "mu: proximal weight"),
        ({"steps": 10}, "method.steps must be <= 9, got 10", "steps: of descent; the paper takes 5"),
        ({"share": "1"}, "method.share must be < 1, got '1'", "share: of the data"),
        ({"share": float("inf")}, "method.share must be a finite number, got inf", "share: of the data"),
        ({"gan": {"steps": 0}}, "method.gan.steps must be >= 1, got 0", "steps: of descent; the paper takes 5"),
        ({"gan": {"step": 1}}, "unknown key method.gan.step", "did you mean 'steps'?"),
        ({"gan": {"steps": True}}, "method.gan.steps must be a whole number, got True", "steps: of descent"),
        ({"gan": 3}, "method.gan must be a group of keys, got 3", ""),
        ({"limit": 0}, "method.limit must be >= 1, got 0", "limit: at most so many"),
        ({"limit": True}, "method.limit must be a whole number, got True", "limit: at most so many"),
    ],
)
def test_bounds_and_words_come_from_the_settings_own_line(
    settings: dict[str, object], expected: str, hint: str
) -> None:
    with pytest.raises(UserError) as error:
        plugin.configure(Bounded, settings, "method")
    assert error.value.args[0] == expected
    assert error.value.hint.startswith(hint) and error.value.hint
    assert error.value.key in expected


def test_settings_without_their_decorator_are_refused() -> None:
    class Plain(Plugin):
        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Config:
            steps: int = Field(default=5, ge=1)

    class Bare(Inner):
        class Config(Inner.Config):
            more: int = Field(default=5, ge=1)

    for forgetful in (Plain, Bare):
        with pytest.raises(UserError, match=r"Config has settings and no @settings above it"):
            plugin.configure(forgetful, {}, "method")


def test_a_plugin_made_in_python_refuses_what_a_config_would() -> None:
    for bad in ({"mu": -1.0}, {"gan": Inner.Config(steps=0)}, {"limit": True}):
        with pytest.raises(UserError, match=r"test_plugin\.(mu|gan\.steps|limit) must be"):
            Bounded(Bounded.Config(**bad))  # type: ignore[arg-type]
    given = Bounded.Config(mu=1, limit=3)
    assert Bounded(given).config is given


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Example().config.rate = 2.0
