"""The chain of a run: one link a phase in chain.json, with digests of what it read, of code and of what it wrote.

A link names the links it read, so that a file of one phase cannot change without every later phase and
`fedaudit check` saying so. Who recomputes the whole chain leaves no trace in it: hold a digest that `fedaudit
verify` prints, or a seal. Times, threads, the commit and registrations differ between two runs of one config: the
digest of the content leaves them out, and that of the record has them (audit/attestation/record.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedaudit.audit.case.digests import commit, named_plugins, of_file, of_value, packages
from fedaudit.audit.case.environment import versions
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import Form
from fedaudit.audit.settings.config import SIMULATED, Config
from fedaudit.audit.settings.spec import NamedPlugin
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.fl.runtime.errors import UserError

# Of folders as this version leaves and reads them. Raised where it would refuse, or judge otherwise, what an
# earlier one left; of those audit/attestation/earlier.py holds digests and seal
FORM = 3
# What each phase leaves, as patterns below the run folder
WRITES = {
    "simulate": ("artifacts/manifest.jsonl", "ledger.jsonl", "metrics.jsonl", "data.json", "environment.json"),
    "import": (
        *("artifacts/manifest.jsonl", "ledger.jsonl", "metrics.jsonl", "data.json", "environment.json"),
        *("truth.safetensors", "base.safetensors", "import.json", "inbox.json", "stated-ledger.jsonl", "*.py"),
    ),
    "attack": ("evidence/[0-9]*.json", "evidence/checks.json"),
    "account": (
        "evidence/ledger.json",
        "evidence/budgets.json",
        "evidence/noise_audits.json",
        "evidence/replay.json",
    ),
    "matrix": ("evidence/matrix.json", "evidence/absence.json"),
    "score": ("audit.json", "policy.json"),
    "report": ("report.*",),
}
# What a phase leaves only where the config, or an operator, asks for it; all else it leaves always
OPTIONAL = (
    *("truth.safetensors", "base.safetensors", "stated-ledger.jsonl"),
    *("evidence/matrix.json", "evidence/absence.json"),
)
READS: dict[str, tuple[str, ...]] = {  # of a recorded case "import" stands where "simulate" does
    "simulate": (),
    "import": (),
    "attack": ("simulate",),
    "account": ("simulate",),
    "matrix": ("simulate",),
    "score": ("simulate", "attack", "account", "matrix"),
    "report": ("score",),
}


class Aside(Form):
    """What differs between two runs of one config: in the record's digest, and not in the content's."""

    started: str
    threads: int  # of this process; attacks and the server compute on one
    commit: str


class Link(Form):
    """One phase. Digests are SHA-256; `read` has those of other links, of the policy and of files of claims."""

    settings: str
    read: dict[str, str]
    versions: dict[str, str]
    packages: dict[str, str]
    plugins: dict[str, str]
    wrote: dict[str, str] | None = None  # None: did not end
    aside: Aside

    def digest(self) -> str:
        return of_value(self.model_dump(exclude={"aside"}))


class Registration(Form):
    """What was fixed before an attack phase: the policy, and the plan with its seeds and numbers of trials."""

    at: str  # ISO 8601, UTC
    policy: str
    plan: str
    first_evidence: str = ""


class Chain(Form):
    """chain.json."""

    form: int = 0  # of the folder; before there were forms, none was stated
    links: dict[str, Link] = {}
    registrations: list[Registration] = []

    def content(self) -> str:
        """Digest of all but the report, which follows from audit.json and holds times."""
        return of_value({name: link.digest() for name, link in self.links.items() if name != "report"})


def read_chain(folder: Path) -> Chain:
    """chain.json; empty where there is none. Raises UserError where it is damaged."""
    run = RunDir(folder)
    return run.read(run.chain, Chain) if run.chain.exists() else Chain(form=FORM)


def _save(folder: Path, chain: Chain) -> None:
    run = RunDir(folder)
    run.write_json(run.chain, chain.model_dump())


def is_of_this_code(chain: Chain) -> bool:
    """Whether the verdict was made by the packages that are installed here."""
    return "score" in chain.links and chain.links["score"].packages == packages()


def first_of(chain: Chain) -> str:
    """The phase that everything else begins with."""
    return "import" if "import" in chain.links else "simulate"


def reads(name: str, first: str) -> tuple[str, ...]:
    """What a phase reads, in a run that begins with `first`."""
    return tuple(first if r == "simulate" else r for r in READS[name])


def begin(folder: Path, config: Config, name: str, settings: Mapping[str, Any]) -> None:
    """Before a phase: what it will read and with what, kept before it computes anything.

    Raises UserError where what it reads was changed, or a simulation would continue with other code.
    """
    chain = read_chain(folder)
    if chain.form != FORM:
        raise UserError(f"{folder} was made by an earlier version of fedaudit", hint="run into a new folder")
    verify(folder, chain, reads(name, first_of(chain)))
    read = _digest_links(chain, name) | digest_terms(config, name)
    keys = (*SIMULATED, "subject", *settings)
    link = _make_link(settings, read, named_plugins(p for p in config.list_plugins() if p.key in keys))
    before = chain.links.get(name)
    if name == "simulate" and (folder / "checkpoint").exists():
        if before is None:
            raise UserError(f"{folder} was simulated and has no chain.json", hint="simulate into a new folder")
        _require_same_code(folder, "simulate began", before, link, whole=True)
        link.aside.started = before.aside.started
    elif name in ("attack", "account", "matrix"):
        first = first_of(chain)
        _require_same_code(folder, f"{first} ran", chain.links[first], link, whole=False)
    for later in downstream(name):
        chain.links.pop(later, None)
    chain.links[name] = link
    if name == "attack":
        plan = of_value([config.seed, settings, config.delta, config.noise_audit])
        policy = load_policy(config.locate_policy()).sha256
        chain.registrations.append(Registration(at=now(), policy=policy, plan=plan))
    _save(folder, chain)


def end(folder: Path, name: str) -> None:
    """After a phase: what it wrote."""
    chain = read_chain(folder)
    chain.links[name].wrote = dict(_list_written(folder, name))
    if name == "attack" and chain.registrations:
        times = [path.stat().st_mtime for path in (folder / "evidence").glob("[0-9]*.json")]
        first = datetime.fromtimestamp(min(times), UTC).isoformat(timespec="seconds") if times else ""
        chain.registrations[-1].first_evidence = first
    _save(folder, chain)


def same_settings(folder: Path, chain: Chain, name: str, settings: Mapping[str, Any]) -> None:
    """Raises UserError where a phase ran with other settings than are said of it."""
    link = chain.links.get(name)
    if link is not None and link.settings != of_value(settings):
        raise UserError(
            f"{folder}: {name} ran with other settings than phases.json says, by their SHA-256",
            hint=f"restore config.yaml and phases.json, or run `fedaudit {name}` again",
        )


def current(chain: Chain, name: str, terms: dict[str, str]) -> bool:
    """Whether a phase would read today what it read: of other phases, and of what `digest_terms` lists."""
    link = chain.links.get(name)
    return link is not None and link.wrote is not None and link.read == _digest_links(chain, name) | terms


def find_other_code(chain: Chain, name: str, plugins: Iterable[NamedPlugin]) -> list[str]:
    """Code of somebody's own, among these plugins, that a phase ran and that is another one here."""
    link = chain.links.get(name)
    now = {} if link is None else named_plugins(p for p in plugins if p.spec.foreign)
    return [plugin for plugin, digest in now.items() if link and link.plugins.get(plugin, digest) != digest]


