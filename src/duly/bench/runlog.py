"""The log that measured handlers append to: 16 bytes a run, from which rates, waits and repeated runs are counted."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

_ENTRY = struct.Struct("<qd")


class Ran(NamedTuple):
    """One run: the number of its job, and when its handler started, by the monotonic clock of this machine."""

    number: int
    at: float


class RunLog:
    """A file that several processes append to; what each appends stays whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)

    def record(self, number: int) -> None:
        """Note that a handler starts."""
        os.write(self._file, _ENTRY.pack(number, time.monotonic()))

    def __len__(self) -> int:
        return os.fstat(self._file).st_size // _ENTRY.size

    def read(self) -> list[Ran]:
        """What ran so far, as it started."""
        data = self.path.read_bytes()
        whole = len(data) // _ENTRY.size * _ENTRY.size
        return sorted((Ran(*each) for each in _ENTRY.iter_unpack(data[:whole])), key=lambda ran: ran.at)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
