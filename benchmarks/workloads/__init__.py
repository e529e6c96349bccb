"""The workloads, in the order in which they run."""

from workloads.backlog import Backlog
from workloads.base import Workload
from workloads.drain import DrainPostgres, DrainRedis, DrainSqlite
from workloads.enqueue import EnqueueMany, EnqueueOne, EnqueueOneBesidePeers
from workloads.handlers import Handlers, Payloads
from workloads.idle import Idle, ImportTime
from workloads.latency import Latency, LatencyUnderLoad
from workloads.mixed import Mixed
from workloads.processes import DrainFour, DrainTwo
from workloads.rows import History, Prune, Waiting
from workloads.scaling import Crowd, Slots
from workloads.snapshot import HeldSnapshot
from workloads.urgent import Urgent

WORKLOADS: tuple[type[Workload], ...] = (
    DrainPostgres,
    DrainSqlite,
    DrainRedis,
    DrainTwo,
    DrainFour,
    Handlers,
    Payloads,
    Mixed,
    EnqueueMany,
    EnqueueOne,
    EnqueueOneBesidePeers,
    Latency,
    LatencyUnderLoad,
    Urgent,
    Idle,
    ImportTime,
    Backlog,
    Waiting,
    History,
    Prune,
    Crowd,
    Slots,
    HeldSnapshot,
)