def verify(folder: Path, chain: Chain, names: Iterable[str]) -> None:
    """Raises UserError that names the first file that is not what these phases, or those they read, left."""
    for problem in broken(folder, chain, names):
        raise UserError(problem, hint="restore the folder, or run that phase again")


def broken(folder: Path, chain: Chain, names: Iterable[str]) -> Iterator[str]:
    """What does not fit in these phases and those they read, as sentences."""
    first = first_of(chain)
    for name in _with_upstream(names, first):
        link = chain.links.get(name)
        if link is None or link.wrote is None:
            yield f"{RunDir(folder).chain} does not say what {name} left"
            continue
        found = dict(_list_written(folder, name))
        for file in (p for p in WRITES[name] if "*" not in p and p not in (*OPTIONAL, *link.wrote)):
            yield f"{folder / file} is missing, and {name} always leaves it"
        for file in sorted(link.wrote.keys() | found.keys()):
            if file not in found:
                yield f"{folder / file} is missing, and {name} wrote it"
            elif file not in link.wrote:
                yield f"{folder / file} is there, and {name} did not write it"
            elif found[file] != link.wrote[file]:
                yield f"{folder / file} is not what {name} wrote: its SHA-256 differs"
        for other in reads(name, first):
            if other in chain.links and link.read.get(other) != chain.links[other].digest():
                yield f"{folder}: {name} read another {other} than the folder holds"


