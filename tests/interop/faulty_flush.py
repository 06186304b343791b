"""A process that flushes lakes, and dies at a chosen point: see `tests.concurrency.faulty_writer`.

python -m tests.interop.faulty_flush
"""

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.deletes import deletes  # noqa: F401 - imported late otherwise
from airflow_provider_ducklake.lake.storage.moving import flush_files  # noqa: F401 - imported late otherwise
from tests.concurrency.faulty_writer import Outcome, serve


def flush(lake: Lake, _scenario: str) -> Outcome:
    try:
        flushed = lake.flush_inlined_data()
    except Exception as error:  # noqa: BLE001 - the test judges it
        return Outcome(error=f"{type(error).__name__}: {error}")
    return Outcome(next((one.snapshot_id for one in flushed), None))


if __name__ == "__main__":
    serve(flush)
