"""A fresh database for each piece of work, the programs that work on it, and the command line of both."""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from postgres import find_programs, running_server
from venvs import FOLDER, HERE, Environments, environment

Found = dict[str, Any]


class Place:
    """A fresh database and the programs that work on it."""

    def __init__(self, url: str, folder: Path, python: Path, driver: str) -> None:
        self.on_postgres = url.startswith("postgresql")
        self.folder = folder
        self._url, self._python, self._driver = url, python, driver

    def do(self, verb: str, **options: object) -> Found:
        """Run one verb of the driver."""
        driver = HERE / "drivers" / f"{self._driver}.py"
        command = [str(self._python), str(driver), verb, json.dumps(options)]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{verb}: {done.stderr[-3000:]}")
        found: Found = json.loads(done.stdout.strip().splitlines()[-1])
        return found

    @contextmanager
    def worker(self, *arguments: str, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, as people start it."""
        process = self.start_worker(*arguments, **settings)
        try:
            yield process
            if process.poll() is not None:
                sys.exit(f"the worker ended: {(self.folder / 'worker.log').read_text()[-2000:]}")
        finally:
            process.terminate()
            process.wait(30)

    def start_worker(self, *arguments: str, **settings: object) -> subprocess.Popen[bytes]:
        """A worker process that the caller ends."""
        command = [str(self._python), "-m", "duly", "worker", f"{self._driver}:jobs", *arguments]
        with (self.folder / "worker.log").open("ab") as out:
            return subprocess.Popen(
                command, cwd=HERE / "drivers", env=self._environment(**settings), stdout=out, stderr=out
            )

    def _environment(self, **settings: object) -> dict[str, str]:
        given = {f"BENCH_{name.upper()}": str(value) for name, value in settings.items()}
        return {**environment(), "BENCH_URL": self._url, "BENCH_LEDGER": str(self.folder), **given}


Work = Mapping[str, Callable[[Place, float], Found]]


def main(about: str, work: Work, driver: str, markdown: Callable[[Found], str]) -> None:
    """Do what the command line asks for, each piece on a database of its own."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ["postgresql", "sqlite"]
    parser.add_argument("--only", nargs="*", choices=list(work), default=list(work))
    parser.add_argument("--databases", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the results, beside those already in it"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page for the documentation")
    options = parser.parse_args()
    known = options.json is not None and options.json.exists()
    results: Found = json.loads(options.json.read_text()) if known else {}
    FOLDER.mkdir(exist_ok=True)
    environments = Environments()
    python = environments.python("duly")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(dir=FOLDER, prefix="places-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        server = None
        if "postgresql" in options.databases:
            server = stack.enter_context(running_server(find_programs(environments, folder), folder / "pg"))
        for name in options.only:
            for kind in options.databases:
                here = folder / f"{name}-{kind}"
                here.mkdir()
                url = f"sqlite:///{here / 'duly.db'}"
                if kind == "postgresql" and server is not None:
                    database = f"bench_{random.randrange(10**9)}"
                    server.ask(f"CREATE DATABASE {database}")
                    url = server.url(database)
                print(f"{name} on {kind} ...", file=sys.stderr, flush=True)
                results[f"{name} {kind}"] = found = work[name](
                    Place(url, here, python, driver), options.scale
                )
                print(json.dumps({f"{name} {kind}": found}), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(results))