def downstream(name: str) -> list[str]:
    """Phases that read a phase's output, directly or through another."""
    found, name = list[str](), "simulate" if name == "import" else name
    for later, read in READS.items():
        if any(r == name or r in found for r in read):
            found.append(later)
    return found


def _with_upstream(names: Iterable[str], first: str) -> list[str]:
    wanted = set(names)
    for name in reversed(WRITES):
        if name in wanted:
            wanted |= set(reads(name, first))
    return [n for n in WRITES if n in wanted]


def _list_written(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    for pattern in WRITES[name]:
        for path in sorted(folder.glob(pattern)):
            relative = path.relative_to(folder).as_posix()
            if not path.is_file():
                raise UserError(f"{path} is a folder, not a file", hint="restore it, or run its phase again")
            yield relative, of_file(RunDir(folder).inside(path.absolute()), relative)


def _make_link(settings: Mapping[str, Any], read: dict[str, str], plugins: dict[str, str]) -> Link:
    import torch  # only who runs a phase needs it

    return Link(
        settings=of_value(settings),
        read=read,
        versions=versions(),
        packages=packages(),
        plugins=plugins,
        aside=Aside(started=now(), threads=torch.get_num_threads(), commit=commit()),
    )


def _digest_links(chain: Chain, name: str) -> dict[str, str]:
    return {other: chain.links[other].digest() for other in reads(name, first_of(chain)) if other in chain.links}


def digest_terms(config: Config, name: str, policy: GradingPolicy | None = None) -> dict[str, str]:
    """What a phase reads besides other phases: the policy, which only a verdict reads.

    `policy` is by default the one that the config names.
    """
    if name != "score":
        return {}
    return {"policy": (policy or load_policy(config.locate_policy())).sha256}


def find_registration(chain: Chain, policy: GradingPolicy) -> tuple[str, str]:
    """When this policy was fixed and when the first evidence was there; empty where it was not fixed before."""
    last = chain.registrations[-1:]
    if not last or last[0].policy != policy.sha256:
        return "", last[0].first_evidence if last else ""
    return last[0].at, last[0].first_evidence


def inputs(chain: Chain, trained_on: Mapping[str, str]) -> dict[str, str]:
    """What a run was made from, with its SHA-256: data, packages and plugins."""
    found = dict(trained_on)
    for link in (chain.links[name] for name in reads("score", first_of(chain)) if name in chain.links):
        found |= {f"package {name}": digest for name, digest in link.packages.items()} | link.plugins
    return found


def _require_same_code(path: Path, did: str, before: Link, now: Link, *, whole: bool) -> None:
    """Raises UserError where the code differs: all of it, or the project's version and plugins named by both."""
    pairs = [("fedaudit", before.versions.get("fedaudit"), now.versions.get("fedaudit"))]
    if whole:
        pairs += [(k, before.versions.get(k), v) for k, v in now.versions.items()]
        pairs += [(f"our package {k}", before.packages.get(k), now.packages[k]) for k in ("fl", "attacks")]
    pairs += [(k, before.plugins[k], v) for k, v in now.plugins.items() if k in before.plugins]
    for what, old, new in pairs:
        if old != new:
            raise UserError(
                f"{path}: {did} with {what} {_shorten(old)}, and here it is {_shorten(new)}",
                hint="use what it began with, or simulate into a new folder",
            )


def _shorten(text: str | None) -> str:
    return f"{text[:12]}..." if text and len(text) == 64 else str(text)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
