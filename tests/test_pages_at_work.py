"""Pages as their readers use them: commands are typed, Python runs as a program, configs are audited.

Each page has a folder with what its reader has: a network, arrays, a record, keys, finished runs. A file of the
name `quickstart` is there a small config, so that all of it takes minutes; what is typed is what the page says.
"""

import doctest
import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import save_file

import fedaudit as fa
from fedaudit.audit.attestation import envelope
from fedaudit.audit.attestation.seal import open_seal
from tests.audit.importing.theirs import EXAMPLE, FLOWER, TRUTH
from tests.audit.tiny import VERDICTS
from tests.test_docs import OTHERS, PAGES, commands, fences, ident, with_what_it_leaves_out
from tests.test_house import ROOT

pytestmark = pytest.mark.nightly

FEDAUDIT = str(Path(sys.executable).with_name("fedaudit"))
SMALL: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "limit": 600,
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.3, "reference": 0.3},
    },
    "method": {"name": "rebafl", "rounds": 2, "lr": 0.05, "local_epochs": 1},
    "replay": {"groups": 10, "sizes": [1, 2]},
    "attacks": ["count_recovery", "prototype_membership"],
}
GIVEN = """
import numpy as np, torch
from sklearn.datasets import load_digits
from torch import nn

digits, order = load_digits(), np.random.default_rng(0).permutation(1797)
x, y = (digits.images / 16).astype(np.float32)[order, None], digits.target[order]
x = x.repeat(4, 2).repeat(4, 3)[..., 2:30, 2:30]
x_out, y_out, x_own, y_own = x[300:600], y[300:600], x[600:1000], y[600:1000]
x_in, y_in = (part[:300][np.isin(y[:300], (0, 3))] for part in (x, y))
x, y = x[:4], y[:4]
torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Sigmoid(), nn.Linear(16, 10))


def draw(n):
    loss = nn.functional.cross_entropy(net(torch.from_numpy(x[:n])), torch.from_numpy(y[:n]))
    return list(torch.autograd.grad(loss, list(net.parameters())))


gradient = draw(1)
update = {name: -0.1 * g for (name, _), g in zip(net.named_parameters(), draw(4))}
with torch.no_grad():
    features = net[:-1](torch.from_numpy(x_in)).numpy()
mean_of_class_0, mean_of_class_3 = (features[y_in == c].mean(0) for c in (0, 3))
np.save("class-0.npy", mean_of_class_0), np.save("class-3.npy", mean_of_class_3)
import fedaudit as fa
from pathlib import Path
audit = fa.load("runs/mine") if Path("runs/mine").is_dir() else None
"""
FILTER = """
import numpy as np


def make():
    return lambda update: {k: v + np.random.normal(0, 1.09, v.shape) for k, v in update.items()}
"""
ROWS = np.random.default_rng(0).integers((20, 50, 0), (90, 120, 2), (400, 3))
CLINIC = "age,weight,outcome\n" + "".join(f"{a},{w},{o}\n" for a, w, o in ROWS)
FRAMEWORKS = re.compile(r"^(?:from|import) (flwr|nvflare|opacus)\b", re.M)
SHORT = "attacks=['example_numbers']"  # of a record, whose audit is long otherwise
MAKES_ITS_RUN = ("README.md", "SKILL.md", "docs/start.md")  # pages that run an audit into runs/mine
SHOWN = [p for p in PAGES if fences(p, "sh") or p.name == "README.md"]
TAUGHT = [p for p in PAGES if fences(p, "python")]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "quickstart").write_text(yaml.safe_dump(SMALL))
    assert type_line(f"{FEDAUDIT} run quickstart", folder)[0] in VERDICTS
    return folder / "runs/quickstart"


@pytest.fixture
def desk(tmp_path: Path, audited: Path, request: pytest.FixtureRequest) -> Path:
    """What the reader of a page has."""
    page: Path | None = getattr(request.node, "callspec", None) and request.node.callspec.params["page"]
    for name in ("quickstart", "rebafl_full"):
        (tmp_path / name).write_text(yaml.safe_dump(SMALL))
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    shutil.copytree(FLOWER / "inbox", tmp_path / "inbox")
    shutil.copytree(TRUTH, tmp_path / "truth")
    shutil.copy(EXAMPLE / "net.py", tmp_path)
    shutil.copytree(audited, tmp_path / "runs/quickstart")
    is_typed = request.function is test_the_commands_of_a_page_do_what_they_say
    if page is None or not is_typed or ident(page) not in MAKES_ITS_RUN:
        for name in ("mine", "last-release"):
            shutil.copytree(audited, tmp_path / "runs" / name)
    key = Ed25519PrivateKey.generate()
    form, public = serialization.PrivateFormat.PKCS8, serialization.PublicFormat.SubjectPublicKeyInfo
    pem = serialization.Encoding.PEM
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    (tmp_path / "key.pub.pem").write_bytes(key.public_key().public_bytes(pem, public))
    (tmp_path / "clinic.csv").write_text(CLINIC)
    (tmp_path / "ours.yaml").write_text("fail_on: medium\n")
    (tmp_path / "given.py").write_text(GIVEN)
    (tmp_path / "mine.py").write_text(FILTER)
    save_file({"weight": np.zeros((10, 50)), "bias": np.zeros(10)}, tmp_path / "update.safetensors")
    return tmp_path


