"""What is refused of a source before any job, in the words of the guide."""

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.spark.job.io import query_id
from airflow_provider_ducklake.lake.spark.job.request import (
    OverwriteSource,
    RowChangeSource,
    StreamSource,
    datasets_of,
    source_of,
)

PLACE = {"sources": {"o": "/in/o.csv"}}


@pytest.mark.parametrize(
    "options", [{"url": "jdbc:x", "password": "pa55"}, {"url": "jdbc:x://h/d?password=pa55"}]
)
def test_a_password_in_a_source_is_answered_by_its_connection(options):
    with pytest.raises(errors.InvalidOptionError, match="give it as the source's conn_id") as caught:
        source_of({"format": "jdbc", "options": options})

    assert "password_env" not in str(caught.value)


def test_an_unknown_key_is_answered_by_those_of_the_guide():
    with pytest.raises(errors.InvalidOptionError, match="its keys are format, path, options and conn_id"):
        source_of({"path": "a.csv", "header": True})


@pytest.mark.parametrize("path", ["", "None"])
def test_a_path_of_which_a_template_made_nothing_says_so(path):
    with pytest.raises(errors.InvalidInputError, match=f"source is '{path}': its template rendered no value"):
        source_of(path)
    with pytest.raises(
        errors.InvalidInputError, match=r"sources\['o'\] is .*: its template rendered no value"
    ):
        source_of(sql="SELECT 1", sources={"o": {"format": "csv", "path": path}})


def test_no_source_at_all_says_so():
    with pytest.raises(errors.InvalidInputError, match="source is None: its template rendered no value"):
        source_of(None)


def test_sources_of_a_query_whose_names_differ_by_case_only_are_refused():
    two = {"orders": "a.csv", "Orders": "b.csv"}

    with pytest.raises(
        errors.InvalidInputError, match="'orders' and 'Orders', which are the same name in Spark SQL"
    ):
        source_of(sql="SELECT * FROM orders", sources=two)
    assert datasets_of(source_of(transform="a:f", sources=two)).keys() == {
        "sources['orders']",
        "sources['Orders']",
    }


def test_the_datasets_of_each_source_have_the_names_of_its_errors():
    by_name = source_of(sql="SELECT 1", **PLACE)
    stream = StreamSource(source_of(transform="a:f", **PLACE), "/checkpoint/", "id")

    assert list(datasets_of(source_of("/in/o.csv"))) == ["source"]
    for source in (by_name, stream, OverwriteSource(by_name, None), RowChangeSource(None, by_name)):
        assert {name: one.path for name, one in datasets_of(source).items()} == {"sources['o']": "/in/o.csv"}
    assert datasets_of(RowChangeSource(None)) == {}


@pytest.mark.parametrize(
    "content", ["[" * 60_000, '{"id": %s}' % ("[" * 30_000 + "]" * 30_000), "[" * 70_000]
)
def test_sparks_file_in_a_checkpoint_may_hold_anything(tmp_path, content):
    (tmp_path / "metadata").write_text(content)

    with pytest.raises((errors.SparkJobError, errors.StorageError), match="metadata"):
        query_id(f"{tmp_path}/")
