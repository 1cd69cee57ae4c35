"""The pages about fl say what is so: their code runs, and every kind of artifact is described."""

import ast
import inspect
import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedaudit.fl.artifact import SERVER, Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Method, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from tests.fl.worlds import run, same

ROOT = Path(__file__).parents[2]
FORMAT = (ROOT / "docs" / "artifact-format.md").read_text()
README = (ROOT / "fl" / "README.md").read_text()
COMMON = {"rounds": 2, "local_epochs": 2, "batch_size": 8, "lr": 0.05}
_fresh = itertools.count()


def code(page: str) -> str:
    """The page's only block of Python."""
    [block] = re.findall(r"```python\n(.*?)```", page, re.S)
    return str(block)


# fl/README.md -------------------------------------------------------------------------------


def test_the_page_lists_every_hook_of_a_method_with_its_signature() -> None:
    tables = README.partition("The hooks of a method")[2].split("| when it is called |")[1:]
    listed = [hook for table in tables for hook in re.findall(r"`(\w+\([^`]*\)[^`]*)`", table)]
    functions = [f for f in _tree(RoundMethod).body if isinstance(f, ast.FunctionDef)]
    hooks = [_signature(f) for f in functions if not f.name.startswith("_")]
    assert sorted(hooks) == sorted(listed)


def test_the_author_of_a_method_meets_no_more_names_than_stand_on_the_page() -> None:
    assert len([name for name in dir(RoundMethod) if not name.startswith("_")]) <= 20  # the number only falls


def _tree(cls: type) -> ast.ClassDef:
    tree = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(tree, ast.ClassDef)
    return tree


def _signature(hook: ast.FunctionDef) -> str:
    """As the page writes it: "is_trainable(name) -> bool"."""
    for argument in (*hook.args.args, hook.args.vararg):
        if argument is not None:
            argument.annotation = None
    assert hook.returns is not None
    returns = ast.unparse(hook.returns)
    names = ast.unparse(hook.args).removeprefix("self").removeprefix(", ")
    return f"{hook.name}({names})" + ("" if returns == "None" else f" -> {returns}")


# docs/artifact-format.md --------------------------------------------------------------------


