"""Every operation of the store that writes, in one table."""

from __future__ import annotations

from tests.crash_matrix import of_gates, of_jobs, of_recurring, of_upkeep, of_workers
from tests.crash_matrix.operation import Operation

OPERATIONS: dict[str, Operation] = {
    name: operation
    for module in (of_jobs, of_workers, of_gates, of_recurring, of_upkeep)
    for name, operation in module.TABLE.items()
}
assert len(OPERATIONS) == sum(len(module.TABLE) for module in (of_jobs, of_workers, of_gates, of_recurring, of_upkeep))
