"""Records what crosses the wire of a federation, for an audit by fedaudit. Needs numpy and safetensors only.

    inbox = Inbox("/data/inbox")
    inbox.message(0, "downlink", "server", ["client"], {"global_model": {"head.weight": array, ...}})
    inbox.message(0, "uplink", inbox.client("hospital-7"), ["server"],
                  {"local_model": {...}, "num_examples": {"count": 120}})

Record what the server received, after all filters of the clients. A value may be an array, a tensor, a number,
a text, bytes, or lists and mappings of such: each becomes arrays, texts and bytes those of their bytes. A
message is a file written aside and renamed, then its line in manifest.jsonl: whatever kills the process, a
line stands for a whole file. Nothing is raised into the training: what cannot be recorded is logged and stands
in the manifest with its name and size. Several processes of one machine may write to one folder, which its
user alone may open. At a site, `approve` asks a command such as `fedaudit tools guard` before anything leaves,
and is the one thing that raises. The format is docs/artifact-format.md of fedaudit.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import save

FORMAT, VERSION = "fedaudit-artifacts", 1
LOG = logging.getLogger("fedaudit.recorder")
Arrays = Mapping[str, Any]
# what file systems answer that cannot lock: network mounts of clusters, overlays
NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.EBADF}


def list_arrays(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The arrays that hold a value, by name; what no array can hold comes as it is.

    What a mapping holds is named after it, NAME.KEY; a list is one array where its items are numbers of one
    shape, one text of a line for each where they are texts, and else an array an item, NAME.0, NAME.1, ...
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from list_arrays(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, str):
        yield name, np.frombuffer(value.encode("utf-8", "surrogatepass"), np.uint8)
    elif isinstance(value, bytes | bytearray | memoryview):
        yield name, np.frombuffer(bytes(value), np.uint8)
    elif value is None:
        yield name, np.zeros(0, np.uint8)
    else:
        array = _store(value)
        if array is not None:
            yield name, array
        elif isinstance(value, list | tuple | set | frozenset):
            if value and all(isinstance(inner, str) for inner in value):
                yield from list_arrays("\n".join(value), name)
                return
            for i, inner in enumerate(value):
                yield from list_arrays(inner, f"{name}.{i}")
        elif isinstance(value, np.ndarray) and value.dtype.names:
            for key in value.dtype.names:
                yield from list_arrays(value[key], f"{name}.{key}")
        elif (
            isinstance(value, np.ndarray | np.generic)
            and value.dtype.kind in "OUS"
            and value.tolist() is not value
        ):
            yield from list_arrays(value.tolist(), name)
        elif isinstance(value, int):  # longer than 64 bits
            yield from list_arrays(str(value), name)
        else:
            yield name, value


def _store(value: Any) -> np.ndarray[Any, Any] | None:
    """An array as an import takes it; None of what is no array of numbers.

    Complex numbers become pairs, short floats float32, long ones float64, times whole numbers.
    """
    try:
        if hasattr(value, "detach"):  # a tensor, which may require a gradient and may have no type of numpy's
            value = value.detach().cpu()
            value = value.to_dense() if getattr(value, "is_sparse", False) else value
            value = value.dequantize() if getattr(value, "is_quantized", False) else value
            if value.is_floating_point() and value.element_size() <= 2 and str(value.dtype) != "torch.float16":
                value = value.float()
            value = value.resolve_conj().resolve_neg().numpy()
        array = np.asarray(value, order="C")  # safetensors would scramble a transposed array
    except Exception:  # lists of unequal lengths, and whatever somebody's own class raises  # noqa: BLE001
        return None
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    if array.dtype.name.startswith(("bfloat", "float8")):
        return array.astype(np.float32)
    if array.dtype.kind in "mM":
        return array.view(np.int64)
    if array.dtype.kind not in "fiub":
        return None
    return array.astype(np.float64) if array.dtype.kind == "f" and array.dtype.itemsize > 8 else array


def name_kind(whose: str, role: str) -> str:
    """A kind of the federation's own, WHOSE:ROLE, such as client:optimizer, whatever the role is called."""
    word = re.sub(r"[^a-zA-Z0-9_]", "_", role).lstrip("_0123456789")
    return f"{whose}:{word[:60] or 'values'}"


