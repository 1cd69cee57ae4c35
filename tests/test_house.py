"""The house: folders depend on each other one way at every depth; tests stand where the code does."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("fl", "attacks", "audit", "reports")
# Modules on top of a package, beside its folders
MOST_ON_TOP = {"audit": 0, "attacks": 5, "fl": 6}
# Folders of tests that stand for no folder of the code
OWN_TESTS = {
    "python",
    "contracts",
    "fuzz",
    "golden",
    "leaks",
    "mutants",
    "worlds",
    "fl/equivalence",
    "audit/wrong_protections",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("fedaudit", *(parts[:-1] if parts[-1] == "__init__" else parts)))


FILES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
MODULES = {module_name(p): p for p in FILES}
# Tables of what is loaded later, by name: plugins with their contracts, and phases
TABLES = {"fedaudit.audit.settings.catalog", "fedaudit.audit.evidence.phase"}


class Outline(NamedTuple):
    """What a file imports and which functions it has, read once; its tree, which is large, is not kept."""

    imports: list[ast.stmt]  # at any depth
    on_top: list[ast.stmt]  # of these, those that are carried out when the file is imported
    functions: list[tuple[str, ast.arguments]]


@cache
def read_outline(path: Path) -> Outline:
    tree = ast.parse(path.read_text())
    found = Outline([], [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], [])
    todo: list[ast.AST] = [tree]
    while todo:  # statements alone: what they are made of is nine tenths of a tree
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append((node.name, node.args))
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, part, ())
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Modules of ours that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in read_outline(MODULES[module]).imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide where a name comes from"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {n if n in MODULES else str(node.module) for n in names}
    return frozenset(n for n in found if n.split(".")[0] in ("fedaudit", "benchmarks", "tests"))


@cache
def named(module: str) -> frozenset[str]:
    """Modules of ours that a file names in a text, to have them imported: "fedaudit.audit.case.base:load"."""
    if module in TABLES:
        return frozenset()
    texts = (n.value for n in ast.walk(ast.parse(MODULES[module].read_text())) if isinstance(n, ast.Constant))
    return frozenset(t for text in texts if isinstance(text, str) and (t := text.partition(":")[0]) in MODULES)


def arrows(files: Mapping[str, Iterable[str]]) -> dict[str, set[tuple[str, str]]]:
    """Folder -> which of its files and subfolders imports which; a subfolder counts as one."""
    found: dict[str, set[tuple[str, str]]] = {}
    for module, targets in files.items():
        for target in targets:
            if target not in files or target == module:
                continue
            ours, theirs = module.split("."), target.split(".")
            depth = 0
            while ours[depth] == theirs[depth]:
                depth += 1
            found.setdefault(".".join(ours[:depth]), set()).add((ours[depth], theirs[depth]))
    return found


def circles(arrows: Iterable[tuple[str, str]]) -> set[str]:
    """Every name that reaches itself."""
    reach = set(arrows)
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    return {a for a, b in reach if a == b}


def siblings() -> dict[str, set[tuple[str, str]]]:
    return arrows({m: imports(m) | named(m) for m, path in MODULES.items() if path.name != "__init__.py"})


def test_no_folder_and_what_lies_beside_it_import_each_other_at_any_depth() -> None:
    found = siblings()
    assert ("phases", "case") in found["fedaudit.audit"]  # there is something to look at
    assert {parent: names for parent, pairs in found.items() if (names := circles(pairs))} == {}


def test_the_four_packages_import_one_way() -> None:
    assert circles(siblings()["fedaudit"]) == set()


def test_a_module_that_is_named_in_a_text_counts_as_imported() -> None:
    assert named("fedaudit.audit.experiments.cells") == {
        "fedaudit.audit.experiments.cells",
        "fedaudit.audit.phases.attack",
    }


def test_a_circle_of_folders_is_seen() -> None:
    one = {
        "audit.a.x": ["audit.b.y"],
        "audit.b.y": [],
        "audit.b.z": ["audit.c.d.w"],
        "audit.c.d.w": ["audit.a.x"],
    }
    assert arrows(one) == {"audit": {("a", "b"), ("b", "c"), ("c", "a")}}
    assert circles(arrows(one)["audit"]) == {"a", "b", "c"}
    up = {"audit.a.x": ["audit.a.deep.y"], "audit.a.deep.y": ["audit.a.z"], "audit.a.z": []}
    assert arrows(up) == {"audit.a": {("x", "deep"), ("deep", "z")}}  # no circle: x is not z
    up["audit.a.deep.y"] = ["audit.a.x"]
    assert circles(arrows(up)["audit.a"]) == {"x", "deep"}
    assert circles({("a", "b"), ("a", "c"), ("b", "c")}) == set()


@pytest.mark.parametrize("package", MOST_ON_TOP)
def test_few_modules_lie_on_top(package: str) -> None:
    on_top = [p.name for p in (ROOT / package).glob("*.py") if p.name != "__init__.py"]
    assert len(on_top) <= MOST_ON_TOP[package], on_top


def test_every_folder_of_tests_stands_for_a_folder_of_the_code() -> None:
    tests = {p.parent.relative_to(ROOT / "tests").as_posix() for p in (ROOT / "tests").rglob("test_*.py")}
    stray = {t for t in tests if t != "." and t not in OWN_TESTS and not (ROOT / t / "__init__.py").is_file()}
    assert stray == set()


@pytest.mark.parametrize("name", PACKAGES)
def test_a_folder_of_ours_cannot_be_imported_by_its_bare_name(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"import fedaudit.{name} instead of {name}"):
        importlib.import_module(name)


def test_importing_fedaudit_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pydantic'}"
    code = f"import sys, fedaudit; print(fedaudit.__version__, *sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.stdout), done.stdout


def test_what_takes_long_to_import_is_imported_in_the_function_that_uses_it() -> None:
    """`import scipy` is light: its parts are loaded when they are used."""
    heavy = (
        "matplotlib",
        "torchvision",
        "fedaudit.fl.runtime.vision",
        "sklearn",
        "dp_accounting",
        "opacus",
        "typst",
    )
    parts = ("stats", "optimize", "ndimage", "signal", "spatial", "cluster", "special")
    at_once = {
        (module, name)
        for module, path in MODULES.items()
        for node in read_outline(path).on_top
        for name in name_imported(node)
        if f"{name}.".startswith(tuple(f"{h}." for h in heavy + tuple(f"scipy.{p}" for p in parts)))
    }
    assert at_once == set()


def name_imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{a.name}" for a in node.names] if isinstance(node, ast.ImportFrom) else []


def test_no_module_of_the_product_imports_a_benchmark_or_a_test() -> None:
    ours = {m: {t for t in imports(m) if not t.startswith("fedaudit.")} for m in MODULES}
    assert {m: targets for m, targets in ours.items() if targets} == {}


# What holds everything that is known of a run; most functions take the parts that they read
WHOLES = {"Config", "SimulatedConfig", "RecordedConfig", "RunDir", "Case", "SimulatedCase", "RecordedCase"}
MOST_WHOLE = 41


def takes_a_whole(arguments: ast.arguments) -> bool:
    taken = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = [ast.walk(a.annotation) for a in taken if a.annotation is not None]
    return any(isinstance(n, ast.Name) and n.id in WHOLES for walk in names for n in walk)


def test_few_functions_take_a_whole_case_config_or_run_folder() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        if "models" not in path.parts  # whose Config is the network's own
        for name, arguments in read_outline(path).functions
        if takes_a_whole(arguments)
    ]
    assert len(found) <= MOST_WHOLE, "\n".join(found)
