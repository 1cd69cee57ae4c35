"""Which file imports which: the direction of the folders, no cycles, empty __init__ files, short files."""

import ast
from pathlib import Path

import pytest

from tests.test_house import FILES, MODULES, PACKAGES, imports

# What a folder may import of ours, itself aside. attacks reads records, never the simulator.
ALLOWED = {
    "fl": (),
    "reports": ("attacks.evidence", "attacks.measure", "fl.threat"),  # the records it prints
    "attacks": (
        "fl.adversary",
        "fl.artifact",
        "fl.kinds",
        "fl.threat",
        "fl.ranges",
        "fl.ledger",
        "fl.errors",
        "fl.plugin",
        "fl.streams",
    ),
    "audit": ("fl", "attacks", "reports"),
}


def test_there_is_something_to_read() -> None:
    assert {"fl.wire", "fl.methods.fedavg", "attacks.attack", "reports.result"} <= set(MODULES)
    assert "fl.recorder" in imports("fl.wire") and "fl.artifact" in imports("attacks.attack")


@pytest.mark.parametrize("folder", PACKAGES)
def test_imports_go_in_one_direction(folder: str) -> None:
    allowed = (folder, *ALLOWED[folder])
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if module.split(".")[0] == folder
        for target in imports(module)
        if not any(target == a or target.startswith(f"{a}.") for a in allowed)
    ]
    assert not wrong


def test_every_import_of_ours_exists() -> None:
    missing = {t for m in MODULES for t in imports(m) if t not in MODULES}
    assert not missing


def cycle() -> list[str]:
    """The first cycle of imports, or nothing. Depth first; grey modules are on the path."""
    state: dict[str, str] = {}
    path: list[str] = []

    def visit(module: str) -> list[str]:
        state[module] = "grey"
        path.append(module)
        for target in sorted(imports(module) & MODULES.keys()):
            if state.get(target) == "grey":
                return [*path[path.index(target) :], target]
            if target not in state and (found := visit(target)):
                return found
        path.pop()
        state[module] = "black"
        return []

    for module in MODULES:
        if module not in state and (found := visit(module)):
            return found
    return []


def test_no_file_imports_itself_in_a_circle() -> None:
    assert cycle() == []


def test_every_init_is_empty_and_there() -> None:
    for folder in {p.parent for p in FILES}:
        assert (folder / "__init__.py").read_bytes() == b"", folder


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {m: len(p.read_text().splitlines()) for m, p in MODULES.items()}
    assert {m: n for m, n in lengths.items() if n > 400} == {}


def test_no_module_stands_beside_a_folder_of_its_name() -> None:
    # fl/availability.py beside fl/availability/ would be hidden by the folder
    assert not [p for p in FILES if p.with_suffix("").is_dir()]


def test_every_file_says_what_it_is() -> None:
    assert not [m for m, p in MODULES.items() if p.read_bytes() and not _docstring(p)]


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text()))
