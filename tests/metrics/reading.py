"""Reads metrics as Prometheus would."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from duly.metrics.collector import Collector


class Metrics:
    """What one scrape says."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    @classmethod
    def of(cls, collector: Collector) -> Metrics:
        """As of now."""
        return cls(collector.render(fresh=True)[1].decode())

    def get(self, name: str, **labels: str) -> float | None:
        """The value of the one sample of that name with these labels among its own; None if there is none."""
        found = [each.value for each in self._samples if each.name == name and labels.items() <= each.labels.items()]
        assert len(found) <= 1, f"{name} with {labels} is there {len(found)} times"
        return found[0] if found else None

    def all(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Every sample of that name."""
        return [(each.labels, each.value) for each in self._samples if each.name == name]

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {sample.name for sample in self._samples}


class Answer(NamedTuple):
    """What an endpoint answered."""

    status: int
    kind: str
    body: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def ask(address: tuple[str, int] | None, path: str, **headers: str) -> Answer:
    """Ask a worker's endpoint."""
    assert address is not None
    request = urllib.request.Request(f"http://127.0.0.1:{address[1]}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["Content-Type"], error.read().decode())
