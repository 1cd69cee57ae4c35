"""How much there is of everything a reader has to learn: `python -m tests.count_house`.

A function is used once where its name is read in one place of the product, whoever else reads it; a file that
starts with `_` is imported from another room where a file outside its folder imports it. A record model is one
under `Record`: what audit.json and evidence hold. A group of settings is one under `Group`: keys of a config, a
policy, a file of claims or of a reviewer.
"""

import ast
import re
import typing
from collections import Counter

from pydantic import BaseModel
from typer.testing import CliRunner

from tests.test_house import FILES, MODULES, ROOT, circles, imports, siblings


def count_lines(*folders: str) -> int:
    return sum(len(p.read_text().splitlines()) for f in folders for p in (ROOT / f).rglob("*.py"))


def count_files(room: str) -> int:
    return len([p for p in (ROOT / room).glob("*.py") if p.name != "__init__.py"])


def count_public(cls: type) -> int:
    return len([name for name in dir(cls) if not name.startswith("_")])


def list_private_imports() -> list[tuple[str, str]]:
    """(importing module, `_file` of another room)."""
    return sorted(
        (module, target)
        for module in MODULES
        for target in imports(module)
        if target in MODULES and MODULES[target].name.startswith("_") and MODULES[target].stem != "__init__"
        if MODULES[target].parent != MODULES[module].parent
    )


def read_names(tree: ast.AST) -> Counter[str]:
    """How often a tree reads each name, imports aside."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
    return found


def list_used_once() -> list[tuple[str, str]]:
    """(file, function) of module functions that one place of the product reads."""
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    read: Counter[str] = Counter()
    for tree in trees.values():
        read += read_names(tree)
    return [
        (path.relative_to(ROOT).as_posix(), node.name)
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and read[node.name] == 1
    ]


def list_under(base: str) -> set[tuple[str, str]]:
    """(file, class) of the product, of those that derive from the class of this name."""
    classes = [
        (path.relative_to(ROOT).as_posix(), node.name, {ast.unparse(b) for b in node.bases})
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    names = {base}
    while more := {name for _, name, bases in classes if bases & names} - names:
        names |= more
    return {(path, name) for path, name, bases in classes if bases & names}


def list_models(kind: object) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [m for part in typing.get_args(kind) for m in list_models(part)]


def list_frame_keys() -> set[str]:
    """Keys of a config that are no plugin's."""
    from fedaudit.audit.settings.config import RecordedConfig, SimulatedConfig

    def walk(group: type[BaseModel], before: str) -> set[str]:
        found = set()
        for name, field in group.model_fields.items():
            found.add(before + name)
            for inner in list_models(field.annotation):
                if inner.__name__ not in ("PluginSpec", "AttackSpec"):
                    found |= walk(inner, f"{before}{name}.")
        return found

    return walk(SimulatedConfig, "") | walk(RecordedConfig, "")


def list_options() -> dict[str, set[str]]:
    """The options of each command, by its help."""
    from fedaudit.audit.cli.main import app

    def walk(words: tuple[str, ...]) -> dict[str, set[str]]:
        text = CliRunner().invoke(app, [*words, "--help"]).stdout
        inner = re.search(r"Commands:\n(.*)", text, re.DOTALL)
        if inner is None:
            own = text.split("Options:")[-1]
            return {" ".join(words): set(re.findall(r"(?m)^\s+(?:-\w, )?(--[a-z-]+)", own)) - {"--help"}}
        found = {}
        more = re.search(r"Further commands: ([^;]+);", inner[1])
        names = re.findall(r"(?m)^  (\w+) {2,}", inner[1]) + (re.findall(r"\w+", more[1]) if more else [])
        for name in names:
            found |= walk((*words, name))
        return found

    return walk(())


def count_house() -> dict[str, object]:
    from fedaudit.audit.case.recorded import RecordedCase
    from fedaudit.audit.case.simulated import SimulatedCase
    from fedaudit.fl.method import RoundMethod

    found, score = list_options(), imports("fedaudit.audit.phases.score")
    return {
        "product lines": f"{count_lines('fl', 'attacks', 'audit', 'reports'):,}",
        "tests lines": f"{count_lines('tests'):,}",
        "verdict files": count_files("audit/verdict"),
        "phases files": count_files("audit/phases"),
        "imports of score.py": len(score),
        "circles": sum(len(circles(pairs)) for pairs in siblings().values()),
        "dir(RoundMethod)": count_public(RoundMethod),
        "dir(SimulatedCase)": count_public(SimulatedCase),
        "dir(RecordedCase)": count_public(RecordedCase),
        "`_files` imported from other rooms": len(list_private_imports()),
        "record models": len(list_under("Record")),
        "frame keys": len(list_frame_keys()),
        "groups of settings": len(list_under("Group")),
        "options": sum(map(len, found.values())),
        "commands": len(found),
        "module functions used once": len(list_used_once()),
    }


if __name__ == "__main__":
    for row, number in count_house().items():
        print(f"{row:40} {number}")
