"""Is there a reference for DuckLake 1.1? Asked at each update of the lock in `tests/reference/next`."""

import tomllib
from pathlib import Path

LOCK = Path(__file__).parent / "next" / "uv.lock"


def test_no_extension_of_duckdb_2_0_is_locked():
    packages = tomllib.loads(LOCK.read_text())["package"]
    (newest,) = (package["version"] for package in packages if package["name"] == "duckdb-extension-ducklake")

    assert int(newest.split(".")[0]) < 2, (
        f"duckdb-extension-ducklake {newest} is there, which knows DuckLake 1.1. Run the suite on it: "
        f"DUCKLAKE_REFERENCE={newest} make test. Read every difference, then pin it in pyproject.toml."
    )
