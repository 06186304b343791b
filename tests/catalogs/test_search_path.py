"""On PostgreSQL a lake is in one schema, given or found, and nothing is looked up elsewhere."""

from urllib.parse import quote

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.catalogs.database_roles import run


@pytest.fixture
def postgres(new_catalog):
    return new_catalog("postgres")


def _with(url: str, options: str) -> str:
    return f"{url}&options={quote(options)}"


def _schema(lake: Lake) -> str | None:
    return lake.opened.catalog.tables.metadata_schema


def test_a_lake_is_made_and_found_where_the_users_path_says(postgres):
    run(postgres, "CREATE SCHEMA mine")
    url = _with(postgres.sqlalchemy_url, "-c search_path=mine,public")

    with Lake.create(url, postgres.data_path) as made, Lake.connect(url) as found:
        assert (_schema(made), _schema(found)) == ("mine", "mine")

    with pytest.raises(errors.AlreadyExistsError):
        Lake.create(_with(postgres.sqlalchemy_url, "-c search_path=public,mine"), postgres.data_path)


def test_a_lake_is_made_in_public_unless_somebody_says_otherwise(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        assert _schema(lake) == "public"


def test_a_path_without_a_schema_is_an_error_that_says_what_to_give(postgres):
    with pytest.raises(errors.InvalidInputError, match="give metadata_schema"):
        Lake.create(_with(postgres.sqlalchemy_url, "-c search_path=nowhere"), postgres.data_path)


@pytest.mark.parametrize("schema", ["public", "mine"])
def test_clients_exclude_each_other_whether_the_schema_is_given_or_found(postgres, schema):
    run(postgres, "CREATE SCHEMA mine")
    url = _with(postgres.sqlalchemy_url, f"-c search_path={schema}")
    Lake.create(url, postgres.data_path).close()

    hasty = _with(postgres.sqlalchemy_url, f"-c search_path={schema} -c lock_timeout=200")
    with Lake.connect(url) as found, Lake.connect(hasty, metadata_schema=schema) as given:
        one, other = (lake.opened.catalog.dialect for lake in (found, given))
        with one.writing(), pytest.raises(OperationalError, match="lock timeout"), other.writing():
            pass
        with other.writing():
            pass


def test_options_of_the_url_are_kept_and_values_are_read_as_ever(postgres):
    url = _with(postgres.sqlalchemy_url, "-c lock_timeout=7s -c timezone=Asia/Tokyo -c datestyle=German")

    with Lake.create(url, postgres.data_path) as lake:
        with lake.opened.reading() as connection:
            shown = [
                connection.execute(text(f"SHOW {one}")).scalar_one()
                for one in ("lock_timeout", "timezone", "datestyle", "search_path", "row_security")
            ]
        assert lake.current_snapshot().time.tzinfo is not None

    assert shown == ["7s", "UTC", "ISO, DMY", "pg_catalog, pg_temp", "off"]


def test_every_transaction_has_our_path_also_after_a_commit(postgres):
    created = Lake.create(postgres.sqlalchemy_url, postgres.data_path)
    with created as lake, lake.opened.catalog.dialect.writing() as connection:
        connection.commit()
        path = connection.execute(text("SHOW search_path")).scalar_one()

    assert path == "pg_catalog, pg_temp"


def test_nothing_is_written_while_reading(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        tables = lake.opened.catalog.tables
        with (
            pytest.raises(errors.CatalogRefusedError, match="read-only transaction"),
            lake.opened.reading() as connection,
        ):
            connection.execute(tables["tag"].delete())


def test_an_expiry_drops_no_table_that_cannot_hold_rows_of_the_lost_one(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        with lake.transaction() as tx:
            tx.drop_table("t")
        run(
            postgres,
            "CREATE TABLE payroll (id int)",
            "INSERT INTO ducklake_inlined_data_tables VALUES (1, 'payroll', 1)",
        )

        with pytest.raises(errors.UntrustedValueError, match="names 'payroll'"):
            lake.expire_snapshots(keep_last=1)

        run(postgres, "SELECT FROM payroll")
