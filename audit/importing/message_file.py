"""The file of one message: where it lies, and what its header says of its arrays, checked against its size."""

import io
import math
from pathlib import Path

from fedaudit.fl.recording.recorder import read_head
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

# Bytes of a number of each type
BYTES = {"F64": 8, "F32": 4, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1}
BYTES |= {"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
NUMPY = {name: "?" if name == "BOOL" else f"{name[0].lower()}{size}" for name, size in BYTES.items()}
BYTES |= {"C64": 8, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
NUMPY |= {"BF16": "f4", "F8_E4M3": "f4", "F8_E5M2": "f4"}  # as they are read
MOST_OF_A_HEADER = 10_000_000
FORBIDDEN = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x93NUMPY")
RECIPE = (
    "convert it where it was made: load it there, then Inbox.message(...) of the file that "
    "`fedaudit tools recorder plain` writes"
)
Header = dict[str, tuple[str, tuple[int, ...]]]  # array -> type and shape


def locate(inbox: Path, name: str) -> Path:
    """The file of a message; raises UserError where it is none or lies elsewhere."""
    path = inbox / f"{name}.safetensors"
    if path.resolve() != inbox.resolve() / f"{name}.safetensors":
        raise UserError(
            f"{path} is a link or leads through one", hint="do not trust this inbox; its files lie in it"
        )
    if not path.is_file():  # nor a pipe, which would never end
        raise UserError(f"{path} is missing or is not a file", hint="copy the whole inbox")
    return path


def header(path: Path) -> Header:
    """What a message's file says of its arrays, without reading them.

    Raises UserError where it is no safetensors file, or has no room for such arrays.
    """
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        file.seek(0)
        return parse_header(file.read(8 + min(length, MOST_OF_A_HEADER)), path.stat().st_size, path)


def parse_header(data: bytes, size: int, path: Path) -> Header:
    """The header of a file of `size` bytes that begins with `data`: no array is larger than its file."""
    try:
        head = read_head(io.BytesIO(data), min(size - 8, MOST_OF_A_HEADER))
        entries = parse_json(head)
        found = {}
        for name, entry in entries.items():
            if name == "__metadata__":
                continue
            shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
            if any(type(n) is not int or n < 0 for n in (*shape, start, end)) or len(shape) > 16:
                raise ValueError(f"array {name!r:.60} has no shape")
            if entry["dtype"] not in BYTES:
                raise ValueError(f"array {name!r:.60} has type {entry['dtype']!r:.20}; send float32 or float16")
            if math.prod(shape) * BYTES[entry["dtype"]] != end - start or end > size - 8 - len(head):
                raise ValueError(f"array {name!r:.60} of {math.prod(shape):,} numbers is not in the file")
            found[name] = (str(entry["dtype"]), shape)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if data.startswith(FORBIDDEN):  # asked last: a header of 640 bytes begins like a pickle
            raise UserError(
                f"{path} is a pickle, an archive or a numpy file, not safetensors", hint=RECIPE
            ) from None
        raise UserError(f"{path} is not safetensors: {error}", hint="write it with safetensors") from error
    return found
