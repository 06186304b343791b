"""Documents that are sealed: by the key of the lake they lie in, opened by whoever knows it, and no other."""

import base64

import pytest

from airflow_provider_ducklake.lake.errors import SparkJobError, StorageError
from airflow_provider_ducklake.lake.storage.files import writing

OUTER, INNER = (writing.new_key() for _ in range(2))
DOCUMENT = b'{"v": 4}'


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(writing, "_known", {})
    monkeypatch.setattr(writing, "_drivers", writing._Drivers())
    monkeypatch.delenv(writing.VARIABLE, raising=False)


def test_a_lake_within_the_folder_of_another_has_its_own_key(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{INNER}\n")
    writing.learn("/lake/", OUTER)
    writing.learn_from_file("/lake/inner/", str(file))

    assert (writing.key_of("/lake/x"), writing.file_of("/lake/x")) == (OUTER, None)
    assert (writing.key_of("/lake/inner/x"), writing.file_of("/lake/inner/x")) == (INNER, str(file))
    assert (writing.key_of("/other/x"), writing.file_of("/other/x")) == (None, None)


def test_a_key_that_is_learned_again_from_the_catalog_is_none_of_a_file(tmp_path):
    (tmp_path / "key").write_text(INNER)
    writing.learn_from_file("/lake/", str(tmp_path / "key"))
    writing.learn("/lake/", OUTER)

    assert (writing.key_of("/lake/x"), writing.file_of("/lake/x")) == (OUTER, None)


def test_another_process_opens_by_its_environment_what_this_one_sealed(monkeypatch):
    writing.learn("/lake/", OUTER)
    content = writing.sealed("/lake/x", DOCUMENT)
    environment = writing.as_environment("/lake/x")
    assert DOCUMENT not in content

    monkeypatch.setattr(writing, "_known", {})
    with pytest.raises(SparkJobError, match="/lake/x is sealed with a key that this process does not have"):
        writing.opened("/lake/x", content)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert writing.opened("/lake/x", content) == DOCUMENT


@pytest.mark.parametrize("place", [-1, 20, 30])
def test_a_document_that_was_changed_is_refused(place):
    writing.learn("/lake/", OUTER)
    content = bytearray(writing.sealed("/lake/x", DOCUMENT))
    content[place] ^= 1

    with pytest.raises(SparkJobError, match="/lake/x was changed"):
        writing.opened("/lake/x", bytes(content))


def test_without_a_key_documents_are_as_they_are():
    assert writing.sealed("/lake/x", DOCUMENT) == writing.opened("/lake/x", DOCUMENT) == DOCUMENT


@pytest.mark.parametrize("text", ["", "words", base64.b64encode(b"short").decode()])
def test_what_is_no_key_is_refused_and_not_shown(text):
    with pytest.raises(StorageError, match="openssl rand -base64 32") as raised:
        writing.learn("/lake/", text)

    assert not text or text not in str(raised.value)


def test_no_key_shows_when_it_is_printed():
    writing.learn("/lake/", OUTER)

    assert OUTER not in repr(writing._known)
    assert repr(base64.b64decode(OUTER)) not in repr(writing._known)


# --- documents that somebody put where they do not belong ---

JOB = "ducklake-01a21a71-f427-7899-b6a0-1de1e74e231a"
OTHER_JOB = "ducklake-01a21a71-f427-7899-b6a0-000000000000"


def test_a_plain_document_is_refused_where_documents_are_sealed():
    writing.learn("/lake/", OUTER)

    with pytest.raises(SparkJobError, match=r"/lake/t/_DONE is not sealed.*Run the task that wrote it again"):
        writing.opened("/lake/t/_DONE", DOCUMENT)
    assert writing.lacks_seal("/lake/t/_DONE", DOCUMENT)
    assert not writing.lacks_seal("/other/_DONE", DOCUMENT)


def test_a_plain_document_that_is_proven_by_other_means_is_taken():
    writing.learn("/lake/", OUTER)

    assert writing.opened("/lake/t/request.json", DOCUMENT, is_proven=True) == DOCUMENT


@pytest.mark.parametrize(
    "other",
    [
        f"/lake/main/t/{OTHER_JOB}/_DONE",
        f"/lake/main/t/{JOB}/part-00000.json",
        f"/lake/main/t/{JOB}/bins/_DONE",
        "/lake/_DONE",
    ],
)
def test_a_document_that_was_moved_is_refused(other):
    writing.learn("/lake/", OUTER)
    content = writing.sealed(f"/lake/main/t/{JOB}/_DONE", DOCUMENT)

    with pytest.raises(SparkJobError, match="was sealed for another place"):
        writing.opened(other, content)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (f"s3a://bucket/lake/t/{JOB}/_DONE", f"s3://bucket/lake/t/{JOB}/_DONE"),
        (f"/lake/ducklake/t/{JOB}/_DONE", f"/mnt/lake/ducklake/t/{JOB}/_DONE"),
        ("/checkpoints/a/ducklake/q/3.json", "file:///checkpoints/a/ducklake/q/3.json"),
    ],
)
def test_a_document_is_the_same_by_every_spelling_of_its_directory(written, read):
    writing.learn("", OUTER)

    assert writing.opened(read, writing.sealed(written, DOCUMENT)) == DOCUMENT


def test_drivers_without_the_key_leave_plain_documents_unless_they_have_it_in_a_file(tmp_path):
    (tmp_path / "key").write_text(INNER)
    writing.learn("/lake/", OUTER)
    writing.learn_from_file("/lake/inner/", str(tmp_path / "key"))

    writing.expect_drivers_without_key()

    assert writing.opened("/lake/t/_DONE", DOCUMENT) == DOCUMENT
    with pytest.raises(SparkJobError, match="is not sealed"):
        writing.opened("/lake/inner/_DONE", DOCUMENT)
