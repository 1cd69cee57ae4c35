"""Payloads: all numbers of a message, whatever their type, container and layout, and whose records stand there.

Numbers of any type are read, complex ones part by part. An array of bytes is what it may hold as well: text,
lists of numbers in it, JSON, hexadecimal digits, base64; files of numpy, safetensors and pictures, archives of
such; and numbers of every type in either order of bytes. Nothing is unpickled. What is recognised and not
opened is named.

A record stands there where a stretch of numbers is the record at any scale, offset and sign, or column by
column where it is a row of a table or has few values (raw_rows.py); row by row or column by column, turned,
reversed, channels last; or written so that the numbers do not look like it: in the last bits of numbers, in the
signs of zeros, in pieces of a row, or as all its values in an order that only its reader knows. It is that
record's alone: no other of those looked for fits the place nearly as well, but for copies of it (copies.py). Bits
and signs must be a whole record, a piece the very numbers of a row, an order all values; trained numbers are like
none of these by chance.
"""

import base64
import binascii
import io
import json
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.copies import find_copies
from fedaudit.attacks.evaluation.raw_rows import RowFinder
from fedaudit.attacks.evaluation.readings import list_written, read_last_bits
from fedaudit.attacks.modality.images import to_rows
from fedaudit.fl.data.images import FORMATS

Payload = Mapping[str, NDArray[Any]]
Row = NDArray[np.float32]

LAST_BITS = "in the last bits of its numbers"
SIGNS = "in the signs of its zeros"
PIECES = "in pieces, number by number"
ORDER = "in another order"
LEAST = 16  # values of a record that is told from chance at any scale
TABLE = 2  # dimensions of records that are rows of a table
LEVELS = 16  # grey levels of a record in last bits, at least: 10 million numbers take a second each way
ZEROS = 100_000  # of which signs are read, at most
PIECE = 8  # neighbouring values that are a piece
DIFFERENT = 3  # values of a piece that is no flat ground
COMMON = (
    0.05  # share of numbers that are some record's: where there are more, numbers are on the records' own grid
)
TRIED = 1000  # pieces that are looked for among the records, at most
VALUES = 8  # different ones of a record that is known by them
SAME = 1e-5  # of a standard deviation, by which sorted values may differ
BITS = 24  # of the table of records' values
LARGEST = 1e15  # beyond which a number that bytes happen to spell is no record's
PACKED = 2**32  # from which on a whole number is taken for several bytes
DEPTH = 4  # containers within each other
MOST_BYTES = 2**26  # that a container is unpacked to
MOST_MEMBERS = 10_000  # of an archive
VIEWS = ("<f2", "<f4", "<f8", "<c8", "<c16", ">f4", ">f8", "<i2", "<i4", "<i8", ">i2", ">i4", ">i8")
PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*")
PACKERS = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
HEX = re.compile(rb"(0x)?([0-9a-fA-F]{2}){16,}")
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")


class Numbers(NamedTuple):
    """Numbers of one array of a message, in the shape that they have there."""

    name: str
    values: NDArray[Any]


class Standing(NamedTuple):
    """A record that stands among numbers."""

    record: int
    how: str = ""  # in words, where its numbers do not look like it
    is_row: bool = False  # of a matrix


def read_numbers(payload: Payload) -> list[Numbers]:
    """All numbers of a message, array by array, those that bytes hold after the bytes themselves."""
    found = []
    for name, array in sorted(payload.items()):
        opened = [x for x in _open_array(np.asarray(array)) if not isinstance(x, str)]
        found += [Numbers(f"{name}#{i}" if i else name, x) for i, x in enumerate(opened)]
    return found


def read_spelled(numbers: Sequence[Numbers]) -> list[Numbers]:
    """What bytes among the numbers spell in other types, from every place on; each type by itself."""
    found = dict[str, list[Numbers]]()
    for x in numbers:
        if _is_bytes(x.values):
            for way, values in _spell(np.ascontiguousarray(x.values).tobytes()):
                found.setdefault(way, []).append(Numbers(x.name, values))
    return [x for same in found.values() for x in same]


def find_unopened(payload: Payload) -> dict[str, str]:
    """Array -> what in it was recognised and not read."""
    return {
        name: values
        for name, array in sorted(payload.items())
        for values in _open_array(np.asarray(array))
        if isinstance(values, str)
    }


def subtract_arrays(payload: Payload, start: Payload) -> dict[str, NDArray[Any]]:
    """What arrays changed by from those of the same name and shape."""
    pairs = {n: (np.asarray(v), np.asarray(start[n])) for n, v in payload.items() if n in start}
    return {
        n: np.subtract(new, old, dtype=None if new.dtype.kind in "fc" else np.float64)
        for n, (new, old) in pairs.items()
        if new.shape == old.shape and {new.dtype.kind, old.dtype.kind} <= {*"fiubc"}
    }


