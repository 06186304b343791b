"""Check that pyspark and pyspark-client, which install 366 files to the same paths, agree on each of them.

The Spark provider depends on pyspark-client, whose files are a subset of pyspark's. pip and uv see no
conflict when the versions differ: whichever is installed last wins, and removing one takes the other's away.
"""

import base64
import hashlib
import sys
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path


def main() -> int:
    """Print each problem; the exit code is 1 when there is one."""
    try:
        full, client = distribution("pyspark"), distribution("pyspark-client")
    except PackageNotFoundError as error:
        print(f"{error.name} is not installed: run scripts/setup", file=sys.stderr)
        return 1

    problems = find_problems(full, client)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Pin one version of both in pyproject.toml, then make distclean setup.", file=sys.stderr)
        return 1
    print(
        f"pyspark and pyspark-client {full.version} agree on {len(shared_paths(full, client))} shared files"
    )
    return 0


def find_problems(full: Distribution, client: Distribution) -> list[str]:
    """Compare versions, then the two RECORDs, then RECORD with what is on disk."""
    if full.version != client.version:
        return [
            f"pyspark is {full.version}, pyspark-client is {client.version}: they must be the same version"
        ]

    paths = shared_paths(full, client)
    if not paths:
        return ["pyspark and pyspark-client share no files: this check no longer looks at the right place"]
    theirs = records(client)
    problems = []
    for path, record in records(full).items():
        if path not in paths:
            continue
        if digest(record) != digest(theirs[path]):
            problems.append(f"{path}: pyspark and pyspark-client record different contents")
        elif digest(record) != digest_on_disk(Path(str(record.locate()))):
            problems.append(f"{path}: missing or changed since it was installed")
    return problems


def shared_paths(full: Distribution, client: Distribution) -> set[str]:
    """Paths that both distributions install."""
    return records(full).keys() & records(client).keys()


def records(dist: Distribution) -> dict[str, PackagePath]:
    """RECORD by path: the files that have a hash (not RECORD itself, no byte code)."""
    return {str(file): file for file in dist.files or () if file.hash is not None}


def digest(record: PackagePath) -> str:
    """SHA-256 as RECORD spells it: URL-safe base64 without padding."""
    assert record.hash is not None
    assert record.hash.mode == "sha256"
    return record.hash.value


def digest_on_disk(path: Path) -> str | None:
    """SHA-256 of a file in RECORD's spelling; None when it is gone."""
    if not path.is_file():
        return None
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
