"""The release: the same sources give the same bytes, with all that a user needs; dependencies by digest."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.contracts.test_published_schemas import cyclonedx
from tests.test_house import PACKAGES, ROOT

BUILD = (
    "import backend, sys; out = sys.argv[1]  # setuptools writes its own arguments there\n"
    "print(backend.build_wheel(out)); print(backend.build_sdist(out))"
)
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "runs", "__pycache__", "*.egg-info", "build", "dist", ".*_cache"
)


def built(folder: Path, umask: int, out: Path) -> dict[str, bytes]:
    """Wheel and sdist of a copy of the sources."""
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
    for path in folder.rglob("*.py"):
        os.utime(path, (umask * 10**7, umask * 10**7))
    out.mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD, str(out)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "release")},
        check=True,
        capture_output=True,
        umask=umask,
    )
    return {p.name: p.read_bytes() for p in sorted(out.iterdir())}


@pytest.mark.nightly
def test_two_builds_have_the_same_bytes_and_all_that_a_user_needs(tmp_path: Path) -> None:
    first = built(tmp_path / "a", 0o022, tmp_path / "out-a")
    second = built(tmp_path / "elsewhere", 0o077, tmp_path / "out-b")
    digests = [{n: hashlib.sha256(b).hexdigest() for n, b in one.items()} for one in (first, second)]
    assert digests[0] == digests[1] and len(first) == 2
    wheel, sdist = sorted(tmp_path.glob("out-a/*"), key=lambda p: p.suffix != ".whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {n.partition("/")[0].partition("-")[0] for n in names} == {"fedaudit"}, "one name, and its metadata"
    assert {"fedaudit/py.typed", *(f"fedaudit/{p}/py.typed" for p in PACKAGES)} <= names
    shipped = {n.rpartition("/")[2] for n in names if n.startswith("fedaudit/audit/configs/")}
    assert {p.name for p in (ROOT / "configs").glob("*.yaml")} <= shipped
    with tarfile.open(sdist) as archive:
        packed = {n.partition("/")[2] for n in archive.getnames()}
    wanted = {
        "requirements.lock",
        "constraints.txt",
        "SECURITY.md",
        "configs/quickstart.yaml",
        "release/backend.py",
    }
    assert wanted <= packed and "tests/test_release.py" in packed


def locked(*files: str) -> dict[str, str]:
    """Name and version of all that lock files name; every line has a digest."""
    text = "".join((ROOT / file).read_text() for file in files)
    found = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+) \\\n    --hash=sha256:\w{64}$", text, re.M)
    assert len(found) == text.count("--hash") == text.count("==")
    return {re.sub("[-_.]+", "-", name).lower(): version.partition("+")[0] for name, version in found}


def test_every_dependency_is_locked_with_a_digest_in_the_version_that_is_tested() -> None:
    users, torch = locked("requirements.lock"), locked("requirements-torch.lock")
    tools = locked("requirements-dev.lock")
    assert len(users) > 40 and set(torch) == {"torch", "torchvision"}
    assert users.items() <= tools.items() and not torch.keys() & tools.keys()
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split("\n") if "==" in line)
    same = {re.sub("[-_.]+", "-", k).lower(): v for k, v in pins.items()}
    every = tools | torch
    assert {k: v for k, v in every.items() if k in same} == {k: v for k, v in same.items() if k in every}
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    for wanted, found in (
        (project["dependencies"], users | torch),
        (project["optional-dependencies"]["dev"], tools),
        (pyproject["dependency-groups"]["docs"], locked("requirements-docs.lock")),
    ):
        assert {re.split(r"[\[>=<]", d)[0].lower() for d in wanted} <= set(found)


def test_frameworks_that_the_bench_compares_with_are_locked() -> None:
    named = {"pfl": "pfl", "fedlab": "fedlab", "flower": "flwr", "blazefl": "blazefl"}
    assert set(named) == {path.stem for path in (ROOT / "benchmarks/speed/peers").glob("*.txt")}
    for environment, package in named.items():
        assert package in locked(f"benchmarks/speed/peers/{environment}.txt")


def test_make_installs_nothing_but_by_digest_torch_and_ourselves() -> None:
    text = (ROOT / "Makefile").read_text()
    commands = re.findall(r"-m pip (install|download) (.*)", text)
    by_version = [rest for what, rest in commands if "--require-hashes" not in rest and what == "install"]
    assert by_version == [
        "--quiet -c constraints.txt torch torchvision",
        "--quiet --no-deps --no-build-isolation -e .",
        "--quiet -c constraints.txt torch torchvision",  # of each framework that `bench` compares with
    ]
    assert text.count("$(BY_DIGEST) requirements") == 2 and "build --no-isolation" in text
    assert [what for what, _ in commands].count("download") == 1 and "--hash=" in (
        ROOT / "release/schemas.txt"
    ).read_text()


def test_the_bill_of_materials_is_valid_and_lists_what_is_locked() -> None:
    command = [sys.executable, str(ROOT / "release" / "sbom.py")]
    bom = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert cyclonedx(bom) == ""
    assert len(bom["components"]) == len(locked("requirements.lock", "requirements-torch.lock"))


def test_the_build_backend_is_pinned_and_only_tested_pythons_are_declared() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'requires = ["setuptools==' in text
    assert re.findall(r"Programming Language :: Python :: (3\.\d+)", text) == ["3.11"]


@pytest.mark.nightly
def test_an_example_runs_by_name_without_a_checkout_and_the_version_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedaudit"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        [*command, "show", "quickstart"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert shown.returncode == 0 and "name: rebafl" in shown.stdout, shown.stderr
    told = subprocess.run([*command, "--version"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert told.returncode == 0 and re.fullmatch(r"fedaudit \d+\.\d+\.\d+\n", told.stdout)


def gate(tmp_path: Path, code: int, cannot_tell: str) -> int:
    """Exit code of the action's last step, where `fedaudit check` ends with `code`."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = action["runs"]["steps"][-1]["run"]
    stub = tmp_path / "fedaudit"
    stub.write_text(f"#!/bin/sh\nexit {code}\n")
    stub.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    settings = {"PATH": path, "RUN": "runs/x", "POLICY": "default", "CANNOT_TELL": cannot_tell}
    return subprocess.run(["bash", "-e", "-c", script], env=settings, capture_output=True).returncode