def find_in_payload(payload: Payload, records: NDArray[Any], *, rows: RowFinder | None = None) -> list[Standing]:
    """Which of the records [n, ...] stand in a message, and how; `rows` as for find_records()."""
    numbers = read_numbers(payload)
    spelled = find_records(read_spelled(numbers), records, disguised=False, rows=rows)
    return find_records(numbers, records, rows=rows) + spelled


def find_records(
    sent: Sequence[Numbers], records: NDArray[Any], *, disguised: bool = True, rows: RowFinder | None = None
) -> list[Standing]:
    """Which of the records [n, ...] stand among the numbers.

    Args:
        sent: The numbers, array by array.
        records: Of a table also by what each column is, which all records of few values are read by.
        disguised: Whether they are looked for also where they look otherwise.
        rows: What looks for the same records column by column, knowing other people's; None: these are all.
    """
    found = [Standing(record) for record in _find_rows(sent, records, rows)]
    return found + _find_at_any_scale(sent, records, disguised=disguised)


def _find_rows(sent: Sequence[Numbers], records: NDArray[Any], rows: RowFinder | None) -> list[int]:
    is_table = records.ndim == TABLE and records.dtype.kind == "f"
    if not len(records) or not (is_table or records[0].size < LEAST):
        return []
    finder = rows or RowFinder(to_rows(records))
    return sorted(finder.find([x.values for x in sent]))


def _find_at_any_scale(sent: Sequence[Numbers], records: NDArray[Any], *, disguised: bool) -> list[Standing]:
    rows = to_rows(np.ascontiguousarray(records, np.float32))
    arrays = [make_small(x.values) for x in sent if x.values.size]
    if not arrays or not rows.size or rows.shape[1] < LEAST:
        return []
    columns = (to_rows(v).T for v in arrays if v.ndim > 1 and v.shape[0] >= rows.shape[1])
    plain = [*arrays, *map(np.ascontiguousarray, columns)]
    layouts = list_layouts(np.asarray(records, np.float32))
    found = [*_find_plain(plain, layouts)]
    if not disguised:
        return found
    numbers = np.concatenate([v.ravel() for v in arrays])
    ways = {
        LAST_BITS: _find_in_bits(numbers, rows),
        SIGNS: _find_in_signs(numbers, rows),
        PIECES: _find_pieces(np.concatenate([np.append(v, np.float32(np.nan)) for v in arrays]), rows),
        ORDER: _find_reordered([v.ravel() for v in arrays], rows),
    }
    return found + [Standing(record, how) for how, some in ways.items() for record in sorted(some)]


def list_layouts(records: Row) -> list[Row]:
    """[n, d] each: records [n, ...] as they are and, of pictures, turned, and channels last; all reversed too."""
    ways = [records]
    if records.ndim == 4:
        ways += [records.transpose(0, *axes) for axes in ((1, 3, 2), (2, 3, 1), (3, 2, 1))]
    elif records.ndim == 3:
        ways.append(records.transpose(0, 2, 1))
    rows = [to_rows(np.ascontiguousarray(way)) for way in ways]
    found = list[Row]()
    for way in (*rows, *(np.ascontiguousarray(way[:, ::-1]) for way in rows)):
        if not any(np.array_equal(way, known) for known in found):
            found.append(way)
    return found


def make_small(values: NDArray[Any]) -> Row:
    """In single precision, without numbers that nothing can be computed with."""
    with np.errstate(all="ignore"):
        small = np.asarray(values, np.float32)
        return np.where(np.abs(small) <= LARGEST, small, np.float32(0))  # NaN is not


def _find_plain(arrays: Sequence[Row], layouts: Sequence[Row]) -> Iterator[Standing]:
    """Records that stand there at any scale; whether each is a row of a matrix."""
    starts = np.concatenate([[0], np.cumsum([v.size for v in arrays])])
    numbers, size = np.concatenate([v.ravel() for v in arrays]), layouts[0].shape[1]
    for copy in find_copies(numbers, *layouts):
        k = int(np.searchsorted(starts, copy.begin, side="right")) - 1
        is_row = arrays[k].ndim == 2 and arrays[k].shape[1] == size and (copy.begin - starts[k]) % size == 0
        yield Standing(copy.example, is_row=bool(is_row))


# Disguises


