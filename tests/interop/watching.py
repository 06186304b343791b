"""Whether anybody touches a directory: told by the kernel, since much is read and written by native code."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ACCESS, _MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x1, 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _OPEN = 0x100, 0x200, 0x400, 0x20
_EVENT = struct.Struct("iIII")
READS = {_ACCESS: "read", _OPEN: "opened"}
CHANGES = {
    _MODIFY: "written",
    _ATTRIB: "changed",
    _MOVED_FROM: "moved away",
    _MOVED_TO: "moved here",
    _CREATE: "made",
    _DELETE: "deleted",
    _DELETE_SELF: "deleted itself",
}


class Watch:
    """What happened to files in some directories since one last asked."""

    def __init__(self, descriptor: int, folders: dict[int, Path]) -> None:
        self._descriptor = descriptor
        self._folders = folders

    def events(self, *, reads: bool = True) -> set[str]:
        """Return what happened, such as ``"read /beside/victim.parquet"``; ``reads``: not only changes."""
        words = {**CHANGES, **(READS if reads else {})}
        return {f"{words[bit]} {path}" for mask, path in self._pending() for bit in words if mask & bit}

    def _pending(self) -> Iterator[tuple[int, Path]]:
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                folder, mask, _, length = _EVENT.unpack_from(data, place)
                name = data[place + _EVENT.size :][:length].rstrip(b"\0").decode(errors="replace")
                yield mask, self._folders[folder] / name
                place += _EVENT.size + length


@contextmanager
def watching(*folders: Path) -> Iterator[Watch]:
    """Watch directories and those below them."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    wanted = sum({**READS, **CHANGES})
    known = {}
    try:
        for folder in [below for one in folders for below in (one, *one.rglob("*")) if below.is_dir()]:
            number = libc.inotify_add_watch(descriptor, os.fsencode(folder), wanted)
            assert number >= 0, os.strerror(ctypes.get_errno())
            known[number] = folder
        yield Watch(descriptor, known)
    finally:
        os.close(descriptor)
