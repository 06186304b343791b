"""How the two processes talk: pickles over pipes, with Arrow tables in Arrow's own format.

Both run the same Python, but each has a pyarrow of its own.
"""

import pickle
from typing import Any, BinaryIO

import pyarrow as pa


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> bytes | None:
        return _to_ipc(value) if isinstance(value, pa.Table) else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, data: bytes) -> pa.Table:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_all()


def send(pipe: BinaryIO, message: object) -> None:
    _Pickler(pipe).dump(message)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Return the next message.

    Raises:
        EOFError: the other side has ended.
    """
    return _Unpickler(pipe).load()


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