def test_the_writer_on_the_page_writes_what_the_recorder_reads(tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text(code(FORMAT))
    # -I: nothing of ours can be imported
    subprocess.run([sys.executable, "-I", "writer.py"], cwd=tmp_path, check=True, timeout=60)
    found = read(tmp_path / "artifacts")
    assert [(a.kind, a.channel, a.sender, a.seen_by) for a in found] == [
        (Kind.GLOBAL_MODEL, Channel.DOWNLINK, SERVER, ("client",)),
        (Kind.LOCAL_MODEL, Channel.UPLINK, Party.client(0), ("server",)),
        (Kind.NUM_EXAMPLES, Channel.UPLINK, Party.client(0), ("server",)),
        (Kind.LOCAL_MODEL, Channel.UPLINK, Party.client(1), ("server",)),
        (Kind.NUM_EXAMPLES, Channel.UPLINK, Party.client(1), ("server",)),
    ]
    assert {k: v.shape for k, v in found[0].payload.items()} == {"head.weight": (10, 64), "head.bias": (10,)}
    assert np.array_equal(found[3].payload["head.bias"], np.full(10, 0.2, np.float32))
    assert found[4].payload["count"] == 45


def test_the_writer_is_short_and_needs_only_safetensors_and_numpy() -> None:
    tree = ast.parse(code(FORMAT))
    [writer] = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    imported = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    lines = sum((n.end_lineno or 0) - n.lineno + 1 for n in [writer, *imported])
    assert lines <= 15
    names = {a.name for n in imported if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in imported if isinstance(n, ast.ImportFrom)}
    assert names <= {"safetensors.numpy", "numpy"} | sys.stdlib_module_names


def test_the_writer_keeps_arrays_of_any_layout(tmp_path: Path) -> None:
    namespace: dict[str, object] = {}
    exec(code(FORMAT).partition("\nmodel =")[0], namespace)
    turned, scalar = np.arange(12.0).reshape(3, 4)[:, ::2].T, np.float64(-0.5)
    namespace["write"](
        tmp_path,
        "x",
        3,
        "uplink",
        "client/1",
        [],  # type: ignore[operator]
        {"gradient": {"turned": turned, "scalar": scalar}},
    )
    [artifact] = read(tmp_path)
    assert np.array_equal(artifact.payload["turned"], turned) and artifact.seen_by == ()
    assert artifact.payload["scalar"].shape == () and artifact.payload["scalar"] == -0.5


def test_every_channel_and_field_is_on_the_page() -> None:
    assert [c.value for c in Channel if f"`{c}`" not in FORMAT] == []
    for field in ("message", "round", "channel", "sender", "seen_by", "kinds", "sha256"):
        assert f"| `{field}` |" in FORMAT


# fl/README.md -------------------------------------------------------------------------------


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[RoundMethod]:
    """The page's method, loaded from a file beside a user's config."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"page_{next(_fresh)}"
    (tmp_path / f"{name}.py").write_text(code(README))
    return plugin.load("fedaudit.fl.methods", f"{name}:FedProxL1", Method)  # type: ignore[return-value]


def configured(cls: type[RoundMethod], **settings: object) -> RoundMethod:
    method: RoundMethod = plugin.configure(cls, COMMON | settings, "method")
    return method


def test_the_method_on_the_page_runs_and_is_fedavg_at_strength_0(example: type[RoundMethod]) -> None:
    plain = run(configured(FedAvg))
    assert same(run(configured(example, strength=0)), plain)
    assert not same(run(configured(example, strength="1e-1")), plain)


def test_the_method_on_the_page_runs_in_processes_and_stacked(example: type[RoundMethod]) -> None:
    alone = run(configured(example))
    assert same(alone, run(configured(example), workers=2))
    together = run(configured(example), workers="batched")
    assert all((alone[k] - together[k]).abs().max() < 1e-4 for k in alone.model)


def test_the_method_of_the_page_on_plugins_runs_and_is_fedavg_at_factor_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"page_{next(_fresh)}"
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-plugin.md").read_text(), re.S)
    (tmp_path / f"{name}.py").write_text(next(b for b in blocks if "class Shrunk" in b))
    shrunk: type[RoundMethod] = plugin.load("fedaudit.fl.methods", f"{name}:Shrunk", Method)  # type: ignore[assignment]
    plain = run(configured(FedAvg))
    assert same(run(configured(shrunk, factor=1)), plain)
    assert not same(run(configured(shrunk, factor=0.95)), plain)


def test_the_method_on_the_page_refuses_a_strength_below_0(example: type[RoundMethod]) -> None:
    with pytest.raises(UserError, match=r"method\.strength must be >= 0, got -1"):
        configured(example, strength=-1)


def test_files_named_on_the_page_exist_and_it_fits_a_screen() -> None:
    named = set(re.findall(r"\b((?:\w+/)?\w+\.py)\b", README)) - {
        "methods/fedprox_l1.py",
        "methods/test_fedprox_l1.py",
    }
    assert named and not [n for n in named if not (ROOT / "fl" / n).exists()]
    rooms = set(re.findall(r"^    (\w+/) |   (\w+/)  ", README, re.M))
    assert len(rooms) >= 9 and not [r for pair in rooms for r in pair if not (ROOT / "fl" / r).is_dir()]
    assert len(README.partition("The hooks of a method")[0].splitlines()) <= 70


def test_every_page_and_image_that_is_named_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    sources = [p for top in ("fl", "attacks", "audit", "reports") for p in (ROOT / top).rglob("*.py")]
    named = {
        name
        for path in (*pages, *sources)
        for name in re.findall(r"\bdocs/[\w-]+\.(?:md|png)", path.read_text(encoding="utf-8"))
    }
    assert "docs/artifact-format.md" in named
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]
    linked = {
        (path.parent / target).resolve()
        for path in pages
        for target in re.findall(r"\]\(((?!http)[^)#\s]+)\)", path.read_text(encoding="utf-8"))
    }
    made = ROOT / "docs" / "reference"  # of the site alone, where tests/test_docs.py follows each link
    assert linked and not [str(p) for p in sorted(linked) if not p.exists() and p.parent != made]
