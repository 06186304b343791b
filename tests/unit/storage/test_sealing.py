"""Documents that are sealed: by the key of the lake they lie in, opened by whoever knows it, and no other."""

import base64

import pytest

from airflow_provider_ducklake.lake.errors import SparkJobError, StorageError
from airflow_provider_ducklake.lake.storage.files import writing as sealing

OUTER, INNER = (sealing.new_key() for _ in range(2))
DOCUMENT = b'{"v": 4}'


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(sealing, "_known", {})
    monkeypatch.setattr(sealing, "_drivers", sealing._Drivers())
    monkeypatch.delenv(sealing.VARIABLE, raising=False)


def test_a_lake_within_the_folder_of_another_has_its_own_key(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{INNER}\n")
    sealing.learn("/lake/", OUTER)
    sealing.learn_from_file("/lake/inner/", str(file))

    assert (sealing.key_of("/lake/x"), sealing.file_of("/lake/x")) == (OUTER, None)
    assert (sealing.key_of("/lake/inner/x"), sealing.file_of("/lake/inner/x")) == (INNER, str(file))
    assert (sealing.key_of("/other/x"), sealing.file_of("/other/x")) == (None, None)


def test_a_key_that_is_learned_again_from_the_catalog_is_none_of_a_file(tmp_path):
    (tmp_path / "key").write_text(INNER)
    sealing.learn_from_file("/lake/", str(tmp_path / "key"))
    sealing.learn("/lake/", OUTER)

    assert (sealing.key_of("/lake/x"), sealing.file_of("/lake/x")) == (OUTER, None)


def test_another_process_opens_by_its_environment_what_this_one_sealed(monkeypatch):
    sealing.learn("/lake/", OUTER)
    content = sealing.sealed("/lake/x", DOCUMENT)
    environment = sealing.as_environment("/lake/x")
    assert DOCUMENT not in content

    monkeypatch.setattr(sealing, "_known", {})
    with pytest.raises(SparkJobError, match="/lake/x is sealed with a key that this process does not have"):
        sealing.opened("/lake/x", content)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert sealing.opened("/lake/x", content) == DOCUMENT


@pytest.mark.parametrize("place", [-1, 20, 30])
def test_a_document_that_was_changed_is_refused(place):
    sealing.learn("/lake/", OUTER)
    content = bytearray(sealing.sealed("/lake/x", DOCUMENT))
    content[place] ^= 1

    with pytest.raises(SparkJobError, match="/lake/x was changed"):
        sealing.opened("/lake/x", bytes(content))


def test_without_a_key_documents_are_as_they_are():
    assert sealing.sealed("/lake/x", DOCUMENT) == sealing.opened("/lake/x", DOCUMENT) == DOCUMENT


@pytest.mark.parametrize("text", ["", "words", base64.b64encode(b"short").decode()])
def test_what_is_no_key_is_refused_and_not_shown(text):
    with pytest.raises(StorageError, match="openssl rand -base64 32") as raised:
        sealing.learn("/lake/", text)

    assert not text or text not in str(raised.value)


def test_no_key_shows_when_it_is_printed():
    sealing.learn("/lake/", OUTER)

    assert OUTER not in repr(sealing._known)
    assert repr(base64.b64decode(OUTER)) not in repr(sealing._known)


# --- documents that somebody put where they do not belong ---

JOB = "ducklake-01a21a71-f427-7899-b6a0-1de1e74e231a"
OTHER_JOB = "ducklake-01a21a71-f427-7899-b6a0-000000000000"


def test_a_plain_document_is_refused_where_documents_are_sealed():
    sealing.learn("/lake/", OUTER)

    with pytest.raises(SparkJobError, match=r"/lake/t/_DONE is not sealed.*Run the task that wrote it again"):
        sealing.opened("/lake/t/_DONE", DOCUMENT)
    assert sealing.lacks_seal("/lake/t/_DONE", DOCUMENT)
    assert not sealing.lacks_seal("/other/_DONE", DOCUMENT)


def test_a_plain_document_that_is_proven_by_other_means_is_taken():
    sealing.learn("/lake/", OUTER)

    assert sealing.opened("/lake/t/request.json", DOCUMENT, is_proven=True) == DOCUMENT


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
    sealing.learn("/lake/", OUTER)
    content = sealing.sealed(f"/lake/main/t/{JOB}/_DONE", DOCUMENT)

    with pytest.raises(SparkJobError, match="was sealed for another place"):
        sealing.opened(other, content)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (f"s3a://bucket/lake/t/{JOB}/_DONE", f"s3://bucket/lake/t/{JOB}/_DONE"),
        (f"/lake/ducklake/t/{JOB}/_DONE", f"/mnt/lake/ducklake/t/{JOB}/_DONE"),
        ("/checkpoints/a/ducklake/q/3.json", "file:///checkpoints/a/ducklake/q/3.json"),
    ],
)
def test_a_document_is_the_same_by_every_spelling_of_its_directory(written, read):
    sealing.learn("", OUTER)

    assert sealing.opened(read, sealing.sealed(written, DOCUMENT)) == DOCUMENT


def test_a_document_of_an_older_release_is_taken_only_where_it_names_its_place():
    sealing.learn("/lake/", OUTER)
    known = sealing._known["/lake/"]
    nonce = bytes(12)
    content = b"DLS1" + known.id + nonce + sealing._aes(known.key).encrypt(nonce, DOCUMENT, None)

    with pytest.raises(SparkJobError, match=r"sealed by an older release.*Run the task that wrote it again"):
        sealing.opened(f"/lake/{JOB}/_DONE", content)
    assert sealing.opened("/lake/x", content, names_its_place=True) == DOCUMENT


def test_drivers_without_the_key_leave_plain_documents_unless_they_have_it_in_a_file(tmp_path):
    (tmp_path / "key").write_text(INNER)
    sealing.learn("/lake/", OUTER)
    sealing.learn_from_file("/lake/inner/", str(tmp_path / "key"))

    sealing.expect_drivers_without_key()

    assert sealing.opened("/lake/t/_DONE", DOCUMENT) == DOCUMENT
    with pytest.raises(SparkJobError, match="is not sealed"):
        sealing.opened("/lake/inner/_DONE", DOCUMENT)
