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
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from packaging.requirements import Requirement

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
    named = {"pfl": "pfl", "fedlab": "fedlab", "flower": "flwr", "blazefl": "blazefl", "jax_steps": "jaxlib"}
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
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    command = [sys.executable, str(ROOT / "release" / "sbom.py")]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    bom, validator = json.loads(text), JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    bom["components"][0]["colour"] = "red"
    flaw = validator.validate_str(json.dumps(bom))
    assert flaw is not None and "colour" in str(flaw.data.message)
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


ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GATE = {name.upper().replace("-", "_"): str(i.get("default", "")) for name, i in ACTION["inputs"].items()}


def step(number: int, env: dict[str, str], bin: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """One step of the action in the shell that a runner starts, with the programs of `bin` before others."""
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", ACTION["runs"]["steps"][number]["run"]]
    runner = {"PATH": f"{bin}:{os.environ['PATH']}", "RUNNER_TEMP": str(cwd / "temp"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(shell, env=runner | env, cwd=cwd, capture_output=True, text=True)


def stub(path: Path, code: int = 0) -> Path:
    """A program that notes where it is called and with what, and ends with `code`."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f'#!/bin/sh\nprintf \'%s\\n\' "$PWD $*" >> "{path}.called"\nexit {code}\n')
    path.chmod(0o755)
    return path


def gate(folder: Path, code: int, **given: str) -> tuple[int, list[str]]:
    """Exit code of the gate, and with what it calls a fedaudit that ends with `code`."""
    program = stub(folder / "bin" / "fedaudit", code)
    called = Path(f"{program}.called")
    called.unlink(missing_ok=True)
    ended = step(-1, GATE | {"RUN": "runs/x"} | given, program.parent, folder).returncode
    return ended, [line.partition(" ")[2] for line in called.read_text().splitlines()]


def test_the_action_refuses_what_the_gate_refuses(tmp_path: Path) -> None:
    for word, codes in (("fail", [0, 1, 2, 3]), ("warn", [0, 1, 2, 0])):
        assert [gate(tmp_path, code, CANNOT_TELL=word)[0] for code in (0, 1, 2, 3)] == codes


def test_what_a_reviewer_holds_goes_to_verify_and_what_is_empty_is_left_out(tmp_path: Path) -> None:
    assert gate(tmp_path, 0) == (0, ["check --policy=default -- runs/x"])
    assert gate(tmp_path, 0, TERMS="r.yaml") == (0, ["check --policy=default --terms=r.yaml -- runs/x"])
    assert gate(tmp_path, 1, KEY="k.pub", POLICY="p.yaml") == (
        1,
        ["verify --policy=p.yaml --key=k.pub -- runs/x"],
    )
    whole = "verify --policy=default --terms=r.yaml --key=k.pub --digest=ab12 -- runs/x"
    assert gate(tmp_path, 3, TERMS="r.yaml", KEY="k.pub", DIGEST="ab12") == (3, [whole])


def test_no_input_of_the_action_is_read_by_the_shell(tmp_path: Path) -> None:
    evil = "--help; touch broken $(touch broken) `touch broken` * \"'"
    code, called = gate(tmp_path, 0, RUN=evil, POLICY=evil, KEY=evil, DIGEST=evil, TERMS=evil)
    assert (code, called) == (
        0,
        [f"verify --policy={evil} --terms={evil} --key={evil} --digest={evil} -- {evil}"],
    )
    assert not (tmp_path / "broken").exists()
    assert "${{" not in "".join(step.get("run", "") for step in ACTION["runs"]["steps"])


def test_findings_are_written_as_sarif_of_a_folder_that_is_what_it_says(tmp_path: Path) -> None:
    for code in (0, 1, 3):
        assert gate(tmp_path, code, KEY="k.pub", SARIF="found.sarif") == (
            code,
            ["verify --policy=default --key=k.pub -- runs/x", "check --policy=default --format=sarif -- runs/x"],
        )
        assert (tmp_path / "found.sarif").exists()
    (tmp_path / "found.sarif").unlink()
    assert gate(tmp_path, 2, KEY="k.pub", SARIF="found.sarif")[0] == 2 and not (tmp_path / "found.sarif").exists()


def test_nothing_that_a_folder_prints_is_a_command_of_the_workflow(tmp_path: Path) -> None:
    program = stub(tmp_path / "bin" / "fedaudit")
    program.write_text("#!/bin/sh\necho 'zz ##[error]Ready to deploy'\n")
    before, between, after = step(-1, GATE | {"RUN": "x"}, program.parent, tmp_path).stdout.splitlines()
    stop, token = before.rsplit("::", 1)
    assert stop == "::stop-commands" and re.fullmatch("[0-9a-f]{32}", token) and after == f"::{token}::"
    assert between.startswith("zz")


def test_the_action_installs_its_own_sources_and_the_files_of_the_lock(tmp_path: Path) -> None:
    python = stub(tmp_path / "bin" / "python3.11")
    venv = stub(tmp_path / "temp" / "fedaudit" / "bin" / "python")
    sources = tmp_path / "action"
    sources.mkdir()
    env = {"PYTHON": str(python), "GITHUB_ACTION_PATH": str(sources)}
    done = step(1, env, tmp_path / "bin", tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(f"{python}.called").read_text() == f"{sources} -m venv {tmp_path / 'temp' / 'fedaudit'}\n"
    pip = f"{sources} -m pip install --quiet --no-deps"
    assert Path(f"{venv}.called").read_text().splitlines() == [
        f"{pip} --require-hashes -r requirements.lock",
        f"{pip} --index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch torchvision",
        f"{pip} --no-build-isolation .",
    ]
    stub(venv, code=1)
    assert step(1, env, tmp_path / "bin", tmp_path).returncode == 1, "a step that fails ends the action"


def test_what_torch_needs_is_in_the_lock_too() -> None:
    found = locked("requirements.lock")
    for package in ("torch", "torchvision"):
        needs = [Requirement(text) for text in metadata.requires(package) or []]
        for need in (n for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})):
            name = re.sub("[-_.]+", "-", need.name).lower()
            if not re.match("nvidia|cuda|triton|torch$", name):  # its builds for CUDA bring their own
                assert need.specifier.contains(found[name]), need


SMALL = """
federation: {dataset: digits, limit: 240, clients: 4, availability: full, model: small_cnn,
  partition: {name: dirichlet, alpha: 0.3}}
method: {name: rebafl, rounds: 2, local_epochs: 1, batch_size: 20}
record: all
attacks: [class_list]
report: [json]
"""
CLEAN = """
federation: {dataset: digits, clients: 4, partition: iid, availability: full, model: {name: mlp, hidden: [16]},
  holdout: {auxiliary: 0.2, reference: 0.4}}
method: {name: fedavg, rounds: 1, local_epochs: 1, batch_size: 20, weighting: uniform}
protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 100.0}]
record: all
attacks: [hidden_images, analytic, played_message, rmia, label_counts_from_update, label_counts_from_gradient]
report: [json]
"""


@pytest.mark.nightly
def test_the_action_ends_with_the_verdict_of_real_runs(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "fedaudit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fedaudit "$@"\n')
    program.chmod(0o755)

    def call(*words: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([program, *words], cwd=tmp_path, env=env, capture_output=True)

    for name, text in (("clean", CLEAN), ("small", SMALL)):
        (tmp_path / f"{name}.yaml").write_text(text)
        call("run", f"{name}.yaml", "--out", name)
    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        (tmp_path / f"{name}.pem").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        (tmp_path / f"{name}.pub").write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
    call("check", "clean", "--sign", "mine.pem")
    (tmp_path / "need.yaml").write_text("attacks: [class_list]\n")
    strict = (ROOT / "audit/policy/default.yaml").read_text().replace("not_ready: high", "not_ready: medium")
    (tmp_path / "strict.yaml").write_text(strict)

    def ask(**given: str) -> tuple[int, str]:
        done = step(-1, GATE | given, program.parent, tmp_path)
        return done.returncode, done.stdout + done.stderr

    code, said = ask(RUN="clean", SARIF="found.sarif")
    assert code == 0, said
    assert json.loads((tmp_path / "found.sarif").read_text())["version"] == "2.1.0"
    (digest,) = re.findall("content: SHA-256 ([0-9a-f]{64})", said)
    assert ask(RUN="clean", KEY="mine.pub", DIGEST=digest)[0] == 0
    assert ask(RUN="clean", KEY="other.pub", CANNOT_TELL="warn")[0] == 2
    assert ask(RUN="clean", DIGEST="0" * 64, CANNOT_TELL="warn")[0] == 2
    assert ask(RUN="clean", TERMS="need.yaml")[0] == 3
    assert ask(RUN="small")[0] == 3 and ask(RUN="small", CANNOT_TELL="warn")[0] == 0
    code, said = ask(RUN="clean", POLICY="strict.yaml")
    assert code == 0 and "the owner's own" in said


def test_actions_and_base_images_are_named_by_digest() -> None:
    files = [ROOT / "action.yml", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    used = [u for f in files for u in re.findall(r"uses: (.*)", f.read_text())]
    images = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    assert len(used) > 8 and len(images) == 2
    assert [u for u in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", u)] == []
    assert [i for i in images if not re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", i)] == []
    assert len(set(used)) == len({u.partition("@")[0] for u in used}), "one version of each"


def test_workflows_hook_and_container_name_what_is_there() -> None:
    workflows = [yaml.safe_load(p.read_text()) for p in (ROOT / ".github" / "workflows").glob("*.yml")]
    steps = [step for w in workflows for job in w["jobs"].values() for step in job["steps"]]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    commands = [step["run"] for step in steps if "run" in step]
    assert ".ci/run" in commands and all(c[5:] in targets for c in commands if c.startswith("make "))
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    help = subprocess.run([sys.executable, "-m", *hook["entry"].split(), "--help"], capture_output=True, cwd=ROOT)
    assert help.returncode == 0 and hook["language"] == "system"  # else pre-commit installs by ranges
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
