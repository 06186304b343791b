"""Where a lake's files may lie, and which paths lead elsewhere than they say."""

import pytest

from airflow_provider_ducklake.lake.errors import UntrustedValueError
from airflow_provider_ducklake.lake.format.names.paths import (
    MAX_LENGTH,
    CatalogPath,
    is_below,
    is_of_job,
    misleading,
    path_key,
    why_not_deletable,
    why_not_ours,
)

LOCAL, STORE = "/lake/data/", "s3://bucket/lake/"


@pytest.mark.parametrize(
    "path",
    ["..", "a/../b", "a/..", "../a", "a\\..\\b", "a/%2e%2E/b", "a/%252e./b", "a/.%2e", "a\0b", "/../../x"],
)
def test_a_step_up_is_refused_however_it_is_written(path):
    assert misleading(path) is not None
    with pytest.raises(UntrustedValueError):
        CatalogPath(path).below(LOCAL)
    assert why_not_ours(f"{LOCAL}{path}", LOCAL, foreign_files=True) is not None


@pytest.mark.parametrize(
    "path",
    [
        "main/t/a.parquet",
        "p=../a.parquet",  # the reference's folder for the partition value ".."
        "p=a%2F..%2Fb/..%2F..%2Fc=..%2F../a.parquet",
        "p=a%5C..%5Cb/a.parquet",
        "a..b/...parquet",
        "x\n/a.parquet",
    ],
)
def test_names_that_the_reference_writes_are_none(path):
    assert misleading(path) is None
    assert CatalogPath(path).below(LOCAL) == LOCAL + path
    assert why_not_ours(LOCAL + path, LOCAL, foreign_files=False) is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a/%" + "25" * 9 + "2e./b", "has a step"),
        ("%" + "25" * 80_000, "longer than 8192 characters"),
        ("a/" * 5000, "longer than 8192 characters"),
    ],
)
def test_paths_that_would_take_long_to_decode_are_refused(path, problem):
    with pytest.raises(UntrustedValueError, match=problem):
        CatalogPath(path).below(LOCAL)


def test_a_partition_value_may_be_encoded_any_number_of_times():
    path = "p=%" + "25" * 2000 + "2e./a.parquet"

    assert CatalogPath(path).below(LOCAL) == LOCAL + path


def test_the_key_of_a_path_is_found_in_few_steps():
    assert path_key("/a/%" + "25" * 3000).endswith("25" * 2992)
    assert path_key("s3a://b/" + "\u0301\u0327" * MAX_LENGTH) == "s3a://b/" + "\u0301\u0327" * MAX_LENGTH


@pytest.mark.parametrize(
    ("path", "data_path"),
    [
        ("/lake/data/x", LOCAL),
        ("file:///lake/data/x", LOCAL),
        ("/lake//./data/x", LOCAL),
        ("/lake/data/x", "file:///lake/data/"),
        ("s3a://bucket/lake/x", STORE),
        ("/up/../lake/x", "/up/../lake/"),
    ],
)
def test_spellings_of_the_data_path_are_below_it(path, data_path):
    assert is_below(path, data_path)
    assert why_not_deletable(path, data_path, foreign_files=False) is None


@pytest.mark.parametrize(
    ("path", "data_path"),
    [
        ("/lake/database/x", LOCAL),
        ("/lake/datA/x", LOCAL),
        ("s3://other/lake/x", STORE),
        ("s3://bucket//lake/x", STORE),
        ("s3://bucket/lake2/x", STORE),
        ("/lake/data/x", ""),
    ],
)
def test_what_only_looks_like_the_data_path_is_not(path, data_path):
    assert not is_below(path, data_path)


def test_outside_the_data_path_a_user_has_to_allow_it_and_files_of_the_format_alone_go():
    elsewhere = "/elsewhere/a.parquet"

    assert "set foreign_files to true" in why_not_ours(elsewhere, LOCAL, foreign_files=False)
    assert why_not_deletable(elsewhere, LOCAL, foreign_files=True) is None
    assert why_not_deletable("/elsewhere/a.PUFFIN", LOCAL, foreign_files=True) is None
    assert "not have the name of a Parquet or Puffin" in why_not_deletable(
        "/elsewhere/a.conf", LOCAL, foreign_files=True
    )
    assert why_not_deletable("gs://b/a.parquet", STORE, foreign_files=True) is None
    assert why_not_deletable("/lake/data/x/", LOCAL, foreign_files=False) == "is a directory"


@pytest.mark.parametrize(
    "path", ["/x.parquet", "file:///x.parquet", "local:///x.parquet", "x.parquet", "C:/x"]
)
def test_a_lake_on_an_object_store_has_no_local_files(path):
    with pytest.raises(UntrustedValueError):
        CatalogPath(path, is_relative=False).below(STORE)
    assert why_not_ours(path, STORE, foreign_files=True) is not None


def test_schemes_that_lead_to_any_other_place_are_refused():
    for root in (LOCAL, STORE):
        with pytest.raises(UntrustedValueError, match="scheme"):
            CatalogPath("generic://file:///x.parquet", is_relative=False).below(root)
    assert why_not_ours("memory://x/a", "memory://x/", foreign_files=False) is None


@pytest.mark.parametrize(
    "path",
    [
        "/t/a.parquet",
        "/t/ducklake-12/a.parquet",
        "/t/ducklake-1/../a.parquet",
        "/t2/ducklake-1/a.parquet",
        "/other/day=1/ducklake-1-a.parquet",
        "t/ducklake-1/a.parquet",
        "/t/./ducklake-1/a.parquet",
        "/t//ducklake-1/a.parquet",
        "/t/ducklake-1//a.parquet",
        "/t",
        "",
    ],
)
def test_a_job_writes_nothing_but_its_own(path):
    assert not is_of_job(path, "/t/ducklake-1/")
