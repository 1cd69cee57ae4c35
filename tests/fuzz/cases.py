"""What is tried: a case is plain values, drawn by hypothesis or kept in corpus/, played in a forked process."""

import gzip
import hashlib
import io
import json
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st
from PIL import Image

from fedaudit.audit.case.reading import survey
from tests.fuzz.child import command, ended, guarded
from tests.fuzz.mutate import apply
from tests.test_house import ROOT

PLACE = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where flushing to the disk takes no time
CONFIG = """
title: A small run
federation: {dataset: digits, clients: 3, partition: {name: iid}, model: logreg}
method: {name: fedavg, rounds: 2, local_epochs: 1}
protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 1.0}]
workers: 0
report: [json]
record: all
attacks: [example_numbers]
noise_audit: false
"""
GROUPS = {"budget": ("dp",), "shred": ("tools",)}
PHASES = ("simulate", "attack", "account", "score", "report")
COMMANDS = (
    *("check", "verify", "score", "report", "account", "attack", "budget", "compare", "run", "simulate"),
    *("explain", "sealed", "seal", "shred"),
)
CHANGES = (
    *("value", "value", "value", "drop", "twice", "cut", "insert", "flip", "whole"),
    *("swap", "copy", "more", "link", "pipe", "folder", "sparse", "delete"),
)

_fraction = st.floats(0, 1, exclude_max=True, width=32)
_change = st.tuples(st.sampled_from(CHANGES), _fraction, _fraction, st.integers(0, 999))
_changes = st.lists(_change, min_size=1, max_size=3)
_content = st.lists(
    st.tuples(
        st.sampled_from(("value", "value", "value", "drop", "twice", "flip", "cut", "insert")), _fraction
    ).flatmap(lambda t: st.tuples(st.just(t[0]), st.just(t[1]), _fraction, st.integers(0, 999))),
    min_size=1,
    max_size=4,
)
folders = st.fixed_dictionaries(
    {
        "kind": st.just("folder"),
        "command": st.sampled_from(COMMANDS),
        "sealed": st.booleans(),
        "changes": _changes,
    }
)
configs = st.fixed_dictionaries(
    {"kind": st.just("config"), "command": st.sampled_from(("show", "plan")), "changes": _content}
)
claims = st.fixed_dictionaries({"kind": st.just("claims"), "changes": _content})
TERMS = ("terms", "policy", "key", "seal")
terms = st.fixed_dictionaries({"kind": st.just("terms"), "command": st.sampled_from(TERMS), "changes": _content})
_odd = st.lists(st.tuples(_fraction, _fraction, st.integers(0, 999)), max_size=2)
inboxes = st.fixed_dictionaries(
    {
        "kind": st.just("inbox"),
        "command": st.sampled_from(("import", "import", "import", "plan", "init")),
        "changes": st.lists(_change, max_size=2),
        "arrays": _odd,  # of a message or of a truth
        "variants": st.sampled_from(("[]", "[]", "[]", "[]", "auto")),  # most of an audit's time
    }
)
FORMS = ("idx", "gzip", "leaf", "npz", "images", "texts", "lines", "model")
data = st.fixed_dictionaries(
    {"kind": st.just("data"), "form": st.sampled_from(FORMS), "changes": _content | _changes}
)


