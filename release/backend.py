"""The build backend: setuptools, whose archives are then written anew: the same sources give the same bytes.

Names in order, one time (SOURCE_DATE_EPOCH, or 1 January 2020), one owner and two modes; nothing else changes, so
the digests in a wheel's RECORD stay right.
"""

import gzip
import io
import os
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the other hooks are setuptools' own)

WHEN = int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    path = Path(wheel_directory, name)
    with zipfile.ZipFile(path) as made:
        files = {i.filename: made.read(i) for i in made.infolist() if not i.is_dir()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as anew:
        # RECORD comes last, as the format wants
        for file in sorted(files, key=lambda f: (f.endswith(".dist-info/RECORD"), f)):
            info = zipfile.ZipInfo(file, time.gmtime(WHEN)[:6])
            info.external_attr, info.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
            anew.writestr(info, files[file])
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    name = build_meta.build_sdist(sdist_directory, config_settings)
    path, out = Path(sdist_directory, name), io.BytesIO()
    with tarfile.open(path) as made, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as anew:
        for member in sorted(made.getmembers(), key=lambda m: m.name):
            content = made.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = WHEN, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            anew.addfile(member, content)
    with open(path, "wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=WHEN) as packed:
        packed.write(out.getvalue())
    return name