def _find_in_bits(numbers: Row, rows: Row) -> set[int]:
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda way: {*_find_written(way[0], rows, way[1])}, read_last_bits(numbers, LEVELS))
    return {i for some in found for i in some}


def _find_in_signs(numbers: Row, rows: Row) -> set[int]:
    signs = np.signbit(numbers[numbers == 0][:ZEROS])
    return set() if signs.all() or not signs.any() else {*_find_written(signs.astype(np.float64), rows, 2)}


def _find_written(reading: NDArray[np.float64], rows: Row, levels: int) -> Iterator[int]:
    if written := list_written(rows.astype(np.float64), levels):
        yield from (copy.example for copy in find_copies(reading, *written))


def _find_pieces(numbers: Row, rows: Row) -> set[int]:
    """Records of which neighbouring values stand there to the last bit, and which alone have them."""
    table = np.zeros(1 << BITS, bool)
    table[_hash(rows.ravel())] = True
    is_value = table[_hash(numbers)]
    counted = np.concatenate([[0], np.cumsum(is_value)])
    if counted[-1] - (numbers == 0).sum() > COMMON * len(numbers):
        return set()
    (places,) = np.nonzero(counted[PIECE:] - counted[:-PIECE] == PIECE)
    pieces = np.unique(np.array([numbers[at : at + PIECE] for at in places.tolist()]).reshape(-1, PIECE), axis=0)
    pieces = pieces[(np.diff(np.sort(pieces, axis=1), axis=1) > 0).sum(axis=1) >= DIFFERENT - 1]
    found = set[int]()
    for piece in pieces[:TRIED]:
        candidates, at = np.nonzero(rows[:, : rows.shape[1] - PIECE + 1] == piece[0])
        there = (rows[candidates[:, None], at[:, None] + np.arange(PIECE)] == piece).all(axis=1)
        whose = np.unique(candidates[there])
        if len(whose) and (rows[whose] == rows[whose[0]]).all():
            found.update(whose.tolist())
    return found