@cache
def _bases() -> Path:
    """A finished run, configs, claims and data files to change; made once a process."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.evidence.phase import PHASES
    from fedaudit.audit.phases.execute import execute
    from fedaudit.audit.settings.config import load

    base = Path(mkdtemp(prefix="fuzz-", dir=PLACE))
    (base / "config").mkdir()
    (base / "config" / "c.yaml").write_text(CONFIG)
    with chdir(base):
        run = RunDir.create(base / "folder")
        names = [p.name for p in PHASES]
        execute(run, load(base / "config" / "c.yaml"), names, lambda *_: None, skip_finished=False)
    (base / "claims").mkdir()
    shutil.copy(ROOT / "configs" / "claims" / "local_noise.yaml", base / "claims" / "c.yaml")
    _terms(base / "terms", base / "folder")
    _data(base / "data")
    _inbox(base / "inbox")
    return base


def _terms(folder: Path, run: Path) -> None:
    """A reviewer's files, and what an owner hands over beside a folder: its seal, and a model."""
    from fedaudit.audit.attestation.chain import read_chain
    from fedaudit.audit.attestation.seal import find_release
    from tests.audit.attestation.forger import make_key, seal

    folder.mkdir()
    seal(run, make_key(folder))
    shutil.copy(run / "seal.json", folder / "seal.json")
    shutil.copy(run / find_release(run / "artifacts"), folder / "model.safetensors")
    about = {"run": read_chain(run).content(), "reason": "It is a pilot.", "owner": "A. Person"}
    finding = {"finding": "example_numbers", "severity": "medium", "digest": "0" * 64}
    rows = [{**about, **what, "expires": "2999-01-31"} for what in (finding, {"question": "membership.x.y"})]
    asked = {
        "fail_on": "medium",
        "attacks": ["example_numbers", {"name": "lira", "shadows": 16}],
        "waivers": rows,
    }
    (folder / "terms.yaml").write_text(yaml.safe_dump(asked))
    shutil.copy(ROOT / "audit" / "policy" / "default.yaml", folder / "policy.yaml")


def _inbox(folder: Path) -> None:
    """A recorded federation with what its operator states and what its clients hold."""
    from tests.audit.importing import theirs

    shutil.copytree(theirs.FLOWER / "inbox", folder / "inbox")
    shutil.copytree(theirs.TRUTH, folder / "truth")
    theirs.written(folder, method=None)
    (folder / "own.yaml").write_text(
        "attacks: [label_counts_from_update]\nworkers: 0\nreport: [json]\nvariants: []\n"
    )


ODD: list[Any] = [
    *(np.array([40]), np.array(40.5), np.array(1e300), np.array([1e300] * 3), np.array([np.nan, 1.0])),
    *(np.zeros(0), np.zeros((0, 3)), np.array(-1), np.array(2**62), np.zeros((2, 1, 2, 1, 2)), np.ones(7, bool)),
    *(np.arange(6, dtype=np.uint8), np.ones((3, 3), np.float16), np.array(np.inf), np.array(["text", "more"])),
]


def _replace_arrays(folder: Path, changes: Sequence[Any]) -> None:
    """One array of a message or of a truth replaced; the manifest's digests fit afterwards."""
    from safetensors.numpy import load, save

    for file, which, value in changes:
        files = sorted(p for p in folder.rglob("*") if p.suffix in (".npz", ".safetensors") and p.is_file())
        if not files:
            return
        path, odd = files[int(file * len(files))], ODD[int(value) % len(ODD)]
        with suppress(Exception):  # what an earlier change broke
            is_truth = path.suffix == ".npz"
            arrays = dict(np.load(path)) if is_truth else load(path.read_bytes())
            arrays[sorted(arrays)[int(which * len(arrays))]] = odd
            if is_truth:
                np.savez(path, **arrays)
                continue
            path.write_bytes(save(arrays))
            manifest = folder / "inbox" / "manifest.jsonl"
            lines = [json.loads(line) for line in manifest.read_text().splitlines()]
            for line in lines:
                if "message" in line and folder / "inbox" / f"{line['message']}.safetensors" == path:
                    line["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            manifest.write_text("\n".join(map(json.dumps, lines)) + "\n")


def _data(folder: Path) -> None:
    from fedaudit.fl.runtime.errors import UserError
    from tests.fl.models.test_hf import write_folder

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (20, 28, 28), np.uint8), (np.arange(20) % 10).astype(np.uint8)
    for form, end in (("idx", ""), ("gzip", ".gz")):
        (folder / form).mkdir(parents=True)
        for part in ("train", "t10k"):
            for what, array in (("images-idx3", x), ("labels-idx1", y)):
                head = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape)
                raw = head + array.tobytes()
                (folder / form / f"{part}-{what}-ubyte{end}").write_bytes(gzip.compress(raw) if end else raw)
    for part in ("train", "test"):
        (folder / "leaf" / "femnist" / "data" / part).mkdir(parents=True)
        users = {u: {"x": rng.random((4, 784)).tolist(), "y": [0, 1, 2, 3]} for u in ("a", "b")}
        content = {"users": list(users), "num_samples": [4, 4], "user_data": users}
        (folder / "leaf" / "femnist" / "data" / part / "all.json").write_text(json.dumps(content))
        for label in ("cat", "dog"):
            (folder / "images" / part / label).mkdir(parents=True)
            for i in range(2):
                Image.fromarray(x[i]).save(folder / "images" / part / label / f"{i}.png")
    (folder / "npz").mkdir()
    np.savez(folder / "npz" / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (folder / "lines").mkdir()
    people = [{"text": f"the ward was quiet on day {i}", "label": i % 2, "owner": f"p{i % 4}"} for i in range(12)]
    (folder / "lines" / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in people))
    for label in ("calm", "busy"):
        (folder / "texts" / label).mkdir(parents=True)
        for i in range(6):
            (folder / "texts" / label / f"{i}.txt").write_text(f"the ward was {label} on day {i}")
    with suppress(UserError):  # of an extra that may not be installed
        write_folder(folder / "model")