def test_the_action_refuses_what_the_gate_refuses(tmp_path: Path) -> None:
    assert [gate(tmp_path, code, "fail") for code in (0, 1, 2, 3)] == [0, 1, 2, 3]
    assert [gate(tmp_path, code, "warn") for code in (0, 1, 2, 3)] == [0, 1, 2, 0]


def test_workflows_hook_and_container_name_what_is_there() -> None:
    workflows = [yaml.safe_load(p.read_text()) for p in (ROOT / ".github" / "workflows").glob("*.yml")]
    steps = [step for w in workflows for job in w["jobs"].values() for step in job["steps"]]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    commands = [step["run"] for step in steps if "run" in step]
    assert ".ci/run" in commands and all(c[5:] in targets for c in commands if c.startswith("make "))
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    help = subprocess.run([sys.executable, "-m", *hook["entry"].split(), "--help"], capture_output=True, cwd=ROOT)
    assert help.returncode == 0
    container = (ROOT / "Dockerfile").read_text()
    copied = re.search(r"^COPY ([\w. -]+) \./$", container, re.M)
    assert copied and all((ROOT / name).is_file() for name in copied[1].split())
    pins = (ROOT / "constraints.txt").read_text()
    assert all(
        re.search(f"^{name}==", pins, re.M | re.I) for name in re.findall(r"grep -i '\^(\w+)==", container)
    )


def test_who_cites_names_the_version_that_is_packed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert not [c for c in project["classifiers"] if "Do Not Upload" in c], "it could not be published"
