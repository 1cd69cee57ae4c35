"""The documentation: every command, config and name on its pages is one that there is; no link is dead."""

import ast
import doctest
import functools
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedaudit as fa
from fedaudit.audit.cli.load import find_config, make_config
from fedaudit.audit.settings import catalog
from release import notebooks, pages
from tests.test_house import ROOT

SKILL = ROOT / "SKILL.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", SKILL, *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
COMMANDS = pages.list_commands()
GROUPS = {name.split()[0] for name in COMMANDS if " " in name}
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
BLOCK = re.compile(r"(?:(?:^    .*|^)\n)+", re.M)  # indented, as the older pages have it
OPTIONAL = re.compile(r"\[([^\]]*)\]")  # "[--key KEY]" in a line that shows what may be added
# Keys of blocks that are no configs of ours: a workflow, a hook, a claim, a subject
OTHERS = ({"repos"}, {"uses", "with"}, {"claims"}, {"examples", "model"})


def ident(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fences(page: Path, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(page.read_text()) if name == language]


def commands(page: Path) -> Iterator[str]:
    """Lines of code that start with a command of ours, whole."""
    text = page.read_text()
    blocks = [body for name, body in FENCE.findall(text) if name in ("sh", "console", "bash")]
    blocks += [re.sub("^    ", "", b, flags=re.M) for b in BLOCK.findall(FENCE.sub("", text))]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ")
            if re.match(r"(fedaudit |make |python -m (benchmarks|fedaudit)\b)", line):
                yield line
    yield from re.findall(r"`(fedaudit [a-z][^`]*|make [a-z][^`]*|python -m (?:benchmarks|fedaudit)[^`]*)`", text)


def find_fault(line: str) -> str:
    """What is wrong with a command; "" for nothing."""
    words = shlex.split(OPTIONAL.sub(r"\1", line), comments=True)
    if words[0] == "make":
        named = [w for w in words[1:] if "=" not in w][:1]
        return "" if set(named) <= set(TARGETS) else f"no target {named[0]}"
    if words[0] == "python":
        module = words[2]
        return "" if importlib.util.find_spec(module) else f"no module {module}"
    if words[1:2] == ["--version"] or not words[1:]:
        return ""
    name = " ".join(words[1:3]) if words[1] in GROUPS else words[1]
    if name in GROUPS:  # `fedaudit tools` names the group
        return ""
    command = COMMANDS.get(name)
    if command is None:
        return f"no command {name}"
    given = [w for w in words[1 + len(name.split()) :] if w != "..."]
    if not given:  # `fedaudit check` names the command
        return ""
    try:
        values, rest, _ = command.make_parser(command.context_class(command)).parse_args(list(given))
    except Exception as error:
        return str(getattr(error, "message", error))
    if rest:
        return f"nothing takes {rest}"
    return find_name_fault(name, values)


def find_name_fault(command: str, values: dict[str, Any]) -> str:
    """A config or a plugin that a command names has to be there."""
    if command == "tools list" and values["what"] not in (*catalog.SHELVES, "messages", "KIND"):
        names = {n for shelf in catalog.SHELVES for n in catalog.names(shelf)}
        return "" if values["what"] in names else f"nothing is called {values['what']}"
    config = str(values.get("config") or "") if command in ("run", "plan", "show", "phase simulate") else ""
    if config.startswith("configs/"):
        return "" if (ROOT / config).is_file() else f"no {config}"
    if re.fullmatch(r"[a-z_]+", config) and find_config(Path(config)) == Path(config):
        return f"no config is called {config}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=ident)
def test_every_command_on_a_page_is_one_with_options_that_there_are(page: Path) -> None:
    assert {line: fault for line in commands(page) if (fault := find_fault(line))} == {}


SHOWN = (".py", ".yaml", ".html", ".typ")
SOURCES = ("fl", "attacks", "audit", "reports", "fedaudit", "benchmarks", "release")
NAMED = re.compile(r"`(fedaudit [a-z][^`\n]*)`")


def test_every_command_that_a_program_names_is_one() -> None:
    """In hints, docstrings and reports; names that are filled in, as {name}, stand for any."""
    faults = {}
    for path in sorted(p for folder in SOURCES for p in (ROOT / folder).rglob("*") if p.suffix in SHOWN):
        for line in NAMED.findall(path.read_text()):
            whole = re.sub(r"\{[^}]*\}", "X", line)
            if "tools list X" not in whole and not re.search(r" --\w+$", whole):  # names an option alone
                faults[ident(path), line] = find_fault(whole)
    assert len(faults) > 60 and {where: fault for where, fault in faults.items() if fault} == {}


def test_a_command_that_is_none_is_named() -> None:
    assert find_fault("fedaudit check runs/mine --format json") == ""
    assert "audti" in find_fault("fedaudit audti runs/mine")
    assert "--fromat" in find_fault("fedaudit check runs/mine --fromat json")
    assert "runs/more" in find_fault("fedaudit check runs/mine runs/more")
    assert find_fault("fedaudit run configs/none.yaml") and find_fault("fedaudit tools list nothing")
    assert find_fault("fedaudit plan quikstart") and find_fault("make nothing")
    assert find_fault("python -m benchmarks.nothing") and not find_fault("make paper TABLE=rebafl-1")
    assert sum(1 for page in PAGES for _ in commands(page)) > 100


NARROW = ("start", "python", "own-federation", "own-model", "own-plugin", "ci", "dpia", "text", "robustness")


def test_no_line_of_code_is_cut_where_a_page_is_shown() -> None:
    """At 1280 pixels the site shows 81 columns, a code host some 95; the rest has to be scrolled."""
    pages_of = {ROOT / "README.md": 90} | {ROOT / f"docs/{name}.md": 81 for name in NARROW}
    for page, most in pages_of.items():
        text = page.read_text()
        blocks = [body for _, body in FENCE.findall(text)]
        blocks += [re.sub("^    ", "", b, flags=re.M) for b in BLOCK.findall(FENCE.sub("", text))]
        cut = [line for body in blocks for line in body.splitlines() if len(line) > most]
        assert blocks and cut == [], page


def with_what_it_leaves_out(given: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {"federation": {"dataset": "digits"}, "method": {"name": "fedavg"}}
    return whole | given


@pytest.mark.parametrize("page", PAGES, ids=ident)
def test_every_config_on_a_page_is_taken(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files of code that the page shows beside it."""
    for body in fences(page, "python"):
        if named := re.match(r"# (\w+\.py)\n", body):
            monkeypatch.chdir(tmp_path)
            (tmp_path / named[1]).write_text(body)
    for body in fences(page, "yaml"):
        given = yaml.safe_load(body)
        first = given[0] if isinstance(given, list) else given
        if not any(keys <= set(first) for keys in OTHERS):
            make_config(with_what_it_leaves_out(given))


@functools.cache
def attributes(cls: type) -> set[str]:
    set_by_init = re.findall(r"self\.(\w+)\b.* = ", inspect.getsource(cls))
    return {*dir(cls), *set_by_init, *getattr(cls, "__dataclass_fields__", ())}


def find_python_faults(code: str) -> list[str]:
    """Names of `fa` that are none, arguments that they do not take, attributes that an audit does not have."""
    faults = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = {"fa": fa, "audit": fa.Audit, "result": fa.AttackResult, "drawn": fa.Reconstruction}.get(
                node.value.id
            )
            known = attributes(owner) if isinstance(owner, type) else set(fa.__all__)
            if owner is not None and node.attr not in known:
                faults.append(f"{node.value.id}.{node.attr} is not there")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"fa.{name}" for name in fa.__all__}:
            signature = inspect.signature(getattr(fa, ast.unparse(node.func)[3:]))
            try:
                signature.bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})
            except TypeError as error:
                faults.append(f"{ast.unparse(node.func)}: {error}")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "fedaudit":  # a notebook's own, for commands
            words = [
                a.value if isinstance(a, ast.Constant) else "X"
                for a in node.args
                if not isinstance(a, ast.Starred)
            ]
            faults += [fault for fault in [find_fault(f"fedaudit {' '.join(map(str, words))}")] if fault]
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "fedaudit":
            module = importlib.import_module(str(node.module))
            faults += [f"{node.module} has no {a.name}" for a in node.names if not hasattr(module, a.name)]
    return faults


@pytest.mark.parametrize("page", PAGES, ids=ident)
def test_every_line_of_python_on_a_page_uses_what_there_is(page: Path) -> None:
    for body in fences(page, "python"):
        examples = doctest.DocTestParser().get_doctest(body, {}, ident(page), str(page), 0)
        assert not examples.examples or doctest.DocTestRunner(verbose=False).run(examples).failed == 0
        assert examples.examples or find_python_faults(body) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=ident)
def test_a_notebook_is_kept_without_outputs_and_uses_what_there_is(notebook: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert len(code) > 3 and not [c for c in cells if c.get("outputs") or c.get("execution_count")]
    assert find_python_faults("\n".join(code)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=ident)
def test_the_cells_of_a_notebook_run_in_order(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one namespace, as a kernel does; the last line of a cell is shown as a notebook shows it."""
    monkeypatch.chdir(notebook.parent)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": notebook.stem}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, notebook.name, "exec"), names)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
                assert getattr(shown, "_repr_html_", shown.__repr__ if shown is not None else lambda: "-")()


def write_notebook(path: Path, *cells: str) -> Path:
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]}))
    return path


