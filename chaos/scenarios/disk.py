"""A disk that fills up, and has room again."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from chaos.arena import Arena
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario
from duly import DulyError
from tests.postgres import PostgresServer

SQLITE_BYTES = 96 << 20
POSTGRES_BYTES = 768 << 20
"""The server keeps up to 256 MB of its log by itself."""


def lacking() -> str | None:
    """Whether a small file system can be mounted here."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with mounted(Path(folder), 1 << 20):
                return None
        except OSError as error:
            return f"no file system can be mounted here: {error}"


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """A file system of its own at `folder`, in memory."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise OSError("there is no mount command") from error
    if made.returncode:
        raise OSError(made.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@scenario(
    "disk-full",
    "the database's disk fills up and has room again",
    short=Size(1_500, 3),
    long=Size(40_000, 30),
    needs=lacking,
)
def disk_full(place: Place, size: Size, seed: int) -> Report:
    """Workers bear it, go on by themselves when there is room, and nothing is lost or damaged."""
    with ExitStack() as stack:
        folder = stack.enter_context(_small_disk(place))
        options = {"seed": seed, "jobs": size.jobs, "faults": size.faults}
        url = f"sqlite:///{folder / 'duly.db'}" if place.server is None else place.server.url()
        arena = Arena(url, place.directory, **options)  # type: ignore[arg-type]
        stack.callback(arena.close)
        arena.start(3)
        arena.produce(seconds=0.5, share=0.05)
        for _ in range(size.faults):
            arena.pause(0.5)
            _fill_and_free(arena, folder, place.server)
            arena.pause(1.0)
        arena.settle()
        if place.server is None:
            with closing(sqlite3.connect(folder / "duly.db")) as connection:
                if (sound := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                    arena.problems.append(f"the file is damaged: {sound}")
        if arena.faults["refused enqueues"] < size.faults:
            arena.problems.append("hardly an enqueue was refused: nothing is shown")
        return arena.report("disk-full", place.database, log=place.log, bites=False)


@contextmanager
def _small_disk(place: Place) -> Iterator[Path]:
    """Where the database's files are, alone on a small disk."""
    if place.server is None:
        folder = place.directory / "disk"
        folder.mkdir()
        with mounted(folder, SQLITE_BYTES):
            yield folder
        return
    place.server.stop()
    data = place.server.data
    with mounted(_beside(data), POSTGRES_BYTES):
        shutil.copytree(_aside(data), data, dirs_exist_ok=True)
        _owned_alike(_aside(data), data)
        place.server.start()
        try:
            yield data
        finally:
            place.server.stop("immediate")


def _aside(data: Path) -> Path:
    return data.with_name("data-before")


def _beside(data: Path) -> Path:
    """Move the data out of the way and leave an empty folder in their place."""
    data.rename(_aside(data))
    data.mkdir()
    return data


def _owned_alike(model: Path, folder: Path) -> None:
    """Give copied files to whom the originals belong."""
    for each in (model, *model.rglob("*")):
        stat, copy = each.stat(), folder / each.relative_to(model)
        os.chown(copy, stat.st_uid, stat.st_gid)
        copy.chmod(stat.st_mode & 0o7777)


def _fill_and_free(arena: Arena, folder: Path, server: PostgresServer | None) -> None:
    """Leave no room for a while. Somebody else's files take it, or a log that grows."""
    ends = [arena.disturbing(process) for process in arena.workers]
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        _fill(arena, file.fileno())
        for _ in range(int(arena.chance.uniform(1, 40))):
            _grow(file.fileno())
            time.sleep(0.05)
    ballast.unlink()
    arena.faults["times full"] += 1
    if server is not None:
        time.sleep(0.5)
        if not _answers(server):
            server.stop("immediate")
            server.start()
            arena.faults["server restarts"] += 1
    for over in ends:
        over()


def _fill(arena: Arena, file: int, within: float = 60.0) -> None:
    """Take all room again and again until an enqueue is refused."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        _grow(file)
        try:
            job = arena.app["work"].enqueue()
        except DulyError:
            arena.faults["refused enqueues"] += 1
            return
        arena.ledger.stored([job.id])
    raise TimeoutError(f"nobody noticed within {within:.0f} s that the disk is full")


def _grow(file: int) -> None:
    """Take what room there is."""
    block = bytes(1 << 20)
    for size in (1 << 20, 1 << 12, 1):
        with suppress(OSError):
            while True:
                os.write(file, block[:size])


def _answers(server: PostgresServer) -> bool:
    """Whether the server has lived through it, or come up again by itself."""
    import psycopg

    until = time.monotonic() + 10
    while time.monotonic() < until:
        with suppress(psycopg.Error):
            psycopg.connect(server.url(), connect_timeout=2).close()
            return True
        time.sleep(0.2)
    return False
