"""A proxy between workers and a server that cuts connections at moments of its choice.

    python -m chaos.proxy SOCKET '{"seed": 1, "share": 0.02}'

Says at which port it listens. "cut" on its standard input has it begin to cut, "heal" to stop; to each it answers how
often it has cut a connection in which way. It leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MOMENTS = ("before the request", "before the reply", "within the reply")
IDLE = "while idle"
"""Nothing was under way, as far as can be told: what the listener's connection suffers."""
PIECE = 65_536


class Pair:
    """One connection of a client, and ours to the server on its behalf."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.begun = False
        """Whether the client is past its greeting."""
        self.moment: str | None = None
        """When it is to be cut, once that is decided."""

    def cut(self, moment: str) -> None:
        """End both sides: the client's by a reset or in good order, whichever comes."""
        if self.client.is_closing():
            return
        reset = self.proxy.chance.random() < 0.5
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.client.transport.abort()
        else:
            self.client.close()
        self.server.close()
        self.proxy.cuts[f"{moment}, {'reset' if reset else 'closed'}"] += 1

    async def requests(self, reader: asyncio.StreamReader) -> None:
        """Pass on what the client says."""
        while piece := await reader.read(PIECE):
            # The first byte of the greeting is zero; all later messages begin with a letter.
            self.begun = self.begun or piece[0] != 0
            if self.begun and self.moment is None and self.proxy.strikes():
                self.moment = self.proxy.chance.choice(MOMENTS)
            if self.moment == MOMENTS[0]:
                return self.cut(MOMENTS[0])
            self.server.write(piece)
            await self.server.drain()
            if self.moment == MOMENTS[1]:
                await asyncio.sleep(self.proxy.chance.random() * 0.002)
                return self.cut(MOMENTS[1])
        self.server.close()

    async def replies(self, reader: asyncio.StreamReader) -> None:
        """Pass on what the server says."""
        while piece := await reader.read(PIECE):
            if self.moment == MOMENTS[1]:
                continue
            if self.moment == MOMENTS[2]:
                self.client.write(piece[: len(piece) // 2])
                with suppress(ConnectionError):
                    await self.client.drain()
                return self.cut(MOMENTS[2])
            self.client.write(piece)
            await self.client.drain()
        self.client.close()


class Proxy:
    """Takes connections, passes them on to the server, and cuts some."""

    def __init__(self, path: str, *, seed: int, share: float, idle_every: float = 0.1) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.share = share
        self.idle_every = idle_every
        self.cutting = False
        self.cuts: Counter[str] = Counter()
        self.pairs: set[Pair] = set()

    def strikes(self) -> bool:
        """Whether the next request is one too many."""
        return self.cutting and self.chance.random() < self.share

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Look after one connection."""
        try:
            from_server, to_server = await asyncio.open_unix_connection(self.path)
        except OSError:
            return writer.close()
        pair = Pair(self, writer, to_server)
        self.pairs.add(pair)
        try:
            await asyncio.gather(pair.requests(reader), pair.replies(from_server), return_exceptions=True)
        finally:
            self.pairs.discard(pair)
            for each in (writer, to_server):
                each.close()

    async def cut_idle(self) -> None:
        """Now and then cut any connection, whatever it is doing."""
        while True:
            await asyncio.sleep(self.idle_every * self.chance.uniform(0, 2))
            if self.cutting and (known := [pair for pair in self.pairs if pair.begun]):
                self.chance.choice(known).cut(IDLE)

    async def obey(self) -> None:
        """Do as standard input says, until it ends."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while word := (await reader.readline()).decode().strip():
            self.cutting = self.cutting if word == "count" else word == "cut"
            print(json.dumps(self.cuts), flush=True)

    async def run(self) -> None:
        """Listen and obey."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        beside = asyncio.create_task(self.cut_idle())
        await self.obey()
        beside.cancel()


class ProxyProcess:
    """A proxy in a process of its own."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.proxy", str(path), json.dumps(options)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def tell(self, word: str) -> dict[str, int]:
        """ "cut", "heal" or "count". Returns how often it has cut, by the moment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        answer: dict[str, int] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def proxy(path: Path, **options: Any) -> Iterator[ProxyProcess]:
    """A proxy in front of the Unix socket at `path`."""
    made = ProxyProcess(path, **options)
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__":
    asyncio.run(Proxy(sys.argv[1], **json.loads(sys.argv[2])).run())
