"""DuckDB-file catalogs under every DuckDB that the extra `duckdb` admits: all work on what one makes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.lake.catalog.database.connect import duckdb_engine, parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogUnavailableError
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.databases

ROOT = Path(__file__).parents[2]
NEWEST = "2.0.0"  # of the oracles' environment; others are fetched, at full size
# Argument: JSON of lakes to make (place -> version), and of lakes to work on.
WORK = """
import json, sys
from pathlib import Path
import duckdb
import pyarrow as pa
from airflow_provider_ducklake.lake.catalog.lake import Lake

row = pa.table({"who": [duckdb.__version__]})
make, work = json.loads(sys.argv[1])
for place, version in make.items():
    Path(place).mkdir(parents=True)
    with Lake.create(f"duckdb:///{place}/lake.duckdb", f"{place}/files/", version=version) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"who": "varchar"})
        lake.maintenance.create_indexes()
for place in [*make, *work]:
    with Lake.connect(f"duckdb:///{place}/lake.duckdb") as lake:
        lake.append_arrow("t", row)
        with lake.transaction() as tx:
            tx.add_column("t", f"c{lake.current_snapshot().id}", "int64")
            tx.drop_column("t", f"c{lake.current_snapshot().id}")
        assert lake.maintenance.create_indexes() == []
        assert lake.verify() == []
print(json.dumps(lake.read_arrow("t")["who"].to_pylist()))
"""
MIGRATE = """
import json, sys
from airflow_provider_ducklake.lake.catalog.lake import Lake

with Lake.connect(f"duckdb:///{json.loads(sys.argv[1])}/lake.duckdb") as lake:
    print(json.dumps(lake.migrate("1.1").backup))
"""
COPY = """
import json, sys
import duckdb

old, new, storage = json.loads(sys.argv[1])
with duckdb.connect() as connection:
    connection.execute(f"ATTACH '{old}' AS lake")
    connection.execute(f"ATTACH '{new}' AS new (STORAGE_VERSION '{storage}')")
    connection.execute("COPY FROM DATABASE lake TO new")
print("null")
"""
# As the reference's extension attaches a file: it asks for the newest version that its DuckDB knows.
RAISE = """
import json, shutil, sys
import duckdb

old, new, storage = json.loads(sys.argv[1])
shutil.copy(old, new)
with duckdb.connect() as connection:
    connection.execute(f"ATTACH '{new}' AS lake (STORAGE_VERSION 'latest')")
    connection.execute("INSERT INTO lake.ducklake_metadata (key, value) VALUES ('new', 'row')")
print("null")
"""
OF_FILE = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE NOT internal"


def storage_version(file: Path) -> str:
    with duckdb.connect(file) as connection:
        return connection.execute(OF_FILE).fetchone()[0]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Return where a DuckDB's packages are; the others are those of this environment."""
    folder = tmp_path_factory.mktemp("duckdb")

    def packages_of(version: str) -> Path:
        place = folder / version
        if place.exists():
            return place
        place.mkdir()
        if version == NEWEST:
            oracles = next((ROOT / ".venv" / "next" / "lib").glob("python*")) / "site-packages"
            for path in (*oracles.glob("duckdb*"), *oracles.glob("_duckdb*")):
                (place / path.name).symlink_to(path)
        elif version != duckdb.__version__:
            command = [
                "uv",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                place,
                f"duckdb=={version}",
            ]
            subprocess.run(command, check=True)
        return place

    return packages_of


