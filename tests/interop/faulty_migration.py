"""A process that migrates lakes, and dies at a chosen point: see `tests.concurrency.faulty_writer`.

    python -m tests.interop.faulty_migration

A scenario is the version to migrate to.
"""

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.moving import restored  # noqa: F401 - imported late otherwise
from tests.concurrency.faulty_writer import Outcome, serve


def migrate(lake: Lake, scenario: str) -> Outcome:
    try:
        lake.migrate(scenario)
    except Exception as error:  # noqa: BLE001 - the test judges it
        return Outcome(error=f"{type(error).__name__}: {error}")
    return Outcome()


if __name__ == "__main__":
    serve(migrate)
