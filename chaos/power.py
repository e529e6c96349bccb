"""The disk as a power cut leaves it: from a log of system calls, what had reached it for certain, and what perhaps.

A write is certain once an fsync of its file has returned that began after the write had ended. All others may have
reached the disk or not, in any order, the last one in part. That a file was made is taken for certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR = 512
TRACED = "pwrite64,fsync,fdatasync,ftruncate,write"
_CALL = re.compile(rb"(\d+) +(\w+)\((\d+)<([^>]*)>(.*)")
_RESUMED = re.compile(rb"(\d+) +<\.\.\. \w+ resumed>(.*)")
_WRITTEN = re.compile(rb', "([^"]*)"(?:\.\.\.)?, (\d+)(?:, (\d+))?')


def strace(log: Path) -> list[str]:
    """What a command line begins with that is to be watched."""
    watched = ["-e", f"trace={TRACED}", "-e", "signal=none"]
    return ["strace", "-f", "-y", "-xx", "-s", "1000000", "--seccomp-bpf", *watched, "-o", str(log)]


@dataclass(frozen=True, slots=True)
class Call:
    """One system call about a file: at which lines of the log it began and ended."""

    name: str
    path: str
    began: int
    ended: int
    offset: int = 0
    data: bytes = b""


def read_log(log: Path) -> list[Call]:
    """All calls that succeeded, in the order in which they ended."""
    found: list[Call] = []
    open_calls: dict[bytes, tuple[int, bytes]] = {}
    with log.open("rb") as file:
        for number, line in enumerate(file):
            if line.rstrip().endswith(b"<unfinished ...>"):
                open_calls[line.split(None, 1)[0]] = (number, line.rstrip()[: -len(b"<unfinished ...>")])
                continue
            began, whole = number, line
            if resumed := _RESUMED.match(line):
                if resumed[1] not in open_calls:
                    continue
                began, first = open_calls.pop(resumed[1])
                whole = first.rstrip() + resumed[2]
            if call := _call(whole, began, number):
                found.append(call)
    return found


def _call(line: bytes, began: int, ended: int) -> Call | None:
    match = _CALL.match(line)
    if match is None:
        return None
    name, path, rest = match[2].decode(), _unescaped(match[4]).decode(errors="replace"), match[5]
    answer = rest.rpartition(b" = ")[2].split()[0]
    if not answer.isdigit():
        return None
    match name:
        case "fsync" | "fdatasync":
            return Call("sync", path, began, ended)
        case "ftruncate":
            return Call("truncate", path, began, ended, offset=int(re.findall(rb", (\d+)", rest)[0]))
        case "pwrite64" | "write":
            written = _WRITTEN.match(rest)
            if written is None:
                return None
            data = _unescaped(written[1])[: int(answer)]
            return Call(name, path, began, ended, offset=int(written[3] or -1), data=data)
        case _:
            return None


def _unescaped(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(b"\\x", b"").decode()) if b"\\x" in text else text


@dataclass(slots=True)
class Disk:
    """The files of a machine as its calls come in."""

    certain: dict[str, bytearray] = field(default_factory=dict)
    pending: dict[str, list[Call]] = field(default_factory=dict)

    def take(self, call: Call) -> None:
        """A call has ended."""
        waiting = self.pending.setdefault(call.path, [])
        self.certain.setdefault(call.path, bytearray())
        if call.name != "sync":
            waiting.append(call)
            return
        for each in waiting:
            if each.ended < call.began:
                _apply(self.certain[call.path], each)
        self.pending[call.path] = [each for each in waiting if each.ended >= call.began]

    def after_cut(self, how: str, chance: Random) -> dict[str, bytearray]:
        """What is there when the power is back. `how`: "none" of what was not certain, a "prefix" of it, or "some"."""
        found = {}
        for path, image in self.certain.items():
            image, kept = bytearray(image), self.pending[path]
            if how == "none":
                kept = []
            elif how == "prefix":
                kept = kept[: chance.randint(0, len(kept))]
            else:
                kept = [call for call in kept if chance.random() < 0.5]
            for each in kept[:-1]:
                _apply(image, each)
            if kept:
                _apply(image, _torn(kept[-1], chance))
            found[path] = image
        return found


def _torn(call: Call, chance: Random) -> Call:
    """Some first sectors of a write."""
    if call.name == "truncate" or chance.random() < 0.5:
        return call
    size = chance.randrange(0, len(call.data) + 1, SECTOR)
    return Call(call.name, call.path, call.began, call.ended, call.offset, call.data[:size])


def _apply(image: bytearray, call: Call) -> None:
    if call.name == "truncate":
        del image[call.offset :]
        image.extend(bytes(call.offset - len(image)))
        return
    image.extend(bytes(max(0, call.offset - len(image))))
    image[call.offset : call.offset + len(call.data)] = call.data


def cuts(calls: list[Call], at: list[int]) -> Iterator[tuple[int, Disk]]:
    """The disk at these lines of the log, which must be in order. It is the same object each time."""
    disk, n = Disk(), 0
    for line in at:
        while n < len(calls) and calls[n].ended <= line:
            disk.take(calls[n])
            n += 1
        yield line, disk
