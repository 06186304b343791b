"""How jobs' documents on an encrypted lake are sealed: by a key in a file, or one that the catalog keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.ledger import document_keys

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.catalog.open_lake import OpenLake


def open_documents(lake: OpenLake, key_file: str | None) -> None:
    """Learn by which key documents are sealed, if there is one yet.

    Raises:
        StorageError: the file cannot be read, or has no key.
    """
    if not lake.encrypted:
        return
    from airflow_provider_ducklake.lake.storage.files import writing  # noqa: PLC0415 - heavy

    if key_file is not None:
        writing.learn_from_file(lake.data_path, key_file)
        return
    with lake.translated():
        writing.learn(lake.data_path, document_keys.read(lake.catalog))


def seal_documents(lake: OpenLake) -> None:
    """Have documents be sealed from now on."""
    if not lake.encrypted:
        return
    from airflow_provider_ducklake.lake.storage.files import writing  # noqa: PLC0415 - heavy

    if writing.file_of(lake.data_path) is None:
        writing.learn(lake.data_path, document_keys.ensure(lake.catalog, writing.new_key()))