def type_line(line: str, folder: Path) -> tuple[int, str]:
    """Exit code, and what was said, of a line that is typed in a folder."""
    typed = line.replace("fedaudit ", f"{FEDAUDIT} ", 1) if line.startswith("fedaudit ") else line
    done = subprocess.run(typed, shell=True, cwd=folder, capture_output=True, text=True, timeout=600, input="y\n")
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def prepare(line: str, folder: Path) -> str:
    """What the page's reader does between two lines; the line as it is typed."""
    config = folder / "mine.yaml"
    if config.is_file():  # a shorter audit than the first config's
        shorter = config.read_text().replace("attacks: auto", "attacks: [loss_threshold]")
        config.write_text(shorter.replace("rounds: 10", "rounds: 2"))
    if "--seal seal.json" in line:  # the deployed file, and the seal that came with it
        seal = folder / "runs/mine/seal.json"
        shutil.copy(seal, folder)
        key = envelope.public_key(folder / "key.pub.pem")
        record = open_seal(seal.read_bytes(), key, datetime.now(UTC), str(seal)).record
        shutil.copy(folder / "runs/mine" / record.model, folder / "model.safetensors")
    if line.startswith("fedaudit import "):
        (folder / "shorter.yaml").write_text("attacks: [example_numbers]")
        line += " --config shorter.yaml"
    return line


@pytest.mark.parametrize("page", SHOWN, ids=ident)
def test_the_commands_of_a_page_do_what_they_say(page: Path, desk: Path) -> None:
    shown = "\n".join(fences(page, "sh")).replace("\\\n", " ").splitlines()
    typed = [c for c in (commands(page) if page.name == "README.md" else shown) if c.startswith("fedaudit ")]
    assert typed
    for line in dict.fromkeys(typed):
        code, said = type_line(prepare(line, desk), desk)
        assert code in VERDICTS and "Traceback" not in said, (line, said)


@pytest.mark.parametrize("page", TAUGHT, ids=ident)
def test_the_python_of_a_page_runs_as_a_program(page: Path, desk: Path) -> None:
    for number, code in enumerate(c for c in fences(page, "python") if ">>>" not in c):
        first = code.splitlines()[0]
        if first.startswith("# ") and first.endswith(".py"):  # a file that the page shows
            (desk / first[2:]).write_text(code)
            continue
        if any(importlib.util.find_spec(name) is None for name in FRAMEWORKS.findall(code)):
            continue  # that its reader has
        code = code.replace("trust_plugins=True)", f"trust_plugins=True, {SHORT})")
        if importlib.util.find_spec("pandas") is None:  # an extra
            code = code.replace(".to_frame()", ".to_dicts()")
        (desk / f"block_{number}.py").write_text(f"from given import *\nimport fedaudit as fa\n{code}")
        status, said = type_line(f"{sys.executable} block_{number}.py", desk)
        refused = "AssertionError" in said and "assert audit.verdict" in code  # not ready, so the gate is shut
        assert status == 0 or refused, (code, said)


FUNCTIONS = [name for name in fa.__all__ if inspect.isfunction(getattr(fa, name))]


def test_every_function_has_an_example_that_holds(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    names: dict[str, Any] = {}
    exec(GIVEN, names)
    failed = {}
    for name in FUNCTIONS:
        (example,) = doctest.DocTestFinder(recurse=False).find(getattr(fa, name), name, globs=dict(names))
        outcome = doctest.DocTestRunner().run(example)
        if outcome.failed or not outcome.attempted:
            failed[name] = outcome
        assert "Examples:\n" in (
            inspect.getdoc(getattr(fa, name)) or ""
        )  # another title is no section of the site
    assert len(FUNCTIONS) == 11 and failed == {}


@pytest.mark.parametrize("page", [p for p in PAGES if fences(p, "yaml")], ids=ident)
def test_the_configs_of_a_page_are_audited(page: Path, desk: Path) -> None:
    for code in fences(page, "python"):
        if (first := code.splitlines()[0]).startswith("# "):
            (desk / first[2:]).write_text(code)
    for number, body in enumerate(fences(page, "yaml")):
        given = yaml.safe_load(body)
        if any(keys <= set(given[0] if isinstance(given, list) else given) for keys in OTHERS):
            continue
        config = with_what_it_leaves_out(given)
        if any(own in body for own in ("models/mine", "mine:Majority", "mine.npz")):  # of the reader's own
            continue
        config["method"] |= {"rounds": 9 if "leave: 8" in body else 1}
        config |= {"budget": 0.1, "report": ["json"]}
        (desk / f"config_{number}.yaml").write_text(yaml.safe_dump(config))
        status, said = type_line(f"fedaudit run config_{number}.yaml --trust-plugins", desk)
        assert status in VERDICTS and "Traceback" not in said, (body, said)
