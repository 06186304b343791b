"""A disk that is full fails a commit with an error of ours, and leaves nothing of it."""

from tests.faults import small_disk


def test_data_files_that_do_not_fit_are_removed_and_nothing_is_committed(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    found = small_disk.run("data_is_on_it", f"sqlite:///{tmp_path}/catalog.sqlite", disk)

    assert found == ["StorageError", "StorageError", True, "done", 20, 0]


def test_a_catalog_that_cannot_grow_refuses_the_commit_and_its_files_are_removed(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "data").mkdir()

    attempts, after, inlined, in_files, findings = small_disk.run(
        "catalog_is_on_it", f"sqlite:///{tmp_path}/catalog.sqlite", disk
    )

    assert attempts[0] == ["CatalogRefusedError", True]
    assert {tuple(one) for one in attempts} == {("CatalogRefusedError", True), ("done", False)}
    done = 1 + sum(how == "done" for how, _ in attempts)
    assert (after, inlined, in_files, findings) == ("done", 100 * done, 20 * done, 0)
