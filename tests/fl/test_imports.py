"""Which file imports which: the direction of the folders, no cycles, empty __init__ files, short files."""

import pytest

from tests.test_house import FILES, MODULES, PACKAGES, imports

# What a folder may import of ours, itself aside. attacks reads records, never the simulator.
ALLOWED = {
    "fl": (),
    "reports": (
        "fedaudit.attacks.evidence",
        "fedaudit.attacks.measure",
        "fedaudit.fl.runtime.errors",
        "fedaudit.fl.threats.threat",
    ),  # the records it prints
    "attacks": (
        "fedaudit.fl.threats.adversary",
        "fedaudit.fl.artifact",
        "fedaudit.fl.kinds",
        "fedaudit.fl.data.columns",
        "fedaudit.fl.data.hf_folder",
        "fedaudit.fl.data.images",
        "fedaudit.fl.data.scale",
        "fedaudit.fl.data.tokenizer",
        "fedaudit.fl.data.tokens",
        "fedaudit.fl.tasks",
        "fedaudit.fl.threats.forging",
        "fedaudit.fl.threats.threat",
        "fedaudit.fl.training.layout",
        "fedaudit.fl.runtime.ranges",
        "fedaudit.fl.runtime.shared_weights",
        "fedaudit.fl.ledger",
        "fedaudit.fl.runtime.distributions",
        "fedaudit.fl.runtime.eager",
        "fedaudit.fl.runtime.errors",
        "fedaudit.fl.runtime.plugin",
        "fedaudit.fl.runtime.records",
        "fedaudit.fl.runtime.settings",
        "fedaudit.fl.runtime.side_by_side",
        "fedaudit.fl.runtime.streams",
        "fedaudit.fl.runtime.task",
    ),
    "audit": ("fedaudit.fl", "fedaudit.attacks", "fedaudit.reports"),
}


def test_there_is_something_to_read() -> None:
    assert {
        "fedaudit.fl.wire.wire",
        "fedaudit.fl.methods.fedavg",
        "fedaudit.attacks.attack",
        "fedaudit.reports.result",
    } <= set(MODULES)
    assert "fedaudit.fl.recording.recorder" in imports(
        "fedaudit.fl.wire.wire"
    ) and "fedaudit.fl.artifact" in imports("fedaudit.attacks.attack")


@pytest.mark.parametrize("folder", PACKAGES)
def test_imports_go_in_one_direction(folder: str) -> None:
    allowed = (f"fedaudit.{folder}", *ALLOWED[folder])
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if module.startswith(f"fedaudit.{folder}.")
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


def test_no_file_is_longer_than_450_lines() -> None:
    lengths = {m: len(p.read_text().splitlines()) for m, p in MODULES.items()}
    assert {m: n for m, n in lengths.items() if n > 450} == {}


def test_no_module_stands_beside_a_folder_of_its_name() -> None:
    # fl/availability.py beside fl/availability/ would be hidden by the folder
    assert not [p for p in FILES if p.with_suffix("").is_dir()]


def test_every_file_says_what_it_is() -> None:
    texts = {m: p.read_text() for m, p in MODULES.items()}
    assert not [m for m, text in texts.items() if text and not text.startswith('"""')]
