import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.sql.spark.lake_views import checked_text
from tests.unit.sql.view_texts import HOSTILE, ORDINARY

NAME = QualifiedName.of("sales.v")


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_query_is_taken_and_checked_again_stays_as_it_is(text):
    once = checked_text(NAME, text)

    assert checked_text(NAME, once) == once


@pytest.mark.parametrize("text", HOSTILE)
def test_a_query_that_does_more_than_read_rows_is_refused_with_its_view(text):
    with pytest.raises(UnsupportedFeatureError, match=r"View sales.v, line \d, column "):
        checked_text(NAME, text)


@pytest.mark.parametrize(
    "text", ["SELECT " + "(" * 3_000 + "1" + ")" * 3_000, "SELECT " + "a, " * 40_000 + "a"]
)
def test_a_query_too_deep_or_too_long_to_be_checked_is_refused(text):
    with pytest.raises(UnsupportedFeatureError, match=r"nested too deep|characters"):
        checked_text(NAME, text)


def test_an_error_says_which_function_and_where():
    with pytest.raises(UnsupportedFeatureError, match=r"View sales.v, line 2, column 5: .* calls 'reflect'"):
        checked_text(NAME, "SELECT a,\n    reflect('java.lang.System', 'exit') FROM t")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("SELECT/**/a -- b\nFROM t", "SELECT a FROM t"),
        ("SELECT 1 -- \\\n, a FROM t", "SELECT 1 , a FROM t"),  # Spark's comment goes on behind a backslash
        ('SELECT "it\'s", "a\\"b" FROM t', "SELECT 'it\\'s', 'a\\\"b' FROM t"),
        ("SELECT /*+ BROADCAST(t) */ 'a''b', 1L, .5 FROM t", "SELECT 'a''b', 1L, .5 FROM t"),
    ],
)
def test_the_text_for_spark_has_the_same_words_without_comments(text, written):
    assert checked_text(NAME, text) == written