def measure(value: Any) -> int:
    """Bytes of what could not be kept, about."""
    return int(getattr(value, "nbytes", 0) or sys.getsizeof(value))


def _open_private(path: str, flags: int) -> int:
    """Open a file that is its user's alone, whatever the umask is."""
    return os.open(path, flags, 0o600)


class Inbox:
    """One folder of recorded messages. `recorder` says in the manifest what wrote it."""

    def __init__(self, folder: str | os.PathLike[str], recorder: str = "plain") -> None:
        self.folder, self.recorder = Path(folder), recorder
        self._parties: dict[str, int] = {}  # node -> client
        self._names: dict[str, int] = {}  # how often each was used; the second one is NAME.2
        self._sent: dict[tuple[int, str, str], set[str]] = {}  # what was sent by the server already
        self._said: dict[str, dict[str, bytes]] = {}  # what a server repeats -> to whom -> digest
        self._read = 0  # bytes of the manifest that were read
        self._told = False  # that the folder cannot be locked
        self._lock = threading.RLock()

    def client(self, node: object) -> str:
        """The party of a node: client/0, client/1, ... in the order of first sight, also after a restart."""
        found = self.safely("naming a client", lambda: self._client(str(node)))
        return found if found is not None else "client/unknown"

    def message(
        self,
        round: int,
        channel: str,
        sender: str,
        seen_by: Sequence[str],
        kinds: Mapping[str, Arrays],
        *,
        receivers: Sequence[str] = (),
        **more: Any,
    ) -> bool:
        """One message: {kind: {name: value}}, rounds from 0. `more` goes into its line, such as filters=[...].

        Returns whether all of it is recorded.
        """
        way = {"round": int(round), "channel": channel, "sender": sender, "seen_by": list(seen_by)}
        done = self.safely(
            f"a message of {sender} in round {round}", lambda: self._message(way, kinds, receivers, more), **way
        )
        return done is True

    def list_news(self, values: Arrays, receivers: Sequence[str]) -> dict[str, Any]:
        """Those that one of the receivers was not sent before as they are: repetitions are recorded once."""
        found = {}
        for name, value in values.items():
            digest = hashlib.sha256()
            for part, array in list_arrays(value, name):
                is_array = isinstance(array, np.ndarray) and not array.dtype.hasobject
                digest.update(part.encode() + (array.tobytes() if is_array else repr(array).encode()))
            said = self._said.setdefault(name, {})
            if any(said.get(who) != digest.digest() for who in receivers):
                found[name] = value
            said |= dict.fromkeys(receivers, digest.digest())
        return found

    def note_failure(self, what: str, error: object, **lost: Any) -> None:
        """Note in the manifest what could not be recorded, or that a client answered with an error.

        `lost` says of what crossed how many `bytes` are missing, 0 where nothing crossed, and of which `round`,
        `channel`, `sender` and `seen_by`. Of what nobody says that, an audit takes it for an upload.
        """
        LOG.warning("not recorded: %s: %s", what, error)
        with contextlib.suppress(Exception), self._manifest() as add:
            add({"error": f"{what}: {type(error).__name__}: {error}"[:300], **lost})

    def safely(self, what: str, work: Callable[[], Any], **lost: Any) -> Any:
        """work(), or None where it raises; what a hook does around its messages goes through here."""
        try:
            return work()
        except Exception as error:  # training goes on, whatever happens here  # noqa: BLE001
            self.note_failure(what, error, **lost)
            return None

    def approve(self, command: Sequence[str]) -> None:
        """Run a command on the folder before a message leaves, such as ("fedaudit", "tools", "guard", ...).

        Raises PermissionError unless it ends with 0; then nothing may leave.
        """
        done = subprocess.run([*command, str(self.folder)], capture_output=True, text=True, check=False)
        if done.returncode:
            error = PermissionError((done.stdout or done.stderr).strip())
            self.note_failure("a message that was stopped", error, bytes=0)
            raise PermissionError(f"{command[0]} ended with {done.returncode}: the message does not leave")

    def _client(self, node: str) -> str:
        if node not in self._parties:
            with self._manifest() as add:
                if node not in self._parties:  # nor has another process named it
                    self._parties[node] = len(self._parties)
                    add({"party": f"client/{self._parties[node]}", "node": node})
        return f"client/{self._parties[node]}"

    def _message(
        self,
        way: Mapping[str, Any],
        kinds: Mapping[str, Arrays],
        receivers: Sequence[str],
        more: Mapping[str, Any],
    ) -> bool:
        round, channel, sender = (way[key] for key in ("round", "channel", "sender"))
        arrays: dict[str, Any] = {}
        missing: dict[str, Any] = {}
        for kind, part in kinds.items():
            for name, value in list_arrays(part, ""):
                key = f"{kind}/" + "".join(c if c.isprintable() else "_" for c in name or "values")[:290]
                while key in arrays:  # two names that are read alike
                    key += "_"
                is_array = isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
                (arrays if is_array else missing)[key] = value
        for key, value in missing.items():
            error = TypeError(f"{type(value).__name__} is neither numbers, text nor bytes")
            self.note_failure(f"{key} of {sender} in round {round}", error, bytes=measure(value), **way)
        if not arrays:
            if missing:
                return False
            raise ValueError("it holds no arrays")
        data = save(arrays)
        digest = hashlib.sha256(data).hexdigest()
        sent = self._sent.setdefault((round, channel, digest), set()) if sender == "server" else set()
        if sender == "server" and sent and (not receivers or set(receivers) <= sent):
            return not missing  # the same model, sent to the same clients to be evaluated and then to be trained
        base = f"r{round:05d}/{sender.replace('/', '-')}.{channel}"
        with self._manifest() as add:
            number = self._names.get(base, 0) + 1
            name = base if number == 1 else f"{base}.{number}"
            path = self.folder / f"{name}.safetensors"
            path.parent.mkdir(0o700, exist_ok=True)
            aside = path.with_name(f"{path.name}.{os.getpid()}.partial")
            with open(aside, "wb", opener=_open_private) as file:
                file.write(data)
            os.replace(aside, path)
            line = {"message": name, **way, "receivers": list(receivers)}
            kept = {key.partition("/")[0] for key in arrays}
            line |= {"kinds": [kind for kind, part in kinds.items() if kind in kept or not part]}
            line |= {"sha256": digest, "bytes": sum(a.nbytes for a in arrays.values())}
            self._names[base] = number
            add(line | {k: v for k, v in more.items() if v})
        sent |= set(receivers)
        return not missing

    @contextlib.contextmanager
    def _manifest(self) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """The manifest, ours alone meanwhile; what others added is read, half a line of a killed one cut."""
        with self._lock:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            with open(self.folder / "manifest.jsonl", "ab+", opener=_open_private) as file:
                self._hold(file)
                file.seek(self._read)
                tail = file.read()
                whole = tail.rpartition(b"\n")[0].splitlines()
                self._read += sum(len(line) + 1 for line in whole)
                file.truncate(self._read)
                for line in whole:
                    self._take_up_line(json.loads(line))

                def add(line: Mapping[str, Any]) -> None:
                    text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
                    file.write(text)
                    file.flush()
                    self._read += len(text)

                if not self._read:
                    add({"format": FORMAT, "version": VERSION, "recorder": self.recorder})
                yield add

    def _hold(self, file: BinaryIO) -> None:
        """Lock the manifest until it is closed; where the system has no locks, one process alone may write."""
        with contextlib.suppress(ImportError):  # not on Windows
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                if not self._told:
                    self._told = True
                    LOG.warning("%s cannot be locked: let one process alone write to it", self.folder)

    def _take_up_line(self, line: Mapping[str, Any]) -> None:
        if "party" in line:
            self._parties[line["node"]] = int(line["party"].partition("/")[2])
        elif "message" in line:
            base = re.sub(r"\.\d+$", "", line["message"])
            self._names[base] = self._names.get(base, 0) + 1
