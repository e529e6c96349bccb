"""Runs one operation into one failure, recovers as its caller would, and judges what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from duly.domain.errors import DatabaseUnavailable, DulyError
from duly.store.store import Store
from tests.crash_matrix.afterwards import Begun, Watched, work_off
from tests.crash_matrix.course import Course, Crossing, Place
from tests.crash_matrix.exits import Exits, Request
from tests.crash_matrix.faulty_postgres import CONNECTIONS, EXITED, RAISED, FaultyPostgres
from tests.crash_matrix.modes import ON_POSTGRES, ON_SQLITE, Mode
from tests.crash_matrix.operation import Operation
from tests.crash_matrix.schema_state import PostgresSchema, SqliteSchema
from tests.crash_matrix.state import Dump, PostgresState, SqliteState, difference
from tests.crash_matrix.world import Faulty, World, open_faulty, store_on
from tests.store import invariants
from tests.store.raw import Raw

TRIES = 8
"""How often an operation can be done at most: five tries by the store, and what the caller does after that."""


@contextmanager
def deterministic() -> Iterator[None]:
    """Have hints sent at once and by the same thread, and no pause between tries."""
    with patch("duly.store.poker.RARE", -1.0), patch("duly.store.postgres.random", SimpleNamespace(random=lambda: 0.0)):
        yield


class Case(NamedTuple):
    """One failure at one boundary."""

    crossing: Crossing
    mode: Mode

    @property
    def is_caught(self) -> bool:
        """Whether it is an application's statement that fails: the operation may say so, and do nothing."""
        return self.crossing.statement == "Foreign" and self.mode in RAISED

    def __str__(self) -> str:
        return f"{self.mode} at {self.crossing.place.use}.{self.crossing.place.step} {self.crossing.statement}"


