"""Metrics for Prometheus, and health for whoever starts workers.

    from duly.metrics import render

    content_type, body = render(jobs)       # for an endpoint of your own

`duly worker APP --metrics-port 9150` serves them beside the worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.metrics.collector import Collector, collector_of, render
    from duly.metrics.observe import Observation, Observer, observer_of
else:
    from duly._lazy import importer

    __getattr__ = importer(
        __name__,
        {
            "duly.metrics.collector": ("Collector", "collector_of", "render"),
            "duly.metrics.observe": ("Observation", "Observer", "observer_of"),
        },
    )

__all__ = ["Collector", "Observation", "Observer", "collector_of", "observer_of", "render"]
