"""What ducklakepy, which has 1.1, reads of the lakes that tests made, beside what we read."""

from collections.abc import Iterator

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from tests.interop.comparison import multiset, with_texts_of_variants
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase
from tests.reference.next.process import OracleError

# What ducklakepy cannot read: defaults before year 1, times of 24:00:00, and inlined columns with capitals in
# PostgreSQL.
REFUSED = (
    "is not a valid date default",
    "is not a valid timestamp",
    "hour must be in 0..23",
    "was created with other columns",
)


def differences(catalog: CatalogDatabase) -> Iterator[str]:
    """Yield tables of which ducklakepy now reads other rows than we do.

    Left out are those that we cannot read: tests take files away, and types that we do not know.
    """
    with (
        Lake.connect(catalog.sqlalchemy_url) as lake,
        ducklakepy_lake.open_lake(catalog, lake.data_path) as theirs,
    ):
        for name in lake.tables():
            try:
                ours = multiset(with_texts_of_variants(lake.read_arrow(name)))
            except (StorageError, UnsupportedFeatureError):
                continue
            try:
                other = multiset(with_texts_of_variants(theirs.read(name.parts)))
            except OracleError as error:
                if any(text in str(error) for text in REFUSED):
                    continue
                raise
            if ours != other:
                yield f"{name}: {ours[:3]} ({len(ours)} rows), not {other[:3]} ({len(other)} rows)"
