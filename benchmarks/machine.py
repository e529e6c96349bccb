"""The machine: what it is, how busy it is, what a process has used. Counters come from /proc (Linux)."""

import os
import platform
import socket
import statistics
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
QUIET = 0.3
"""Busy cores below which the machine counts as quiet."""


def describe(folder: Path) -> dict[str, str]:
    """Say what a reader needs to judge the figures; `folder` is where the databases are."""
    return {
        "processor": processor(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * PAGE / 2**30:.0f} GB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "file system": file_system(folder) or "unknown",
        "fdatasync of 8 kB": f"{fdatasync_microseconds(folder):.0f} µs",
        "Python": platform.python_version(),
    }


def processor() -> str:
    """How many cores of which kind."""
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    name = told.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in told:  # virtual machines call cores of several generations by one name
        name += f" (family {told['cpu family']}, model {told.get('model', '?')})"
    return f"{os.cpu_count()} x {name}"


def file_system(folder: Path) -> str | None:
    """Name the type of the file system that holds `folder`, where the system tells."""
    try:
        mounts = [line.split() for line in (PROC / "mounts").read_text().splitlines()]
    except OSError:
        return None
    holding = [(len(point), kind) for _, point, kind, *_ in mounts if folder.resolve().is_relative_to(point)]
    return max(holding)[1] if holding else None


def fdatasync_microseconds(folder: Path, times: int = 100) -> float:
    sync = getattr(os, "fdatasync", os.fsync)
    block = bytes(8192)
    took: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(times):
            os.pwrite(file.fileno(), block, 0)
            started = time.perf_counter()
            sync(file.fileno())
            took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e6


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_quiet(busy_cores: float = QUIET, patience: float = 5.0) -> float:
    """Wait until less than `busy_cores` are busy, at most `patience` seconds; return how many are."""
    give_up_at = time.monotonic() + patience
    while (busy := _busy_cores(0.25)) >= busy_cores and time.monotonic() < give_up_at:
        pass
    return busy


def _busy_cores(seconds: float) -> float:
    before = _busy_seconds()
    time.sleep(seconds)
    return (_busy_seconds() - before) / seconds


def _busy_seconds() -> float:
    try:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = (
            int(ticks) for ticks in (PROC / "stat").read_text().splitlines()[0].split()[1:]
        )
    except OSError:
        return 0.0
    return (user + nice + system + irq + softirq) / TICKS


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    found = [pid]
    for parent in found:
        try:
            threads = list((PROC / str(parent) / "task").iterdir())
        except OSError:
            continue
        for thread in threads:
            try:
                found += [int(child) for child in (thread / "children").read_text().split()]
            except OSError:
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, its living descendants and those it has waited for."""
    ticks = 0
    for process in family(pid):
        try:
            fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS


def wake_ups(pid: int) -> float:
    """How often the threads of a process and its descendants have been put back to work so far."""
    woken = 0
    for process in family(pid):
        for thread in (PROC / str(process) / "task").glob("*/status"):
            lines = thread.read_text().splitlines()
            woken += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return woken


def resident_megabytes(pid: int, field: str = "VmRSS") -> float:
    """Memory of a process and its descendants; `field` is VmRSS (now) or VmHWM (the most so far)."""
    kilobytes = 0
    for process in family(pid):
        try:
            lines = (PROC / str(process) / "status").read_text().splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return kilobytes / 1024
