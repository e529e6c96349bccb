"""Tells on which kind of file system a file lies: SQLite's write-ahead log needs one that a single host owns."""

from __future__ import annotations

from pathlib import Path

NETWORK = frozenset(
    "nfs nfs4 cifs smb smb2 smb3 smbfs 9p afs ceph glusterfs lustre gpfs beegfs fuse.sshfs fuse.glusterfs fuse.s3fs "
    "fuse.rclone fuse.cephfs davfs ncpfs coda ocfs2".split()
)


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
        point = parts[1].replace("\\040", " ").rstrip("/") or "/"
        inside = point == "/" or target == point or target.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind


def is_network(path: Path, mounts: str | None = None) -> bool:
    """Whether `path` is on a disk that other hosts may share."""
    return kind_of(path, mounts) in NETWORK
