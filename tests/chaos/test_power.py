"""The disk after a power cut has what was synced, and of the rest what chance left."""

from __future__ import annotations

from pathlib import Path
from random import Random

from chaos.power import Call, Disk, cuts, read_log


def hexed(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def write(offset: int, data: bytes, at: int, path: str = "db") -> Call:
    return Call("pwrite64", path, at, at, offset, data)


def sync(began: int, ended: int, path: str = "db") -> Call:
    return Call("sync", path, began, ended)


def left(disk: Disk, how: str = "none") -> bytes:
    return bytes(disk.after_cut(how, Random(1))["db"])


def test_what_was_synced_is_there_and_the_rest_is_not() -> None:
    disk = Disk()
    for call in (write(0, b"aaaa", 1), sync(2, 2), write(2, b"bbbb", 3)):
        disk.take(call)
    assert left(disk) == b"aaaa"


def test_a_write_that_ended_after_the_sync_began_is_not_certain() -> None:
    disk = Disk()
    for call in (write(0, b"aa", 1), write(2, b"bb", 3), sync(2, 4)):
        disk.take(call)
    assert left(disk) == b"aa"


def test_another_files_sync_makes_nothing_certain() -> None:
    disk = Disk()
    for call in (write(0, b"aa", 1), sync(2, 2, "other")):
        disk.take(call)
    assert left(disk) == b""


def test_what_is_not_certain_may_survive_in_part_and_out_of_order() -> None:
    disk = Disk()
    disk.take(write(0, b"....", 1))
    disk.take(sync(2, 2))
    for n in range(4):
        disk.take(write(n, b"x", 3 + n))
    some = {bytes(disk.after_cut("some", Random(seed))["db"]) for seed in range(300)}
    prefixes = {bytes(disk.after_cut("prefix", Random(seed))["db"]) for seed in range(300)}
    assert b".x.x" in some, "the second and the fourth, without the first"
    assert prefixes <= {b"....", b"x...", b"xx..", b"xxx.", b"xxxx"}
    assert len(prefixes) > 2


def test_a_write_may_be_torn_between_sectors() -> None:
    disk = Disk()
    disk.take(write(0, b"x" * 2_048, 1))
    sizes = {len(disk.after_cut("prefix", Random(seed))["db"]) for seed in range(300)}
    assert {512, 1_024, 2_048} <= sizes
    assert all(size % 512 == 0 for size in sizes)


def test_a_file_cut_short_is_so_once_that_is_synced() -> None:
    disk = Disk()
    for call in (write(0, b"aaaa", 1), sync(2, 2), Call("truncate", "db", 3, 3, offset=1)):
        disk.take(call)
    assert left(disk) == b"aaaa"
    disk.take(sync(4, 4))
    assert left(disk) == b"a"


def test_the_log_is_read_also_where_calls_of_two_processes_overlap(tmp_path: Path) -> None:
    log, path = tmp_path / "log", hexed(b"/d/db-wal")
    log.write_text(
        f'7 pwrite64(3<{path}>, "{hexed(b"ab")}", 2, 32) = 2\n'
        f"7 fdatasync(3<{path}> <unfinished ...>\n"
        f'8 write(4<{hexed(b"/d/ledger")}>, "{hexed(b"stored x")}", 8) = 8\n'
        "7 <... fdatasync resumed>) = 0\n"
        f"9 ftruncate(3<{path}>, 5) = -1 ENOSPC (No space left on device)\n"
        f"9 ftruncate(3<{path}>, 5) = 0\n"
        "9 +++ killed by SIGKILL +++\n"
    )
    assert read_log(log) == [
        Call("pwrite64", "/d/db-wal", 0, 0, 32, b"ab"),
        Call("write", "/d/ledger", 2, 2, -1, b"stored x"),
        Call("sync", "/d/db-wal", 1, 3),
        Call("truncate", "/d/db-wal", 5, 5, 5),
    ]


def test_the_disk_is_told_at_each_cut() -> None:
    calls = [write(0, b"a", 1), sync(2, 2), write(1, b"b", 3), sync(4, 4)]
    assert [left(disk) for _, disk in cuts(calls, [1, 2, 3, 9])] == [b"", b"a", b"a", b"ab"]
