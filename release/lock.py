"""Write the lock files: what `pip install .` and `pip install .[dev]` take under constraints.txt, by SHA-256.

What builds the site (`make docs`) is the group `docs` of pyproject.toml: it needs nothing of fedaudit.

The hashes are of the files for this machine's system and Python: Linux x86-64, Python 3.11. Which build of torch
an index serves, for CPU or for CUDA, is the index's choice: torch has a lock of its own, and `make` takes it by
version.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TORCH = ("torch", "torchvision")
LOCK, DEV_LOCK, TORCH_LOCK = "requirements.lock", "requirements-dev.lock", "requirements-torch.lock"
DOCS_LOCK = "requirements-docs.lock"
HEADS = {
    LOCK: "# pip install --require-hashes --no-deps -r requirements.lock; then torch and torchvision\n",
    DEV_LOCK: "# With the tools, as `make dev` and `make dist` install them\n",
    TORCH_LOCK: "# The build for CPU; other indexes serve others\n",
    DOCS_LOCK: "# What builds the site, as `make docs` installs it\n",
}


def main() -> None:
    plain, dev = _resolve(str(ROOT)), _resolve(f"{ROOT}[dev]")
    _write(LOCK, (item for item in plain if _name(item) not in TORCH))
    _write(DEV_LOCK, (item for item in dev if _name(item) not in TORCH))
    _write(TORCH_LOCK, (item for item in plain if _name(item) in TORCH))
    _write(
        DOCS_LOCK, _resolve(*tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["docs"])
    )


def _resolve(*what: str) -> list[Mapping[str, Any]]:
    """What pip would install, in the order of names."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", str(report), "-c", str(ROOT / "constraints.txt"), *what]
        subprocess.run(command, check=True)
        install = json.loads(report.read_text())["install"]
    return sorted((i for i in install if _name(i) != "fedaudit"), key=_name)


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"]).lower()


def _write(file: str, items: Iterable[Mapping[str, Any]]) -> None:
    lines = []
    for item in items:
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        version = item["metadata"]["version"]
        lines.append(f"{item['metadata']['name']}=={version} \\\n    --hash=sha256:{digest}\n")
    (ROOT / file).write_text(HEADS[file] + "".join(lines))


if __name__ == "__main__":
    main()
