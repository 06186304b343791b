"""Ids of the catalog's objects, each a type of its own.

Schemas, tables, views, macros, partition specs and sort specs share one counter (``next_catalog_id``); data
files, delete files and mappings share another (``next_file_id``); column ids count per table.
"""

from __future__ import annotations

from typing import NewType

SnapshotId = NewType("SnapshotId", int)
SchemaId = NewType("SchemaId", int)
TableId = NewType("TableId", int)
ViewId = NewType("ViewId", int)
MacroId = NewType("MacroId", int)
ColumnId = NewType("ColumnId", int)
PartitionId = NewType("PartitionId", int)
SortId = NewType("SortId", int)
DataFileId = NewType("DataFileId", int)
DeleteFileId = NewType("DeleteFileId", int)
MappingId = NewType("MappingId", int)
