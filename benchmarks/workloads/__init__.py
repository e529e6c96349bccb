"""The workloads, in the order in which they run."""

from workloads.backlog import Backlog
from workloads.base import Workload
from workloads.drain import DrainPostgres, DrainSqlite
from workloads.enqueue import EnqueueMany, EnqueueOne
from workloads.idle import Idle, ImportTime
from workloads.latency import Latency
from workloads.snapshot import HeldSnapshot

WORKLOADS: tuple[type[Workload], ...] = (
    DrainPostgres,
    DrainSqlite,
    EnqueueMany,
    EnqueueOne,
    Latency,
    Idle,
    ImportTime,
    Backlog,
    HeldSnapshot,
)