def sealed_again(folder: Path) -> None:
    """What an owner does who knows of the chain: its digests fit what is there."""
    from fedaudit.audit.attestation import chain as links
    from fedaudit.audit.case.digests import of_value
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.evidence.phase import read_phases

    run = RunDir(folder)
    for name in ("simulate", "attack", "account", "score", "report"):
        links.end(run.path, name)
    chain, record = links.read_chain(run.path), read_phases(run.path)
    for name, link in chain.links.items():
        link.settings = of_value(record[name]["settings"])
        link.read |= {other: chain.links[other].digest() for other in links.READS[name] if other in chain.links}
    run.write_json(run.chain, chain.model_dump())


UNCHANGED: dict[str, list[dict[str, Any]]] = {
    "folder": [{"command": name, "sealed": False} for name in ("verify", "compare", "budget")],
    "inbox": [{"command": "import"}, {"command": "plan"}, {"command": "init"}],
    "config": [{"command": "show"}, {"command": "plan"}],
    "claims": [{}],
    "terms": [{"command": name} for name in TERMS],
    "data": [{"form": form} for form in FORMS],
}


@cache
def _warm(kind: str) -> None:
    """Let this process load what reading unchanged files of a kind needs, so that its children need not."""
    sandbox = Path(mkdtemp(prefix="fuzz-warm-", dir=PLACE))
    for case in UNCHANGED[kind]:
        source = _bases() / kind
        shutil.rmtree(sandbox, ignore_errors=True)
        shutil.copytree(source / case["form"] if kind == "data" else source, sandbox / "target")
        with chdir(sandbox), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            _act({"kind": kind, **case}, sandbox / "target")()
    shutil.rmtree(sandbox, ignore_errors=True)


def play(case: Mapping[str, Any]) -> str:
    """What went wrong, as a phrase with what was said; empty where nothing did."""
    _warm(case["kind"])
    sandbox = Path(mkdtemp(prefix="fuzz-case-", dir=PLACE))
    try:
        target = sandbox / "target"
        source = _bases() / case["kind"]
        shutil.copytree(source / case["form"] if case["kind"] == "data" else source, target)
        if "variants" in case:
            own = target / "own.yaml"
            own.write_text(own.read_text().replace("variants: []", f"variants: {case['variants']}"))
        _replace_arrays(target, case.get("arrays", ()))
        apply(target, case["changes"])
        with guarded(sandbox, "target") as outside:
            outcome = ended(_act(case, target), sandbox)
        if outside:
            return f"wrote {outside[0]}"
        return f"{fault}: {outcome.text[-600:]}" if (fault := outcome.fault()) else ""
    finally:
        shutil.rmtree(sandbox, ignore_errors=True)