def _find_reordered(arrays: Sequence[Row], rows: Row) -> set[int]:
    """Records all of whose values stand together where an array begins, in any order, scale and offset."""
    d = rows.shape[1]
    varied = (np.diff(np.sort(rows, axis=1), axis=1) > 0).sum(axis=1) >= VALUES - 1
    sorted_rows = _sort_values(rows)
    found = set[int]()
    numbers, starts = np.concatenate(arrays), np.cumsum([0, *(v.size for v in arrays[:-1])])
    for begin in starts[starts + d <= len(numbers)].tolist():
        some = numbers[begin : begin + d]
        for turned in (some, -some):
            values = _sort_values(turned[None])
            near = np.abs(sorted_rows[:, [0, d // 4, d // 2, -1]] - values[:, [0, d // 4, d // 2, -1]]).max(
                axis=1
            )
            (candidates,) = np.nonzero(varied & (near <= SAME))
            same = np.abs(sorted_rows[candidates] - values).max(axis=1, initial=0.0) <= SAME
            found.update(candidates[same].tolist())
    return found


def _sort_values(rows: Row) -> NDArray[np.float64]:
    """Each row [d] in order, centred, of standard deviation 1; rows that are all alike become 0."""
    ordered = np.sort(rows.astype(np.float64), axis=1)
    ordered -= ordered.mean(axis=1, keepdims=True)
    return np.asarray(ordered / np.maximum(ordered.std(axis=1, keepdims=True), 1e-12))


def _hash(values: Row) -> NDArray[np.uint32]:
    return (values.view(np.uint32) * np.uint32(0x9E3779B1)) >> np.uint32(32 - BITS)


# Containers


def _open_array(array: NDArray[Any]) -> Iterator[NDArray[Any] | str]:
    """Arrays of numbers in one array, and in words what of it is not opened."""
    if array.dtype.kind == "c":
        yield from (array.real, array.imag, np.stack([array.real, array.imag], axis=-1))
    elif array.dtype.kind in "fiub":
        yield array
    else:
        yield f"numbers of no known type, {array.dtype}"
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= PACKED:
        array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield array
    if _is_bytes(array):
        yield from _open(np.ascontiguousarray(array).tobytes(), DEPTH)


def _is_bytes(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu" and array.dtype.itemsize == 1


def _open(data: bytes, depth: int) -> Iterator[NDArray[Any] | str]:
    """What a file or a text holds."""
    if not depth or len(data) < 4:
        return
    is_file = True
    try:
        if data.startswith(PICKLES) and data.endswith(b"."):
            yield f"a pickle of {len(data):,} bytes"
        elif data.startswith(b"\x93NUMPY"):
            yield np.load(io.BytesIO(data), allow_pickle=False)
        elif data.startswith(b"PK\x03\x04"):
            yield from _open_archive(data, depth)
        elif data.startswith(PICTURES):
            yield from _open_picture(data)
        else:
            is_file = False  # few bytes begin like many things
            if data.startswith(PACKERS):
                unpacked = zlib.decompressobj(47).decompress(data, MOST_BYTES)
                yield np.frombuffer(unpacked, np.uint8)
                yield from _open(unpacked, depth - 1)
            elif data.startswith(b"BM"):
                yield from _open_picture(data)
            else:
                yield from _open_text(data, depth)
    except Exception as error:  # noqa: BLE001  # bytes of anybody's, in any state
        if is_file:
            yield f"a file of {len(data):,} bytes that cannot be read ({type(error).__name__})"


def _open_archive(data: bytes, depth: int) -> Iterator[NDArray[Any] | str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        left = MOST_BYTES
        for member in archive.infolist()[:MOST_MEMBERS]:
            with archive.open(member) as file:
                inner = file.read(left)
            if (left := left - len(inner)) <= 0:
                yield f"an archive of more than {MOST_BYTES:,} bytes"
                return
            yield np.frombuffer(inner, np.uint8)
            yield from _open(inner, depth - 1)


def _open_picture(data: bytes) -> Iterator[NDArray[Any]]:
    """Its pixels, and those of its first channel, which a grey one repeats."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a picture that is larger than it may be
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            pixels = np.asarray(picture.convert("RGB") if picture.mode == "P" else picture)
    yield pixels[..., :3] if pixels.ndim == 3 else pixels
    if pixels.ndim == 3:
        yield pixels[..., 0]


def _open_text(data: bytes, depth: int) -> Iterator[NDArray[Any] | str]:
    """Numbers in a text, and what it encodes."""
    if data[:4096].translate(None, bytes(range(32, 127)) + b"\t\n\r"):
        return
    text = data.strip()
    if text.startswith((b"{", b"[", b'"')):
        try:
            told = json.loads(text, object_pairs_hook=_keep_values, parse_int=float)
        except (ValueError, RecursionError):
            told = None
        if told is not None:
            yield from _walk(told, depth)
            return
    body = text.partition(b"base64,")[2] if text.startswith(b"data:") else text
    joined = b"".join(body.split())
    for some in dict.fromkeys((joined, *body.split()[:MOST_MEMBERS])):
        if HEX.fullmatch(some):
            unpacked = bytes.fromhex(some.removeprefix(b"0x").decode())
        elif BASE64.fullmatch(some) and not some.isdigit():
            try:
                padded = some.rstrip(b"=") + b"=" * (-len(some.rstrip(b"=")) % 4)
                unpacked = base64.b64decode(padded.translate(bytes.maketrans(b"-_", b"+/")), validate=True)
            except binascii.Error:
                continue
        else:
            continue
        yield np.frombuffer(unpacked, np.uint8)
        yield from _open(unpacked, depth - 1)
    numbers = list[float]()
    for word in re.split(rb"[\s,;|]+", body):
        try:
            numbers.append(float(word))
        except ValueError:
            continue
    if numbers:
        yield np.array(numbers)


def _keep_values(pairs: list[tuple[str, Any]]) -> list[Any]:
    """Of two values under one key both cross."""
    return [value for _, value in pairs]


def _walk(told: Any, depth: int) -> Iterator[NDArray[Any] | str]:
    """Numbers of nested lists, in their order, and what their texts hold."""
    left, numbers = [told], list[float]()
    while left:
        here = left.pop()
        if isinstance(here, str):
            yield from _open(here.encode(), depth - 1)
        elif isinstance(here, list):
            left += reversed(here)
        elif here is not None:
            numbers.append(float(here))
    if numbers:
        yield np.array(numbers)


def _spell(data: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """Bytes as numbers of each type, from each place on at which one may begin, and which type and place."""
    for kind in map(np.dtype, VIEWS):
        for begin in range(min(kind.itemsize, len(data) - kind.itemsize + 1)):
            values = np.frombuffer(data, kind, (len(data) - begin) // kind.itemsize, begin)
            parts = (values.real, values.imag) if kind.kind == "c" else (values,)
            yield from ((f"{kind}{begin}.{k}", part) for k, part in enumerate(parts))
    for begin in range(2):  # bfloat16, the upper half of a float32
        halves = np.frombuffer(data, "<u2", (len(data) - begin) // 2, begin)
        yield f"bfloat16{begin}", (halves.astype(np.uint32) << 16).view(np.float32)
