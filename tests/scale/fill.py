"""Fill a catalog by SQL with what many commits would have left: snapshots, data files, tables.

The files do not exist. Each function continues at the newest snapshot and is valid by itself: `Lake.verify`
finds nothing in the catalog, and DuckDB attaches it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Row, create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from tests.reference.catalogs import CatalogDatabase

_FIRST_TIME = 1_735_689_600  # 2025-01-01, of snapshot 0; a second later each


@dataclass(frozen=True, slots=True)
class Words:
    """How a database says what the others say otherwise."""

    numbers: str  # from :first to :last, as n
    columns: str  # from 1 to :columns, as c
    true: str
    false: str
    time: str  # of the snapshot `id`
    uuid: str
    joined: str  # the texts `change` of a group
    digest: str  # 64 hexadecimal digits


_WORDS = {
    "postgres": Words(
        "SELECT generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n",
        "SELECT generate_series(1, CAST(:columns AS bigint)) AS c",
        "true",
        "false",
        f"to_timestamp({_FIRST_TIME} + id)",
        "gen_random_uuid()",
        "string_agg(change, ',' ORDER BY n)",
        "md5(CAST(random() AS text)) || md5(CAST(n AS text))",
    ),
    "sqlite": Words(
        "WITH RECURSIVE r(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM r WHERE n < :last) "
        "SELECT n FROM r WHERE n <= :last",
        "WITH RECURSIVE r(c) AS (SELECT 1 UNION ALL SELECT c + 1 FROM r WHERE c < :columns) SELECT c FROM r",
        "1",
        "0",
        f"strftime('%Y-%m-%d %H:%M:%S.123456+00', {_FIRST_TIME} + id, 'unixepoch')",
        "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) "
        "|| '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))",
        "group_concat(change)",
        "lower(hex(randomblob(32)))",
    ),
}


class Filling:
    """One transaction that fills a catalog."""

    def __init__(self, connection: Connection, kind: str) -> None:
        self._connection = connection
        self._words = _WORDS[kind]

    def one(self, query: str, **values: object) -> Row:
        return self._connection.execute(text(query), values).one()

    def head(self) -> Row:
        return self.one("SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1")

    def run(self, template: str, **values: object) -> None:
        """Execute a statement with those of the values that it names."""
        words = asdict(self._words)
        for series in ("numbers", "columns"):
            words[series] = f"({words[series]}) AS {series}"
        statement = text(template.format(**words))
        names = statement.compile().params
        self._connection.execute(statement, {name: values[name] for name in names})

    def set_times(self) -> None:
        """Let the snapshots that are there be as old as if all were added here."""
        self.run(_TIMES)

    def add_snapshots(self, count: int, *, catalog_ids: int = 0, file_ids: int = 0) -> Row:
        """Add that many snapshots, without their changes, and return the newest one before.

        Each takes so many ids; those that take catalog ids raise the schema version.
        """
        head = self.head()
        self.run(
            _SNAPSHOTS,
            first=head.snapshot_id + 1,
            last=head.snapshot_id + count,
            base=head.snapshot_id,
            schema=head.schema_version,
            raised=int(catalog_ids > 0),
            catalog=head.next_catalog_id,
            file=head.next_file_id,
            catalog_ids=catalog_ids,
            file_ids=file_ids,
        )
        return head


_TIMES = """UPDATE ducklake_snapshot
    SET snapshot_time = (SELECT {time} FROM (SELECT snapshot_id AS id) AS s)"""
_SNAPSHOTS = """INSERT INTO ducklake_snapshot
    SELECT id, {time}, :schema + :raised * (id - :base), :catalog + :catalog_ids * (id - :base),
        :file + :file_ids * (id - :base)
    FROM (SELECT n AS id FROM {numbers}) AS ids"""


@contextmanager
def filling(catalog: CatalogDatabase) -> Iterator[Filling]:
    """Yield what fills a catalog, and leave its statistics as the database keeps them in time."""
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    try:
        with engine.begin() as connection:
            yield Filling(connection, catalog.kind)
    finally:
        engine.dispose()
    analyze(catalog)


def analyze(catalog: CatalogDatabase) -> None:
    """Do what a server does in time, and nobody in a file."""
    if catalog.kind != "postgres":
        return
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
