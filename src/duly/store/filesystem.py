"""Tells on which kind of file system a file is (SQLite's log needs one that a single host owns), and its free space."""

from __future__ import annotations

import os
import re
from pathlib import Path

_KERNEL = "nfs nfs4 cifs smb smb2 smb3 smbfs 9p afs ceph glusterfs lustre gpfs beegfs davfs coda ocfs2 gfs2 vboxsf"
_FUSE = "sshfs glusterfs s3fs rclone cephfs ceph gcsfuse goofys juicefs"
NETWORK = frozenset(_KERNEL.split()) | {f"fuse.{name}" for name in _FUSE.split()}
_ESCAPE = re.compile(r"\\([0-7]{3})")


def kind_of(path: Path, mounts: str | None = None) -> str:
    """Name the file system that `path` is on; empty where the system does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    target = str(path.resolve())
    best, kind = "", ""
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), parts[1]).rstrip("/") or "/"
        inside = point == "/" or target == point or target.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind


def is_network(path: Path, mounts: str | None = None) -> bool:
    """Whether `path` is on a disk that other hosts may share."""
    return kind_of(path, mounts) in NETWORK


def free_bytes(folder: Path) -> int:
    """How much can still be written to the file system of `folder`."""
    if hasattr(os, "statvfs"):
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
    from shutil import disk_usage  # Windows; elsewhere a worker need not carry what it brings along

    return disk_usage(folder).free