def test_the_site_shows_what_cells_print_and_end_with(tmp_path: Path) -> None:
    drawn = 'class Drawn:\n    def _repr_html_(self):\n        return "<h4>Title</h4>\\n\\n<i>x</i>"\n\n\nDrawn()'
    where = "import tempfile\n\nprint('a\\nb <')\ntempfile.mkdtemp()"
    silent, printed, html = notebooks.run_apart(write_notebook(tmp_path / "n.ipynb", "x = 1", where, drawn))
    assert silent == [] and len(printed) == 2
    assert 'aria-label="Cell 2, output 1"><pre>a&#10;b &lt;</pre></div>' in printed[0]
    assert re.search(
        r"<pre>&#x27;/tmp/tmp\w+&#x27;</pre>", printed[1]
    )  # below a folder that is named after no run
    assert html == [
        '<div class="output" tabindex="0" role="region" aria-label="Cell 3, output 1">'
        "<p><strong>Title</strong></p>  <i>x</i></div>"
    ]


def test_a_cell_that_fails_ends_the_build_of_the_site(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        notebooks.run_apart(write_notebook(tmp_path / "n.ipynb", "x = 1", "y"))


def test_a_notebook_that_is_not_run_shows_no_outputs() -> None:
    page = notebooks.show_notebook(NOTEBOOKS[0], are_cells_run=False)
    assert page.startswith("# A first audit") and "```python\n" in page and 'class="output"' not in page


def test_code_that_names_nothing_is_seen() -> None:
    assert find_python_faults("fa.run('quickstart', outt='x')") and find_python_faults("fa.ran('quickstart')")
    assert find_python_faults("from fedaudit.fl.method import Nothing")
    assert find_python_faults("fedaudit('doctor', inbox)") and not find_python_faults("fedaudit('check', run)")
    assert find_python_faults("audit.verdikt") and not find_python_faults("audit.verdict.why")


# The site -----------------------------------------------------------------------------------


class Loader(yaml.SafeLoader):
    """mkdocs.yml may name functions of Python."""


def list_nav(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from list_nav(item)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("site") / "pages"
    pages.write_pages(out)
    return out


def test_the_navigation_has_every_page_once_and_no_other(site: Path) -> None:
    listed = list(list_nav(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]))
    assert sorted(listed) == sorted(p.relative_to(site).as_posix() for p in site.rglob("*.md"))


def test_no_link_of_the_site_is_dead(site: Path) -> None:
    dead = []
    for page in site.rglob("*.md"):
        for target, anchor in re.findall(
            r"\]\(((?!https?:)[^)#\s]*)(?:#([^)\s]+))?\)", FENCE.sub("", page.read_text())
        ):
            found = (page.parent / target).resolve() if target else page
            if not found.is_file() or (anchor and anchor not in anchors(found)):
                dead.append(f"{page.relative_to(site)}: {target}#{anchor}")
    assert dead == []


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", t).strip().lower()) for t in titles}


def test_the_reference_lists_every_plugin_command_key_and_name(site: Path) -> None:
    for shelf in catalog.SHELVES:
        titles = re.findall(r"^## (\S+)$", (site / "reference" / f"{shelf}.md").read_text(), re.M)
        assert titles == catalog.names(shelf), shelf
    commands_page = (site / "reference" / "commands.md").read_text()
    assert re.findall(r"^## (.+)$", commands_page, re.M) == list(COMMANDS)
    config_page = (site / "reference" / "config.md").read_text()
    assert "| `delta` | `1e-05` |" in config_page and "## `federation.holdout`" in config_page
    python_page = (site / "reference" / "python.md").read_text()
    assert set(re.findall(r"^      heading: fa\.(\w+)$", python_page, re.M)) == set(fa.__all__)


def test_a_link_out_of_the_site_becomes_the_name_of_the_file() -> None:
    mended = pages.mend_links(
        "[a](../fl/README.md) [b](../mkdocs.yml) [c](https://x.y)", ROOT / "docs/a.md", "a.md"
    )
    assert mended == "[a](packages/fl.md) b (`mkdocs.yml`) [c](https://x.y)"


def test_every_page_begins_with_what_its_reader_can_do(site: Path) -> None:
    own = [p for p in (ROOT / "docs").glob("*.md") if p.stem in STARTS]
    assert len(own) == len(STARTS)
    firsts = {p.name: p.read_text().split("\n")[2] for p in own}
    assert {n: f for n, f in firsts.items() if not f.startswith(("After this page ", "Look up "))} == {}


def test_the_glossary_is_short_enough_to_be_read() -> None:
    rows = re.findall(r"^\| (\w[^|]*) \| ", (ROOT / "docs/glossary.md").read_text(), re.M)[1:]
    assert len(rows) <= 25 and rows == sorted(rows)


STARTS = {
    *("index", "start", "python", "own-federation", "own-model", "own-plugin", "ci", "dpia", "threat-models"),
    *("findings", "privacy-in-words", "robustness", "limits", "gallery", "architecture", "glossary"),
}
