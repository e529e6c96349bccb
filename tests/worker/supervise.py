"""A supervisor process for tests: `python -m tests.worker.supervise OPTIONS`, JSON.

`url`, `processes`, `argv`; `program` instead of duly's own; `grace`, `slack`, `once`.
"""

from __future__ import annotations

import json
import logging
import sys

from duly.store.store import Store
from duly.worker import supervisor


def main() -> int:
    """Supervise as told."""
    options = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    supervisor.SLACK = options.get("slack", supervisor.SLACK)
    program = {"program": options["program"]} if "program" in options else {}
    assert "app" not in sys.modules, "a supervisor imports no application"
    return supervisor.run_supervised(
        options.get("argv", []),
        options["processes"],
        store=Store.open(options["url"]),
        crash_limit=3,
        grace=options.get("grace", 10.0),
        once=options.get("once", False),
        **program,
    )


if __name__ == "__main__":
    sys.exit(main())
