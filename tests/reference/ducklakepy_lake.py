"""ducklakepy, a second implementation of DuckLake, which has 1.1; it runs in another environment.

Where it is not the reference (observed of 0.1.0.dev0): UUIDs as 32 digits without dashes and times with
milliseconds in SQLite; SQL NULL for the columns of an absent default; `file_order` counts from 0; an inlined
insert leaves `next_file_id`; strings are not cut to 256 bytes, and of two equal bounds the first keeps its
flag; a comment that is removed leaves no row; it writes variants inlined only, and inlines no nested values.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.reference.catalogs import CatalogDatabase
from tests.reference.next.process import OracleProcess, Remote, shared_process


class DuckLakePyLake(Remote):
    """One lake as ducklakepy has it open; `tests/reference/next/lake.py` lists its methods.

    A table is named by "t", "schema.t", "sales.europe.orders" or a tuple of names, of which "t" is in `main`.
    """

    @contextmanager
    def transaction(self, message: str | None = None) -> Iterator[None]:
        """Commit what the block writes as one snapshot, or nothing of it if the block raises."""
        self.begin(message)
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()


def open_lake(
    catalog: CatalogDatabase | str,
    data_path: str | None = None,
    *,
    process: OracleProcess | None = None,
    **options: object,
) -> DuckLakePyLake:
    """Open a lake at its own version, or create it as 1.1 if its catalog is empty.

    Args:
        catalog: a SQLite or PostgreSQL catalog (its data path is the default), or its SQLAlchemy URL.
        data_path: where the files go.
        process: another than the one that this worker shares, for a second client at the same time.
        options: `version="1.0"` to create or open at that version; `migrate=True` to bring an older catalog
            to it (without one, to 1.1); `inline_limit` to overrule the lake's; `encrypted` for a new lake.

    Raises:
        OracleError: ducklakepy refuses the catalog.
    """
    if isinstance(catalog, CatalogDatabase):
        data_path = data_path or catalog.data_path
        catalog = catalog.sqlalchemy_url
    return DuckLakePyLake(process or shared_process(), "lake", catalog, data_path, **options)
