"""Write the pages of the site into a folder: those of docs/, the notebooks, and a reference made from the code.

python -m release.pages build/pages

The reference is made from cards, schemas, commands and names as the program has them, so it lists what there is.
Notebooks are run, so that their pages show what this version gives.
`make docs` runs this, then mkdocs, which reads the docstrings itself.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from release.notebooks import show_notebook

ROOT = Path(__file__).parents[1]
# Pages of the repository that are pages of the site too
PAGES = {
    "fl/README.md": "packages/fl.md",
    "attacks/README.md": "packages/attacks.md",
    "reports/README.md": "packages/reports.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
SHELVES = {
    "methods": "What the server and the clients of a federation do.",
    "attacks": "What an adversary tries to learn, from which messages.",
    "protections": "What changes a message before it leaves a party.",
    "aggregators": "How the server makes one model of many: the rules against malicious clients.",
    "adversaries": "What compromised clients or a malicious server do.",
    "datasets": "What a simulated federation trains on.",
    "tasks": "What is wanted of a network: a loss, and the shape of labels.",
    "partitions": "Who holds which examples.",
    "availability": "Who answers in a round.",
    "selections": "Whom the server chooses for a round, with any method of rounds.",
    "models": "Networks.",
    "devices": "How long clients take, on the simulated clock.",
    "accountants": "How privacy losses are added up.",
    "checks": "What parties stated or sent, held against what they did.",
    "sections": "Parts of a report.",
    "renderers": "Formats of a report.",
}
TITLES = {"aggregators": "Aggregation rules", "datasets": "Data sets", "renderers": "Formats"}
LINK = re.compile(r"(\]\()((?!https?:|#)[^)\s#]+)(#[^)\s]*)?\)")


def write_pages(out: Path, are_cells_run: bool = False) -> None:
    """The folder is made anew; the cells of notebooks take some minutes where they are run."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out)
    for source in (ROOT / "docs").rglob("*.md"):
        page = source.relative_to(ROOT / "docs").as_posix()
        (out / page).write_text(mend_links(source.read_text(), source, page))
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        _write(out / page, mend_links(text, ROOT / name, page))
    for notebook in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        page = f"notebooks/{notebook.stem}.md"
        _write(out / page, mend_links(show_notebook(notebook, are_cells_run), notebook, page))
    for page, text in make_reference():
        _write(out / "reference" / page, text)


def mend_links(text: str, source: Path, page: str) -> str:
    """Links between files of the repository as links between pages; a file that is no page is named."""

    def mend(link: re.Match[str]) -> str:
        target, anchor = (source.parent / link[2]).resolve(), link[3] or ""
        if not target.is_relative_to(ROOT):
            return link[0]
        name = target.relative_to(ROOT).as_posix()
        if name in PAGES:
            found = PAGES[name]
        elif name.startswith("examples/notebooks/"):
            found = f"notebooks/{target.stem}.md"
        elif name.startswith("docs/"):
            found = name.removeprefix("docs/")
        else:
            return f"] (`{name}`)"
        return f"]({'../' * page.count('/')}{found}{anchor})"

    mended = LINK.sub(mend, text)
    return re.sub(r"\[([^\]]+)\] \((`[^`]+`)\)", lambda m: m[1] if m[1] == m[2] else f"{m[1]} ({m[2]})", mended)


def make_reference() -> Iterator[tuple[str, str]]:
    """Pages of the reference, by name."""
    for shelf in SHELVES:
        yield f"{shelf}.md", show_shelf(shelf)
    yield "config.md", show_config()
    yield "commands.md", show_commands()
    yield "python.md", show_python()
    yield "kinds.md", show_kinds()
    rows = [f"* [{_title(shelf)}]({shelf}.md): {text}" for shelf, text in SHELVES.items()]
    first = [
        "* [Python](python.md): every name of `import fedaudit as fa`.",
        "* [Commands](commands.md): every command and its options.",
        "* [Config](config.md): every key of a config, with its default.",
        "* [Kinds of messages](kinds.md): what may cross the wire.",
    ]
    head = "# Reference\n\nLook up a name, an option or a default. Every page here is made from the code."
    yield "index.md", "\n".join([head, "", *first, *rows]) + "\n"


def show_shelf(shelf: str) -> str:
    """All plugins of one kind."""
    from fedaudit.audit.settings import catalog

    found = catalog.entries(shelf)
    lines = [f"# {_title(shelf)}", "", f"{SHELVES[shelf]} There are {len(found)}.", ""]
    if shelf not in ("sections", "renderers", "checks"):
        lines += [f"`fedaudit tools list {shelf}` prints the same list.", ""]
    for entry in found:
        lines += [f"## {entry.name}", "", f"**{_plain(entry.title)}**: {_plain(entry.text)}", ""]
        facts = {**entry.more, "source": entry.source}
        lines += [f"* {key}: {_plain(value)}" for key, value in facts.items() if value] + [""]
        settings = _list_settings(getattr(catalog.load(shelf, entry.name), "Config", None))
        if settings:
            lines += [*_make_table(("setting", "default", "meaning"), settings), ""]
    return "\n".join(lines)


