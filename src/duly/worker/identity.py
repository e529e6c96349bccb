"""Tells which process this is, and whether another one still lives.

Host name and pid are not enough: pods share names, pids come again. Boot id, pid namespace and the moment the process
started make it certain; where the system does not say, the answer is "unknown" and the lease decides.
"""

from __future__ import annotations

import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path

from duly.domain.records import ProcessIdentity, WorkerRecord


@lru_cache(maxsize=1)
def boot_id() -> str:
    """What changes with every boot of this machine; empty where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        answer = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
        return answer.stdout.strip()
    return ""


def pid_namespace() -> str:
    """Which set of pids this process counts in; empty where there is only one."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def started_at(pid: int) -> str | None:
    """When a process started, in whatever unit the system has; None if it is gone, empty if that cannot be told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        pass  # gone, or hidden: /proc may be mounted so that one sees nobody else's processes (hidepid)
    except (OSError, IndexError):
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""


def this_process() -> ProcessIdentity:
    """Who we are."""
    pid = os.getpid()
    return ProcessIdentity(
        host=platform.node(),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        pid=pid,
        process_started_at=started_at(pid) or "",
    )


def is_gone(other: ProcessIdentity, *, one_host: bool = False) -> bool:
    """Whether it is certain, seen from here, that a process has ended.

    `one_host`: all who use this database are on this machine, so a process of another boot has ended with that boot.
    A host of the same name proves nothing: two machines may share one.
    """
    if not other.boot_id or not boot_id():
        return False
    if other.boot_id != boot_id():
        return one_host
    if other.pid_namespace != pid_namespace():
        return False
    found = started_at(other.pid)
    if found is None:
        return True
    return bool(found and other.process_started_at and found != other.process_started_at)


SILENCE_US = 15_000_000
"""How much longer than its lease a worker may be silent before it is not counted as alive."""


def is_alive(worker: WorkerRecord) -> bool:
    """Whether a worker lives, as far as can be told from here."""
    return worker.silent_us <= worker.lease_us + SILENCE_US and not is_gone(worker.process)