class Bench:
    """One operation on one database: what it does undisturbed, and what it does in each case."""

    def __init__(self, operation: Operation, url: str, exits: Exits) -> None:
        self.operation = operation
        self.url = url
        self.exits = exits
        self.is_postgres = url.startswith("postgresql:")
        self.state = self._state()
        self.raw = Raw(url)
        self.clock = operation.clock()
        self.kept: dict[str, Any] = {}
        self._database: Faulty | None = None
        self._judged: set[str] = set()
        self._arrange()
        self.course, self.stages, self.dumps, self.answers = self._undisturbed()

    def _state(self) -> Any:
        if self.is_postgres:
            timeless = self.operation.runs_clock
            return PostgresSchema(self.url) if self.operation.schema else PostgresState(self.url, timeless=timeless)
        path = Path(self.url.removeprefix("sqlite:///"))
        return (SqliteSchema if self.operation.schema else SqliteState)(path)

    def close(self) -> None:
        self._close_database()
        self.raw.close()
        self.state.close()

    # -- undisturbed --------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        world = World(self._open(), self.clock, self.kept, self.raw)
        self.operation.arrange(world)
        self._close_database()
        self.raw.close()
        self.state.keep()
        self.now, self.lease = self.clock._now, self.clock._lease

    def _undisturbed(self) -> tuple[Course, list[Dump], list[Dump], list[Any]]:
        """Do it once, with a look after each use of the database; then again and again, as one who is not told."""
        operation, store = self.operation, self._fresh()
        stages = [self._dump()]
        promises: Begun | None = None
        if not operation.broken and not operation.schema:
            invariants.check(self.raw, self.now)
            promises = Begun(Watched(self.raw, self.clock, store))
        course = Course()
        course.after_use = lambda: stages.append(self._dump())
        self._on(course)
        answers: list[Any] = [operation.act(self._world(store))]
        self._on(Course())
        course.after_use = None
        dumps = [self._dump()]
        if promises is not None:
            promises.check(operation.step or "operation")
        for _ in range(TRIES if operation.twice else 1):
            answers.append(self._caught(operation.repeat or operation.act, store))
            dumps.append(self._dump())
        self._close_database()
        return course, stages, dumps, answers

    def _caught(self, act: Any, store: Store) -> Any:
        """The answer; an error is one too."""
        try:
            return act(self._world(store))
        except Exception as error:
            return type(error)

    @property
    def same_twice(self) -> bool:
        return all(dump == self.dumps[0] for dump in self.dumps)

    def cases(self) -> list[Case]:
        modes = ON_POSTGRES if self.is_postgres else ON_SQLITE
        return [
            Case(crossing, mode)
            for crossing in self.course.crossed
            for mode in modes
            if (crossing.last or not mode.only_last) and (crossing.statement, mode) != ("Foreign", Mode.BUSY)
        ]

    # -- disturbed ----------------------------------------------------------------------------------------------------

    def run(self, case: Case) -> None:
        """Run one case; fail if anything is not as it must be."""
        try:
            self._run(case)
        except AssertionError as error:
            raise AssertionError(f"{self.operation.name}, {case}: {error}") from error

    def _run(self, case: Case) -> None:
        place, mode = case.crossing.place, case.mode
        if mode.ends_process:
            self._end_process(place, mode)
            told: Any = None
            store = None
        else:
            store = self._fresh()
            course = Course(place, mode)
            self._on(course)
            told = self._told(store, DulyError if case.is_caught else DatabaseUnavailable)
            assert course.struck, "the boundary was not reached"
            self._heal()
        between = self._dump()
        self._judge(between)
        if isinstance(told, tuple) and not (case.is_caught and between == self.stages[0]):
            self._check_success(between, told[0], mode)
        else:
            self._check_between(between, place, mode)
            self._repeat(between, store or self._open())
        self._check_usable()

    def _told(self, store: Store, failure: type[DulyError]) -> Any:
        """What the caller is told: an answer, in a tuple, or that the database failed."""
        try:
            return (self.operation.act(self._world(store)),)
        except failure as error:
            return error

    def _end_process(self, place: Place, mode: Mode) -> None:
        self._fresh(opened=False)
        request = Request(self.operation.name, self.url, self.now, self.lease, self.kept, place, mode)
        status = self.exits.end_in(request)
        assert status == EXITED, f"the process ended with {status}, not where it should"
        if isinstance(self.state, PostgresState | PostgresSchema):
            self.state.wait_until_alone()

    def _check_success(self, found: Dump, answer: Any, mode: Mode) -> None:
        """Whoever was told that it is done finds it done, once."""
        may = [self.dumps[0]] if not self.operation.twice or not mode.may_commit else self.dumps
        if self.operation.later:
            may = [*may, *self.stages]
        assert found in may, "told that it is done, and it is not as it should be\n" + difference(self.dumps[0], found)
        answers = self.answers if mode.may_commit or self.operation.later else self.answers[:1]
        assert answer in answers, f"the answer is {answer}, not one of {answers[:2]}"

    def _check_between(self, found: Dump, place: Place, mode: Mode) -> None:
        """Whoever was not told finds all of it or nothing: what was before this use of the database, or after."""
        may = [self.stages[place.use - 1], self.stages[place.use]]  # all: what failed may have been a last look
        if mode.may_commit and self.operation.twice and mode.every_time:
            may += self.dumps
        assert found in may, "neither all nor nothing was stored\n" + difference(may[-1], found)

    def _repeat(self, between: Dump, store: Store) -> None:
        """Do what the caller does that was not told how it went."""
        if self.operation.forgone:
            return
        answer = (self.operation.repeat or self.operation.act)(self._world(store))
        found = self._dump()
        self._judge(found)
        begun = between != self.stages[0]
        may = self.dumps if self.operation.twice and begun else self.dumps[:1]
        assert found in may, "repeated, it is not as if it had been done once\n" + "\nOR\n".join(
            difference(each, found) for each in may
        )
        answers = self.answers if begun else self.answers[:1]
        assert answer in answers, f"repeated, the answer is {answer}, not one of {answers[:2]}"

    def _check_usable(self) -> None:
        """Nobody holds anything, every connection is free, and the next operation is carried out."""
        if self._database is not None:
            store_on(self._database).now_us()
            if isinstance(self._database, FaultyPostgres):
                pool = self._database._connections
                assert pool._room._value == CONNECTIONS, "a connection was not given back"
                assert not pool._out, "a connection is still out"
        self.state.check_let_go()

    def _judge(self, dump: Dump) -> None:
        """What always holds, judged once for each state that is found."""
        key = json.dumps(dump)
        if key in self._judged or self.operation.schema or (self.operation.broken and dump == self.stages[0]):
            return
        self._judged.add(key)
        invariants.check(self.raw, self.now)
        if not self.is_postgres:
            self.raw.close()

    def work_off(self) -> None:
        """From what is stored before and after, let work go on: nothing is stuck."""
        for done in (False, True):
            if self.operation.schema or (self.operation.broken and not done):
                continue
            store = self._fresh()
            if done:
                self.operation.act(self._world(store))
            clock = self.operation.clock()
            clock._now, clock._lease = self.now, self.lease
            other = store_on(open_faulty(self.url, clock))
            try:
                work_off(Watched(self.raw, clock, other))
            finally:
                other.close()
                self.raw.close()
        self._close_database()

    # -- how ----------------------------------------------------------------------------------------------------------

    def _fresh(self, *, opened: bool = True) -> Store:
        """The state that was arranged, and a store on it."""
        if not self.is_postgres or not opened:
            self._close_database()
        if not self.is_postgres:
            self.raw.close()
        self.state.put_back()
        return self._open() if opened else Store.__new__(Store)

    def _open(self) -> Store:
        if self._database is None:
            self._database = open_faulty(self.url, self.clock)
            if isinstance(self._database, FaultyPostgres):
                self._database.terminate = self.state.terminate
        self._database.course = Course()
        store = store_on(self._database)
        self.operation.warm(store)
        return store

    def _dump(self) -> Dump:
        found: Dump = self.state.dump()
        return {table: rows for table, rows in found.items() if table not in self.operation.uncompared}

    def _on(self, course: Course) -> None:
        assert self._database is not None
        self._database.course = course

    def _heal(self) -> None:
        assert self._database is not None
        self._database.course.heal()
        if not isinstance(self._database, FaultyPostgres):
            self._database.heal()

    def _world(self, store: Store) -> World:
        return World(store, self.clock, dict(self.kept))

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
