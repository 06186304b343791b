"""The zip of this package that a job needs: built by the operator, put before the user's ``py_files``.

The same sources give the same bytes and the same name, so a directory of zips is a cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from .... import __version__

PACKAGE = "airflow_provider_ducklake"
_ROOMS = ("spark", "storage", "planning", "transaction", "format", "errors.py", "__init__.py")
CONTENTS = ("__init__.py", *(f"lake/{room}" for room in _ROOMS))
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold


def package_zip(directory: str | Path) -> Path:
    """Return the zip in ``directory``, built there unless it exists; several may build at once."""
    data = zip_bytes()
    path = Path(directory) / f"{PACKAGE}-{__version__}-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_bytes(data)
        partial.replace(path)
    return path


def application_file() -> Path:
    """Return the only file to submit; its folder, which shadows the standard library, holds no other."""
    return _root() / "lake" / "spark" / "launcher" / "main.py"


def zip_bytes() -> bytes:
    """Return the zip's bytes, a function of the sources alone."""
    return _zip_bytes(_root())


@cache
def _zip_bytes(root: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _sources(root):
            info = zipfile.ZipInfo(f"{PACKAGE}/{path.relative_to(root).as_posix()}", _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, path.read_bytes())
    return buffer.getvalue()


def runnable_zip() -> bytes:
    """Return the package as an archive that Python runs: it does what the submitted file does.

    Several files in one, for a cluster that takes one file.
    """
    buffer = io.BytesIO(zip_bytes())
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), application_file().read_bytes())
    return buffer.getvalue()


def _sources(root: Path) -> list[Path]:
    found: list[Path] = []
    for name in CONTENTS:
        path = root / name
        found += [path] if path.is_file() else path.rglob("*.py")
    return sorted(found)


def _root() -> Path:
    return Path(str(files(PACKAGE)))