def _act(case: Mapping[str, Any], target: Path) -> Callable[[], None]:
    if case["kind"] == "data":
        return lambda: _load(case["form"], target)
    if case["kind"] == "config":
        return command(case["command"], "target/c.yaml")
    if case["kind"] == "inbox":
        return _act_on_inbox(case["command"])
    if case["kind"] == "claims":
        return lambda: _claims(target / "c.yaml")
    if case["kind"] == "terms":
        return _act_with_terms(case["command"])
    name = case["command"]
    arguments = [name, "target"]
    if name in ("run", "simulate"):
        arguments = ["run", "target/config.yaml", "--out", "target"]
    elif name in PHASES:
        arguments = ["run", "target"]
    elif name == "compare":
        arguments = [name, "target", "target"]
    elif name == "explain":
        arguments = [name, "example_numbers", "--run", "target"]
    elif name == "shred":
        arguments = [name, "target"]
    elif name == "seal":
        arguments = ["check", "target", "--sign", str(_bases() / "terms" / "sealer.pem")]
    elif name == "sealed":
        arguments = ["verify", "target", "--key", str(_bases() / "terms" / "sealer.pub.pem")]

    if name in PHASES:
        arguments += ["--phase", name]

    def act() -> None:
        if case["sealed"]:
            with suppress(Exception):
                survey(target)  # of plain files only
                sealed_again(target)
        command(*GROUPS.get(name, ()), *arguments)()

    return act


def _act_on_inbox(name: str) -> Callable[[], None]:
    if name == "plan":
        return command("plan", "target/inbox")
    if name == "init":
        return command("init", "target/new.yaml", "--from", "target/inbox", "--truth", "target/truth")
    more = ("--config", "target/own.yaml", "--out", "target/run", "--trust-plugins")
    taken = command(
        "import", "target/inbox", "--subject", "target/subject.yaml", "--truth", "target/truth", *more
    )

    def act() -> None:
        try:
            taken()
        except SystemExit as left:
            if left.code:
                raise
        command("run", "target/run", "--trust-plugins")()  # what was taken in can be audited

    return act


def _act_with_terms(name: str) -> Callable[[], None]:
    run, key = str(_bases() / "folder"), "target/sealer.pub.pem"
    if name == "key":
        return command("verify", run, "--key", key, "--authority", "target/sealer.pub.pem")
    if name == "seal":
        return command("verify", "target/model.safetensors", "--seal", "target/seal.json", "--key", key)
    return command("check", run, f"--{name}", f"target/{name}.yaml")


def _claims(path: Path) -> None:
    from fedaudit.audit.claims.claim import load
    from fedaudit.fl.runtime.errors import UserError

    with suppress(UserError):
        load(path)


def _load(form: str, folder: Path) -> None:
    from fedaudit.audit.settings import catalog
    from fedaudit.fl.data.dataset import read_data
    from fedaudit.fl.data.hf_folder import read_folder_tokenizer
    from fedaudit.fl.runtime.errors import UserError
    from fedaudit.fl.runtime.plugin import configure
    from tests.fl.models.test_hf import build

    files = sorted(folder.rglob("*.npz"))
    settings = {
        "idx": ("mnist", {"path": str(folder)}),
        "gzip": ("mnist", {"path": str(folder)}),
        "leaf": ("femnist", {"path": str(folder / "femnist" / "data")}),
        "npz": ("npz", {"path": str(files[0]) if files else "absent.npz"}),
        "images": ("image_folder", {"path": str(folder / "train"), "size": 8}),
        "texts": ("text_folder", {"path": str(folder), "vocabulary": 300}),
        "lines": ("jsonl", {"path": str(folder / "d.jsonl"), "vocabulary": 300}),
    }
    if form == "model":
        with suppress(UserError):
            read_folder_tokenizer(str(folder)).cut("the ward was quiet")
            build(folder)
        return
    name, given = settings[form]
    with suppress(UserError):
        read_data(configure(catalog.load("datasets", name), given, "federation.dataset"))


def readable(path: Path) -> list[dict[str, Any]]:
    """The kept cases."""
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    return found
