"""The paths that Spark's JVM opens itself for a job: all else is opened by Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.planning.reading.scan import FileHistory
from airflow_provider_ducklake.lake.spark.job.request import (
    LakeSource,
    OverwriteSource,
    RowChangeSource,
    StreamSource,
    datasets_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_ducklake.lake.spark.job.request import JobRequest, Source
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile


def opened_by_jvm(request: JobRequest) -> dict[str, str]:
    """Return paths by what errors call them: one for each source and table that is certainly read.

    Tables without files are read by nobody, and what a user's function or stream reads is not known.
    """
    found = dict(_read(request.source))
    if request.engine == "native":
        found["engine='native'"] = request.directory
    return found


def _read(source: Source | None) -> Iterator[tuple[str, str]]:
    for name, dataset in datasets_of(source).items():
        if dataset.path is not None:
            yield name, dataset.path
    match source:
        case LakeSource():
            yield from _of_tables(source)
        case RowChangeSource(target, rows):
            yield from _of_files(str(target.table.name), target.files)
            if isinstance(rows, LakeSource):
                yield from _of_tables(rows)
        case OverwriteSource():
            yield from _read(source.replaced)
        case StreamSource():
            yield "checkpoint", source.checkpoint
        case _:
            return


def _of_tables(source: LakeSource) -> Iterator[tuple[str, str]]:
    for plan in source.tables.values():
        files = [one.file if isinstance(one, FileHistory) else one for one in plan.files]
        yield from _of_files(str(plan.table.name), files)


def _of_files(table: str, files: Sequence[LiveDataFile]) -> Iterator[tuple[str, str]]:
    if files:
        yield f"the table {table}", files[0].path
