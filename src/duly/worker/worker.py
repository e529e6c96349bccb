"""A worker: one process's claimer, runners, finisher, lease keeper, listener and upkeep, started and stopped as one."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from duly.domain.errors import DulyError, WorkerError
from duly.domain.ids import uuid7
from duly.domain.outcome import released
from duly.domain.records import HOLD
from duly.maintenance.declare import declare
from duly.maintenance.prune import prune_some
from duly.maintenance.rescue import rescue_after_boot, rescue_silent
from duly.store.database import Hint, Waker
from duly.store.ops_keys import Lanes
from duly.store.ops_unique import Patience
from duly.store.store import Store
from duly.worker import identity
from duly.worker.capture import Capture
from duly.worker.claimer import Claimer
from duly.worker.context import Run
from duly.worker.executor import Executor
from duly.worker.finisher import Finisher
from duly.worker.hooks import RunCoroutine, run_hook, run_hook_whatever
from duly.worker.keeper import Keeper
from duly.worker.registry import Kind, Registry, TaskDefinition
from duly.worker.runner import Runner, make_runner
from duly.worker.service import Service
from duly.worker.settings import WorkerSettings
from duly.worker.slots import JobsEnded, Pool, Slots, Spell
from duly.worker.telling import Telling
from duly.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from duly.metrics.figures import Figures
    from duly.worker.meter import Meter

log = logging.getLogger("duly.worker")

STOP_SECONDS = 2.0
"""How long handlers that were told to stop may take to do so."""
FINISH_SECONDS = 5.0
"""How long a worker that stops tries to write what ended."""

METER_SECONDS = 1.0
"""How long those who meter have at the least to take what is left, also when the grace is over."""


class Worker:
    """Runs jobs in this process until stopped."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: WorkerSettings,
        *,
        finished: Callable[[list[tuple[str, str]]], None] = lambda over: None,
    ) -> None:
        self.id = uuid7()
        self.settings = settings
        self._store = store
        self._registry = registry
        self._held: dict[str, Run] = {}
        self._state = "new"
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._out_of_touch = False
        self._hurry = False
        """Whether it was told to stop a second time."""
        self._waker: Waker | None = None
        kinds = {task.kind for task in (*registry, *registry.registered.values())}
        limits = self._limits = {
            Kind.ASYNC: settings.async_slots,
            Kind.THREAD: settings.thread_slots,
            Kind.PROCESS: settings.process_slots,
        }
        self._slots = Slots({kind: Pool(limits[kind]) for kind in Kind if kind in kinds}, settings.queues)
        # Who renews must not wait long on a connection that the network has swallowed: another may get through.
        self._reserved = [*(store.reserved(purpose) for purpose in ("settle", "claim")),
                          store.reserved("lease", patience=settings.lease / 3)]  # fmt: skip
        self._finisher = Finisher(self._reserved[0], self._held, self._ended, finished=finished, due_in=self._due_in)
        self._executor = Executor(
            registry,
            self._finisher.conclude,
            max_result=settings.max_result,
            now_us=self._now_us,
            crash_limit=settings.crash_limit,
        )
        self._runners = {kind: self._make_runner(kind) for kind in self._slots.pools}
        lease_us = int(settings.lease * 1e6)
        self._claimer = Claimer(
            self._reserved[1],
            registry,
            self._slots,
            worker_id=self.id,
            lease_us=lease_us,
            dispatch=self._dispatch,
            take_back=self._take_back,
            held=self._held,
            poll=self._poll,
            over=self._finisher.over,
            most=settings.max_jobs,
        )
        self._keeper = Keeper(
            self._reserved[2],
            self.id,
            self._held,
            self._interrupt,
            lease=settings.lease,
            renew_every=settings.renew_every,
        )
        self._claim_service = Service("claimer", self._claim, on_error=self._lost_touch)
        self._watch_service = Service("watch", self._keeper.watch)
        self._finish_service = Service("finisher", self._finisher.step)
        self._keep_service = Service("keeper", self._keeper.step)
        self._after_service = Service("afterwards", self._executor.afterwards.step)
        self._executor.afterwards.wake = self._after_service.wake
        self._listen_service = Service("listener", self._listen, on_error=self._missed_hints)
        self._upkeep = Upkeep(
            store,
            self.id,
            settings,
            held=self._held,
            claimer=self._claimer,
            keeper=self._keeper,
            state=lambda: self._state,
            write_down=self._write_down,
            wake_claimer=self._claim_service.wake,
            retire=self.retire,
        )
        self._upkeep_service = Service("upkeep", self._upkeep.step)
        self._finisher.wake = self._finish_service.wake
        self._finisher.let_in = self._let_in
        self._finisher.ending = self._ending
        self._finisher.freed = self._freed
        self._telling = Telling(store, registry, settings, now_us=self._now_us, on=lambda: self._run_on_loop)
        self._drain_until = 0.0
        self._capture = Capture(self._held)

    # -- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start. A second start is an error."""
        with self._lock:
            if self._state != "new":
                raise WorkerError("this worker has already been started. Make a new one")
            self._state = "starting"
        try:
            self._telling.serve(self)  # before all else, so that there is an answer from the start
            self._get_ready()
            with self._lock:
                self._state = "running"
        except BaseException:
            self._sign_off()
            raise
        logging.getLogger().addHandler(self._capture)
        self._telling.start()
        self._finisher.report = self._telling.report
        for service in self._services():
            service.start()
        self._store.poke(Hint("workers"))

    def _get_ready(self) -> None:
        self._upkeep.compare_clocks()
        self._waker = self._store.waker(self.id)
        self._write_down()
        for task in self._registry:
            while self._store.release_parked(task.name, task.signature.fingerprint):
                pass
        self._store.gates.declare(self._registry.limits(), self._registry.key_groups())
        declare(self._store, self._registry)
        self._registry.watchers.append(self._learn)
        for runner in self._runners.values():
            runner.start()
        for hook in self._registry.on_start:
            run_hook(hook, on=self._run_on_loop)

    @property
    def _run_on_loop(self) -> RunCoroutine | None:
        """How to run a coroutine of a hook on the loop of the handlers, if there is one."""
        runner = self._runners.get(Kind.ASYNC)
        return None if runner is None else runner.run_here  # type: ignore[attr-defined]

    def _learn(self, task: TaskDefinition) -> None:
        """A function was registered while this worker runs."""
        with self._lock:
            if task.kind not in self._runners:
                runner = self._make_runner(task.kind)
                runner.start()
                self._runners = {**self._runners, task.kind: runner}
                self._slots.pools = {**self._slots.pools, task.kind: Pool(self._limits[task.kind])}
        self._upkeep.known_changed = True
        self._claimer.hint([Hint("look")])
        self._claim_service.wake()

    def _services(self) -> list[Service]:
        return [
            self._finish_service,
            self._keep_service,
            self._after_service,
            self._watch_service,
            self._claim_service,
            self._listen_service,
            self._upkeep_service,
            *([] if self._telling.alerts is None else [self._telling.alerts]),
        ]

    def _write_down(self) -> None:
        self._store.add_worker(
            self.id,
            identity.this_process(),
            lease_us=int(self.settings.lease * 1e6),
            queues=json.dumps([share.name for share in self.settings.queues]),
            tasks=json.dumps(sorted({*self._registry.tasks, *(name for _, name in self._registry.registered)})),
            slots=sum(pool.slots for pool in self._slots.pools.values()),
            wake=self._waker.address if self._waker else None,
            version=self.settings.version,
            skew=self._upkeep.skew,
            capacity=self._capacity(),
        )

    def _capacity(self) -> str:
        """How the slots are divided: by kind, with the tasks of each (None: all others), and by queue."""
        kinds: dict[Kind, list[str]] = {kind: [] for kind in self._slots.pools}
        for task in (*self._registry.tasks.values(), *self._registry.registered.values()):
            kinds.setdefault(task.kind, []).append(task.name)
        rest = max(kinds, key=lambda kind: len(kinds[kind]), default=None)
        pools = [
            {"kind": kind, "slots": pool.slots, "tasks": None if kind is rest else sorted(set(kinds[kind]))}
            for kind, pool in self._slots.pools.items()
        ]
        shares = {share.name: share.slots for share in self.settings.queues if share.slots is not None}
        return json.dumps({"pools": pools, "queues": shares})

    def stop(self, grace: float | None = None) -> None:
        """Stop claiming, let running handlers end within `grace` seconds, give back the rest unharmed."""
        with self._lock:
            if self._state in ("new", "stopped"):
                self._state = "stopped"
                self._stopped.set()
                return
            first = self._state in ("running", "starting")
            self._state = "draining"
        if not first:
            self._hurry = True
            self._stopped.wait()
            return
        deadline = self._drain_until = time.monotonic() + (self.settings.grace if grace is None else grace)
        self._claimer.paused = True
        self._claim_service.stop()
        self._take_back()
        while self._held and time.monotonic() < deadline and not self._hurry:
            time.sleep(0.01)
        self._interrupt_all()
        self._shut_down()

    def _interrupt_all(self) -> None:
        """Tell what still runs to stop, wait a moment, and give back what did not."""
        for run in list(self._held.values()):
            run.stopping = True
            self._interrupt(run)
        told = time.monotonic()
        while self._held and time.monotonic() - told < (0.2 if self._hurry else STOP_SECONDS):
            time.sleep(0.01)
        left = [run for run in list(self._held.values()) if run.phase != 2 and not run.lost and run.completion is None]
        for run in left:
            run.lost = True  # what it still does is fenced off
        if left:
            log.warning("%d jobs did not stop in time and are given back", len(left))
            self._settle_released(left)

    def _settle_released(self, runs: list[Run]) -> None:
        plain = (HOLD["none"], HOLD["window"])
        try:
            self._store.settle([released(run.job) for run in runs if run.job.hold in plain])
            for run in runs:
                if run.job.hold not in plain:
                    self._store.settle_keyed(released(run.job), run.job.hold, patience=Patience.NONE)
        except DulyError as error:
            log.warning("jobs could not be given back: %s; others take them when their leases lapse", error)
        for run in runs:
            self._held.pop(run.job.id, None)

    def _shut_down(self) -> None:
        assert self._waker is not None
        ending = [each for each in self._services() if each not in (self._finish_service, self._after_service)]
        for service in ending:
            service.tell()
        self._waker.close()  # after its listener was told, which else would ask again and again until its turn to stop
        for service in ending:
            service.stop()
        until = time.monotonic() + FINISH_SECONDS
        while not (self._executor.afterwards.idle and self._finisher.idle) and time.monotonic() < until:
            self._finish_service.wake()
            time.sleep(0.005)
        self._after_service.stop()
        self._finish_service.stop()
        if self.meter is not None:
            self.meter.stop(0.2 if self._hurry else max(METER_SECONDS, self._drain_until - time.monotonic()))
        logging.getLogger().removeHandler(self._capture)
        for hook in self._registry.on_stop:
            run_hook_whatever(hook, on=self._run_on_loop)
        self._sign_off()

    def _sign_off(self) -> None:
        if self._learn in self._registry.watchers:
            self._registry.watchers.remove(self._learn)
        for runner in self._runners.values():
            runner.stop(0.1 if self._hurry else 1.0)
        try:
            self._store.remove_worker(self.id)
            self._upkeep.strike_off()
            self._store.poke(Hint("look"))
        except DulyError as error:
            log.warning("could not sign off: %s", error)
        if self._waker is not None:
            self._waker.dispose()
        for store in self._reserved:
            store.release()
        self._telling.stop()
        with self._lock:
            self._state = "stopped"
        self._stopped.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until this worker has stopped."""
        return self._stopped.wait(timeout)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- between the parts ------------------------------------------------------------------------------------

    def _make_runner(self, kind: Kind) -> Runner:
        return make_runner(kind, self._limits[kind], self._executor, app_path=self.settings.app_path)

    def _dispatch(self, kind: Kind, runs: list[Run]) -> None:
        idle, now = not self._held, time.monotonic_ns()
        for run in runs:
            run.came_ns = now
            self._held[run.job.id] = run
        try:
            self._runners[kind].submit(runs)
        except Exception:  # no thread could be started: what found no slot is for others to run, not to wait here
            self._take_back_from(kind)
            raise
        if idle and any(run.job.timeout_us is not None for run in runs):
            self._watch_service.wake()  # else nobody is: handlers start sooner, and leases are kept soon enough

    def _take_back(self) -> None:
        """Give back what has not begun."""
        for kind in self._runners:
            self._take_back_from(kind)

    def _take_back_from(self, kind: Kind) -> None:
        taken = self._runners[kind].take_back()
        if taken:
            self._slots.stuck(kind)
        for run in taken:
            run.phase, run.came_ns = 2, 0
            self._finisher.conclude((run, time.monotonic_ns(), released(run.job)))

    def _interrupt(self, run: Run) -> None:
        self._runners[run.definition.kind].interrupt(run)

    def _ended(self, counts: JobsEnded, spells: Sequence[Spell]) -> None:
        self._slots.ended(counts, spells)
        self._claim_service.wake()

    def _ending(self) -> None:
        self._claimer.freed()
        self._claim_service.wake()

    def _freed(self, queues: set[str]) -> None:
        if not self._upkeep.alone:
            for queue in queues:
                self._store.poke(Hint("room", queue, sender=self.id))

    def _let_in(self, lanes: Lanes) -> None:
        self._claimer.let_in(lanes)
        self._claim_service.wake()

    def _due_in(self, seconds: float) -> None:
        self._claimer.due_in(seconds)
        self._claim_service.wake()

    def _poll(self) -> float:
        assert self._waker is not None
        return min(self.settings.poll, self._waker.polls_every)

    def _now_us(self) -> int:
        return time.time_ns() // 1_000 + self._upkeep.clock_offset

    def _claim(self) -> float:
        if self._out_of_touch:
            self._give_back_unknown()
            self._out_of_touch = False
        return self._claimer.step()

    def _lost_touch(self, error: Exception) -> None:
        """After an error the claim's reply may be lost; as soon as the database answers again that is put right."""
        self._out_of_touch = True

    def _give_back_unknown(self) -> None:
        """What the database says we hold, and we do not know of, goes back: nobody would ever run or renew it."""
        known = {(run.job.id, run.job.token) for run in list(self._held.values())}
        unknown = [pair for pair in self._store.held_by(self.id) if pair not in known]
        if unknown:
            log.warning("%d jobs whose claim was never answered go back", len(unknown))
            self._store.give_back(unknown)

    def _listen(self) -> float:
        assert self._waker is not None
        hints = self._waker.wait(30.0)
        if hints:
            if any(hint.kind == "cancel" for hint in hints):
                self._keeper.look_for_cancels = True
                self._keep_service.wake()
            if any(hint.kind in ("workers", "look") for hint in hints):
                self._upkeep.refresh_peers = True
            self._claimer.hint(hints)
            self._claim_service.wake()
        return 0.0

    def _missed_hints(self, error: Exception) -> None:
        """What was said while nobody listened is not said again: that a worker came, for one."""
        self._upkeep.refresh_peers = True

    def retire(self) -> None:
        """Claim no more; what has not begun goes back. `idle` is true when what runs has ended."""
        self._claimer.retire()
        self._take_back()

    def lapsed(self) -> set[tuple[str, int]]:
        """The runs whose lease has passed, for ticks."""
        return {(run.id, run.token) for run in self._store.lapsed(int(self.settings.lease * 1e6))}

    def upkeep_now(self, silent: set[tuple[str, int]]) -> None:
        """Rescue and prune now, for ticks: there may be no worker that stays. `silent`: what had lapsed a while ago."""
        lease_us = int(self.settings.lease * 1e6)
        rescue_after_boot(self._store, lease_us=lease_us, crash_limit=self.settings.crash_limit)
        if silent:
            rescue_silent(self._store, silent, lease_us=lease_us, crash_limit=self.settings.crash_limit)
        prune_some(self._store, self.settings.retention)

    # -- for those who watch ----------------------------------------------------------------------------------

    @property
    def busy(self) -> int:
        """How many jobs this worker holds."""
        return len(self._held)

    @property
    def claimed(self) -> int:
        """How many jobs this worker has claimed."""
        return self._claimer.claimed

    @property
    def settled(self) -> int:
        """How many runs this worker has ended."""
        return self._finisher.settled

    @property
    def state(self) -> str:
        """new, starting, running, draining or stopped."""
        return self._state

    @property
    def left_behind(self) -> str | None:
        """Why it takes no more jobs: the tables were migrated past this code. None while it may work on them."""
        return self._upkeep.left_behind

    def stuck(self) -> list[str]:
        """Which of its threads do not turn."""
        return [service.name for service in self._services() if service.stuck] if self._state == "running" else []

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where it serves metrics and health, if it does."""
        return self._telling.address

    def figures(self) -> Figures:
        """What it counts about itself."""
        from duly.metrics.figures import Figures

        return Figures(
            state=self._state,
            slots={str(kind): pool.slots for kind, pool in self._slots.pools.items()},
            busy=self.busy,
            claimed=self.claimed,
            settled=self.settled,
            refused=self._finisher.refused,
            rescued=self._upkeep.rescued,
            calls=self._store.database.calls,
            lateness=self._telling.lateness(),
        )

    @property
    def meter(self) -> Meter | None:
        """What those who meter were told, if there are any."""
        return self._telling.meter

    @property
    def idle(self) -> bool:
        """Whether it holds nothing and its last look found nothing, or it has claimed all it may."""
        if self._held or not self._finisher.idle:
            return False
        return (self._claimer.empty or self._claimer.used_up) and not self._held  # again: it may have claimed