def show_config() -> str:
    """Every key of a config, group by group."""
    from fedaudit.audit.settings.config import RecordedConfig, SimulatedConfig

    simulated, recorded = SimulatedConfig.model_json_schema(), RecordedConfig.model_json_schema()
    lines = [
        "# Config",
        "",
        "Look up a key and its default. `fedaudit show CONFIG` prints a config with all of them written out.",
        "",
        "Where a plugin is asked for, write its name, or a group of its name and settings: "
        "`{name: fedprox, mu: 0.1}`. Settings of plugins stand on the pages of their kind.",
        "",
    ]
    own = set(recorded["properties"]) - set(simulated["properties"]) | {"case"}
    groups = {
        "The whole file": simulated,
        "Of a recorded federation": recorded
        | {"properties": {key: words for key, words in recorded["properties"].items() if key in own}},
    }
    every = _find_groups(simulated) | _find_groups(recorded)
    groups |= {f"{key}": group for key, group in every.items() if group.get("properties")}
    for name, group in groups.items():
        about = _plain(str(group.get("description", "")).partition("\n\n")[0])
        lines += [f"## {name if ' ' in name else f'`{name}`'}", "", about, ""]
        lines += [*_make_table(("key", "default", "meaning"), _list_properties(group)), ""]
    return "\n".join(lines)


def show_commands() -> str:
    """Every command with its arguments and options."""
    lines = [
        "# Commands",
        "",
        "Look up a command and its options. `fedaudit COMMAND --help` prints the same.",
        "",
    ]
    for name, command in list_commands().items():
        usage = " ".join(_usage(p) for p in command.params if p.param_type_name == "argument")
        lines += [f"## {name}", "", "```sh", f"fedaudit {name} {usage}".strip(), "```", ""]
        lines += [" ".join((command.help or "").replace("\b", "").split()), ""]
        rows = [
            (f"`{', '.join(p.opts)}`", _show_default(p.default), _plain(p.help or ""))
            for p in command.params
            if p.param_type_name == "option"
        ]
        if rows:
            lines += [*_make_table(("option", "default", "meaning"), rows), ""]
    return "\n".join(lines)


def list_commands() -> dict[str, Any]:
    """Every command by what is typed: "run", "dp budget"."""
    import typer

    from fedaudit.audit.cli.main import app

    group: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        parts = getattr(command, "commands", None)
        found |= {name: command} if parts is None else {f"{name} {part}": c for part, c in parts.items()}
    return found


def show_python() -> str:
    """What mkdocstrings fills: the names for users, from their docstrings."""
    import fedaudit as fa

    lines = [
        "# Python",
        "",
        "Look up a function and what it takes. `import fedaudit as fa` has these names; they are kept from "
        "version to version.",
        "",
    ]
    names = [n for n in fa.__all__ if not isinstance(getattr(fa, n), type)]
    for name in [*names, *(n for n in fa.__all__ if n not in names)]:
        found = getattr(fa, name)
        lines += [f"::: {found.__module__}.{found.__qualname__}", "    options:", f"      heading: fa.{name}"]
        lines += [f"      toc_label: fa.{name}", ""]
    return "\n".join(lines)


def show_kinds() -> str:
    """What messages may contain."""
    from fedaudit.fl.kinds import Kind

    lines = [
        "# Kinds of messages",
        "",
        "Look up what a message holds and what it tells of whom. A method's card lists the kinds it sends; the "
        "wire refuses others. C is the number of classes, D that of features; c or m of them are listed. `*` as "
        "in the model is one array a parameter or buffer, under its name. Data of: the finest group of "
        "examples that an array may be computed over. `fedaudit tools list messages` prints the same list.",
        "",
    ]
    rows = [
        (
            f"`{k.value}`",
            _plain(k.words),
            ", ".join(f"`{name}` {_plain(shape)}" for name, shape in k.arrays.items()),
            k.tells.value,
            k.summed.value,
        )
        for k in Kind
    ]
    return "\n".join(
        [*lines, *_make_table(("kind", "meaning", "arrays", "data of", "secure aggregation"), rows), ""]
    )


def _find_groups(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The groups that keys of a config lead to, by dotted key, in the order of the file."""
    found: dict[str, Any] = {}

    def visit(group: Mapping[str, Any], path: str) -> None:
        for key, value in group.get("properties", {}).items():
            for name in dict.fromkeys(re.findall(r"#/\$defs/(\w+)", json.dumps(value))):
                target = schema["$defs"][name]
                where = f"{path}{key}"
                if target.get("properties") and name not in ("PluginSpec", "AttackSpec") and where not in found:
                    found[where] = target
                    visit(target, f"{where}.")

    visit(schema, "")
    return found


def _list_settings(declared: Any) -> list[tuple[str, str, str]]:
    from pydantic import TypeAdapter

    return [] if declared is None else _list_properties(TypeAdapter(declared).json_schema())


def _list_properties(schema: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    needed = schema.get("required", [])
    return [
        (
            f"`{key}`",
            "needed" if key in needed else _show_default(value.get("default")),
            _plain(str(value.get("description", ""))),
        )
        for key, value in schema.get("properties", {}).items()
    ]


def _show_default(value: Any) -> str:
    if value is None or value is ... or "Sentinel" in type(value).__name__ + str(value):
        return ""
    if isinstance(value, dict):
        return f"`{value['name']}`" if "name" in value else "a group"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"`{text}`" if text else ""


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name = name if name.isupper() or " " in name else name.upper()
    return name if argument.required else f"[{name}]"


def _make_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"

    return [line(head), line(("---",) * len(head)), *map(line, rows)]


def _plain(text: str) -> str:
    """Text of the code as Markdown prints it: nothing in it is a mark."""
    return re.sub(r"([\\<>*_\[\]{}#])", r"\\\1", " ".join(text.split()))


def _title(shelf: str) -> str:
    return TITLES.get(shelf, shelf.capitalize())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), are_cells_run=True)
