"""The thresholds of alerts: from the file, the environment or Python; overall, by queue and by task."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from duly import ConfigurationError, Duly, InvalidOption
from duly.alerts.settings import AlertSettings, changed, read_alerts
from duly.config import read_settings


@pytest.mark.requirement("C13")
def test_without_any_the_documents_thresholds_hold() -> None:
    settings = AlertSettings()
    assert settings.limit("depth") == 1000
    assert settings.limit("failed_rate") == 0.1
    assert settings.limit("running") == 3600
    assert settings.limit("schedule_late") == 300
    assert settings.limit("oldest_waiting") is None


@pytest.mark.requirement("C13")
def test_a_table_in_the_file_sets_them_overall_by_queue_and_by_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", " hush ")
    (tmp_path / "duly.toml").write_text(
        """
[alerts]
depth = 5000
failed_rate = "20%"
running = false
disk_free = "10 GiB"
interval = "10s"
webhook = "https://example.org/hook"
webhook_secret = "env:HOOK_SECRET"
[alerts.queues.mail]
depth = 10
oldest_waiting = "1m"
[alerts.tasks.import_all]
depth = 7
failed_rate = 0.5
running = "6h"
"""
    )
    found = read_settings({}, {}, tmp_path).alerts
    assert found.interval == timedelta(seconds=10)
    assert (found.webhook, found.webhook_secret) == ("https://example.org/hook", "hush")
    assert "hush" not in repr(found)
    assert found.limit("depth", queue="default") == 5000
    assert found.limit("depth", queue="mail") == 10
    assert found.limit("depth", queue="mail", task="import_all") == 7
    assert found.limit("failed_rate", task="import_all") == 0.5
    assert found.limit("failed_rate", task="other") == pytest.approx(0.2)
    assert found.limit("running") is None
    assert found.limit("running", task="import_all") == 6 * 3600
    assert found.limit("oldest_waiting", queue="mail") == 60
    assert found.limit("disk_free") == 10 * 2**30


def test_the_environment_has_the_table_as_json(tmp_path: Path) -> None:
    found = read_settings({}, {"DULY_ALERTS": '{"depth": 3, "queues": {"a": {"depth": 4}}}'}, tmp_path).alerts
    assert (found.limit("depth"), found.limit("depth", queue="a")) == (3, 4)


@pytest.mark.requirement("C13")
def test_python_changes_what_is_named_and_leaves_the_rest(lite: Duly) -> None:
    lite.alerts.configure(depth=5, queues={"mail": {"depth": 9}})
    lite.alerts.configure(failed_rate=0.3, queues={"web": {"depth": 8}})
    settings = lite.alerts.settings
    assert settings.limit("depth") == 5
    assert settings.limit("failed_rate") == 0.3
    assert settings.limit("depth", queue="mail") == 9
    assert settings.limit("depth", queue="web") == 8


@pytest.mark.parametrize(
    "given, said",
    [
        ({"dept": 3}, "alerts has no 'dept'. Did you mean 'depth'?"),
        ({"depth": -1}, "alerts.depth must be a whole number"),
        ({"depth": True}, "alerts.depth must be a whole number"),
        ({"failed_rate": 10}, "alerts.failed_rate must be from 0 to 1"),
        ({"failed_rate": "150%"}, "alerts.failed_rate must be from 0 to 1"),
        ({"running": "soon"}, "alerts.running"),
        ({"disk_free": "much"}, "alerts.disk_free must be a number of bytes"),
        ({"interval": 0}, "alerts.interval must be at least 100ms"),
        ({"webhook": "ftp://x"}, "alerts.webhook must be an address"),
        ({"webhook": "env:NOT_SET_ANYWHERE"}, "'NOT_SET_ANYWHERE' is not set"),
        ({"queues": {"mail": {"wal_size": 3}}}, "alerts.queues.mail has no 'wal_size'"),
        ({"queues": {"a b": {}}}, "queue name"),
        ({"queues": 3}, "alerts.queues must be a table"),
        ({"enabled": "yes"}, "alerts.enabled must be true or false"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        changed(AlertSettings(), given)
    assert said in str(caught.value)


def test_where_it_was_found_is_said_too(tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text("[alerts]\ndepth = 'many'\n")
    with pytest.raises(ConfigurationError, match=r"alerts.depth must be a whole number.*duly.toml: alerts\)"):
        read_settings({}, {}, tmp_path)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidOption, match="must be a table, or JSON of one"):
        read_alerts("depth=3")
