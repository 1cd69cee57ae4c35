"""Notebooks as pages: their cells and, where they are run, what each shows.

python -m release.notebooks PATH

runs the cells of a notebook in their order and prints what they show as JSON, a list for each cell. The committed
notebooks hold no outputs: whoever reads the site sees those of the version that it was built from.
"""

import ast
import contextlib
import html
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def show_notebook(path: Path, are_cells_run: bool) -> str:
    """Its cells as Markdown, one after the other, each with what it shows below it where they are run."""
    cells = json.loads(path.read_text())["cells"]
    shown = run_apart(path) if are_cells_run else [[] for _ in cells]
    parts = []
    for cell, outputs in zip(cells, shown, strict=True):
        text = "".join(cell["source"])
        parts += [text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```", *outputs]
    where = path.relative_to(ROOT).as_posix()
    note = f"The notebook is `{where}`; a test runs its cells."
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def run_apart(path: Path) -> list[list[str]]:
    """What each cell shows, as Markdown, of a notebook run in a process of its own. A cell that fails raises."""
    command = [sys.executable, "-m", "release.notebooks", str(path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [[str(output) for output in outputs] for outputs in json.loads(done.stdout)]


def run_cells(path: Path, folder: Path) -> list[list[str]]:
    """What each cell shows, as Markdown; temporary files go below `folder`, whose name is not shown."""
    tempfile.tempdir = str(folder)
    os.chdir(path.parent)
    names: dict[str, Any] = {"__name__": path.stem}
    shown = []
    for number, cell in enumerate(json.loads(path.read_text())["cells"], 1):
        code = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
        outputs = [output.replace(str(folder), "/tmp") for output in _run(code, path.name, names)]
        shown.append([_frame(o, f"Cell {number}, output {i}") for i, o in enumerate(outputs, 1)])
    return shown


def _run(code: str, where: str, names: dict[str, Any]) -> list[str]:
    """A cell, in the namespace of those before it; its last line is shown as a notebook shows it."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    outputs = [f"<pre>{html.escape(text)}</pre>" for text in [printed.getvalue().strip()] if text]
    if value is not None:
        represent = getattr(value, "_repr_html_", None)
        outputs.append(represent() if represent else f"<pre>{html.escape(repr(value))}</pre>")
    return outputs


def _frame(shown: str, label: str) -> str:
    """HTML that Markdown leaves as it is: on one line, since an empty one would end it; titles are no headings of
    the page."""
    titled = re.sub(r"<h4>(.*?)</h4>", r"<p><strong>\1</strong></p>", shown)
    whole = ("&#10;" if "<pre" in titled else " ").join(titled.splitlines())
    return f'<div class="output" tabindex="0" role="region" aria-label="{label}">{whole}</div>'


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found = run_cells(Path(sys.argv[1]).resolve(), Path(made).resolve())
    print(json.dumps(found))
