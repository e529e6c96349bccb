"""Hosts of a worker's own on this machine: network namespaces whose wires to the server can be made to swallow all.

Packets are lost because they are sent to a station that is not there: no reset, no refusal, and each way by itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = "02:00:00:00:00:99"


def missing() -> str | None:
    """What there is to say if hosts cannot be made here."""
    program = shutil.which("ip", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin")
    if program is None:
        return "the program ip is not installed (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"duly-try-{os.getpid()}"
    made = subprocess.run([program, "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    subprocess.run([program, "netns", "delete", name], check=False)
    return None


def ip(*words: str, check: bool = True) -> None:
    """Run the program of that name."""
    subprocess.run(["ip", *words], check=check, capture_output=not check)


class Host:
    """One namespace with a wire to the place where the server is."""

    def __init__(self, number: int, network: int) -> None:
        self.name = f"duly-{os.getpid()}-{number}"
        self.here = f"10.{network}.{number}.1"
        """The server's address on this wire."""
        self.there = f"10.{network}.{number}.2"
        self._wire = f"dy{os.getpid() % 100_000}n{number}"
        self._mac_here, self._mac_there = (f"02:00:00:00:{side}:{number:02x}" for side in ("01", "02"))

    @property
    def command(self) -> list[str]:
        """What a command line begins with to be run there."""
        return ["ip", "netns", "exec", self.name]

    def make(self) -> None:
        """Have it."""
        ip("netns", "add", self.name)
        ip("link", "add", self._wire, "address", self._mac_here, "type", "veth",
           "peer", "name", "wire", "address", self._mac_there, "netns", self.name)  # fmt: skip
        ip("address", "add", f"{self.here}/30", "dev", self._wire)
        ip("link", "set", self._wire, "up")
        ip("-n", self.name, "address", "add", f"{self.there}/30", "dev", "wire")
        ip("-n", self.name, "link", "set", "wire", "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        self.heal()

    def cut(self, *, to_server: bool = True, from_server: bool = True) -> None:
        """From now on what is sent is lost, either way or both."""
        if from_server:
            self._address(self.there, NOBODY)
        if to_server:
            self._address(self.here, NOBODY, "-n", self.name)

    def heal(self) -> None:
        """All arrives again."""
        self._address(self.there, self._mac_there)
        self._address(self.here, self._mac_here, "-n", self.name)

    def _address(self, address: str, station: str, *where: str) -> None:
        device = "wire" if where else self._wire
        ip(*where, "neighbour", "replace", address, "lladdr", station, "nud", "permanent", "dev", device)

    def remove(self) -> None:
        """Be rid of it, and of its wire."""
        ip("link", "delete", self._wire, check=False)
        ip("netns", "delete", self.name, check=False)


@contextmanager
def hosts(n: int) -> Iterator[list[Host]]:
    """Some hosts; gone at the end."""
    network = 64 + os.getpid() % 128
    made = [Host(number, network) for number in range(n)]
    try:
        for host in made:
            host.make()
        yield made
    finally:
        for host in made:
            host.remove()