@pytest.fixture
def run(packages):
    """Run a script under a version of DuckDB; return what it prints, as JSON."""

    def run(version: str, script: str, argument: object = None):
        paths = [str(packages(version)), str(ROOT)]
        done = subprocess.run(
            [sys.executable, "-c", script, json.dumps(argument)],
            env={"PYTHONPATH": os.pathsep.join(paths), "PATH": "", "TZ": "UTC"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_each_duckdb_works_on_the_files_that_others_made(run, size, tmp_path):
    ours = duckdb.__version__
    turns = [NEWEST, ours] if size == "ci" else [NEWEST, "1.4.4", "1.5.6", ours, NEWEST, "1.4.4"]
    wrote: dict[str, list[str]] = {}
    for turn, version in enumerate(turns):
        made = {str(tmp_path / f"{turn}-{lake}"): lake for lake in ("1.0", "1.1")}
        run(version, WORK, [made, list(wrote)])
        wrote |= {place: [] for place in made}
        for who in wrote.values():
            who.append(version)

    for place, versions in wrote.items():
        url = f"duckdb:///{place}/lake.duckdb"
        with Lake.connect(url) as lake:
            assert sorted(lake.read_arrow("t")["who"].to_pylist()) == sorted(versions)
        assert storage_version(Path(place) / "lake.duckdb") == "v1.0.0+"
        if place.endswith("1.0"):
            with open_lake(f"ducklake:{place}/lake.duckdb") as reference:
                reference.sql("INSERT INTO t VALUES ('reference')")
                assert reference.sql("SELECT count(*) FROM t") == [(len(versions) + 1,)]


def make_ours(folder: Path) -> None:
    with Lake.create(f"duckdb:///{folder}/lake.duckdb", f"{folder}/files/") as lake, lake.transaction() as tx:
        tx.create_table("t", {"who": "varchar"})


def make_references(folder: Path) -> None:
    by_duckdb(f"ducklake:{folder}/lake.duckdb", "CREATE TABLE t (who VARCHAR)", data_path=f"{folder}/files/")


@pytest.mark.parametrize(
    ("make", "storage"), [(make_ours, "v1.0.0+"), (make_references, "v1.5.0+")], ids=["ours", "references"]
)
def test_a_newer_duckdb_leaves_the_storage_version_as_it_is(run, make, storage, tmp_path):
    make(tmp_path)
    file = tmp_path / "lake.duckdb"
    assert storage_version(file) == storage

    run(NEWEST, WORK.replace("lake.maintenance.create_indexes() == []", "True"), [{}, [str(tmp_path)]])
    assert storage_version(file) == storage
    backup = run(NEWEST, MIGRATE, str(tmp_path))

    assert storage_version(file) == storage
    with Lake.connect(f"duckdb:///{file}") as lake:
        assert (lake.version.value, lake.read_arrow("t")["who"].to_pylist()) == ("1.1", [NEWEST])
    assert by_duckdb(f"ducklake:{backup}", "FROM t") == [(NEWEST,)]


@pytest.mark.parametrize("script", [COPY, RAISE], ids=["made", "changed"])
def test_a_file_of_a_newer_duckdb_is_refused_with_what_to_do_and_that_helps(run, script, tmp_path):
    old, new, mended = (tmp_path / f"{name}.duckdb" for name in ("lake", "new", "mended"))
    make_ours(tmp_path)
    run(NEWEST, script, [str(old), str(new), "v2.0.0"])

    with pytest.raises(CatalogUnavailableError) as refused:
        Lake.connect(f"duckdb:///{new}")

    for part in ("new.duckdb", f"DuckDB {duckdb.__version__} is", "COPY FROM DATABASE", "'v1.0.0'"):
        assert part in str(refused.value)
    assert "one process" not in str(refused.value)
    run(NEWEST, COPY, [str(new), str(mended), "v1.0.0"])
    with Lake.connect(f"duckdb:///{mended}") as lake:
        assert lake.read_arrow("t").num_rows == 0


def test_new_catalog_files_are_asked_for_as_of_duckdb_1(duckdb_catalog: CatalogDatabase):
    for read_only in (False, True):
        engine = duckdb_engine(parse_url(f"duckdb:///{duckdb_catalog.location}"), read_only=read_only)
        with engine.connect() as connection:
            asked = connection.exec_driver_sql("SELECT current_setting('storage_compatibility_version')")
            assert asked.scalar_one() == "v1.0.0"
