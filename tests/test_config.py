"""Settings: where they come from, which wins, and what is said about the wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from duly.config import _READERS, Settings, load_settings, read_settings
from duly.domain.errors import ConfigurationError


def read(directory: Path, environ: Mapping[str, str] | None = None, /, **keywords: object) -> Settings:
    return read_settings(keywords, environ or {}, directory)


def test_without_any_the_defaults_hold(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings == Settings()
    assert settings.url == "sqlite:///duly.db"
    assert settings.renew_interval == timedelta(seconds=5)
    assert settings.stuck_time == settings.lease == timedelta(seconds=15)


def test_every_field_has_a_reader_and_its_default_passes_it() -> None:
    settings = Settings()
    assert list(_READERS) == [field.name for field in fields(settings)]
    for name, reader in _READERS.items():
        default = getattr(settings, name)
        assert default is None or reader(default, name) == default


@pytest.mark.requirement("C11")
def test_keywords_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text(
        'stuck_after = "5m"\nmaintenance_interval = "2m"\nretention_failed = "90d"\nlease = 20\n'
    )
    environ = {"DULY_MAINTENANCE_INTERVAL": "3m", "DULY_RETENTION_FAILED": "60d"}
    settings = read(tmp_path, environ, retention_failed=timedelta(days=1))
    assert settings.stuck_after == timedelta(minutes=5)
    assert settings.stuck_time == timedelta(minutes=5)
    assert settings.maintenance_interval == timedelta(minutes=3)
    assert settings.retention_failed == timedelta(days=1)
    assert settings.lease == timedelta(seconds=20)


def test_load_settings_reads_this_process_s_environment_and_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duly.toml").write_text('schema = "jobs"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_POLL", "1s")
    settings = load_settings(notify=False, url=None)
    assert (settings.schema, settings.poll, settings.notify) == ("jobs", timedelta(seconds=1), False)
    assert settings.url == "sqlite:///duly.db"


def test_the_environment_gives_every_kind_of_value_as_text(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        {
            "DULY_URL": " postgresql://db/app ",
            "DULY_LEASE": "30",
            "DULY_GRACE": "1m30s",
            "DULY_MAX_PAYLOAD": "1MiB",
            "DULY_MAX_RESULT": "2048",
            "DULY_THREAD_SLOTS": "4",
            "DULY_SYNCHRONOUS": "NORMAL",
            "DULY_INCLUDE": "shop.tasks, shop.mail",
            "DULY_ALLOW_NETWORK_DISK": "yes",
            "DULY_NOTIFY": "off",
            "DULY_SCHEMA": "",
            "PATH": "/bin",
        },
    )
    assert settings == Settings(
        url="postgresql://db/app",
        lease=timedelta(seconds=30),
        grace=timedelta(seconds=90),
        max_payload=1_048_576,
        max_result=2048,
        thread_slots=4,
        synchronous="normal",
        include=("shop.tasks", "shop.mail"),
        allow_network_disk=True,
        notify=False,
    )
    assert type(settings.url) is str


def test_pyproject_is_read_and_duly_toml_beside_it_wins(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.duly]\npoll = "1s"\ninclude = ["a.b"]\n')
    assert read(tmp_path).include == ("a.b",)
    (tmp_path / "duly.toml").write_text('poll = "2s"')
    assert read(tmp_path) == Settings(poll=timedelta(seconds=2))


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1", "[tool.other]\nduly = 1"])
def test_a_pyproject_without_our_table_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert read(tmp_path) == Settings()


def test_the_file_is_looked_for_up_to_the_root_of_the_project(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "src" / "shop"
    inner.mkdir(parents=True)
    (tmp_path / "duly.toml").write_text('schema = "outside"')
    (tmp_path / "project" / ".git").mkdir()
    assert read(inner).schema == "duly"
    (tmp_path / "project" / "duly.toml").write_text('schema = "project"')
    assert read(inner).schema == "project"
    (tmp_path / "project" / "src" / "pyproject.toml").write_text("[project]\nname = 'shop'")
    assert read(inner).schema == "duly"


def test_outside_a_project_only_the_directory_itself_is_looked_at(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "duly.toml").write_text('schema = "planted"')
    assert read(inner).schema == "duly"
    assert read(tmp_path).schema == "planted"


def test_another_variable_gives_the_url_only_where_asked(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgresql://db/app"}
    assert read(tmp_path, environ).url == "sqlite:///duly.db"
    assert read(tmp_path, environ, url="env:DATABASE_URL").url == "postgresql://db/app"
    assert read(tmp_path, {**environ, "DULY_URL": "env:DATABASE_URL"}).url == "postgresql://db/app"
    with pytest.raises(ConfigurationError, match=r"url \(keyword\) is 'env:OTHER', but 'OTHER' is not set"):
        read(tmp_path, environ, url="env:OTHER")


def test_an_unknown_name_anywhere_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'leese' \(keyword\)\. Did you mean 'lease'"):
        read(tmp_path, leese=3)
    with pytest.raises(ConfigurationError, match=r"DULY_THREAD_SLOT\. Did you mean 'DULY_THREAD_SLOTS'"):
        read(tmp_path, {"DULY_THREAD_SLOT": "3"})
    with pytest.raises(ConfigurationError, match=r"DULY_url\. Did you mean 'DULY_URL'"):
        read(tmp_path, {"DULY_url": "sqlite://"})
    (tmp_path / "pyproject.toml").write_text("[tool.duly]\ngracee = 3")
    with pytest.raises(ConfigurationError, match=r"pyproject.toml: unknown key tool.duly.gracee\..*'grace'"):
        read(tmp_path)
    (tmp_path / "duly.toml").write_text("[queues]\nmail = 3")
    with pytest.raises(ConfigurationError, match=r"duly.toml: unknown key queues\."):
        read(tmp_path)


@pytest.mark.parametrize(
    "variable",
    [
        "DULY_TEST_DATABASES",
        "DULY_APP",
        "DULY_SERVICE_HOST",
        "DULY_SERVICE_PORT_HTTP",
        "DULY_PORT",
        "DULY_PORT_80_TCP_ADDR",
        "DULY_WEB_PORT_80_TCP",
        "DULY_WEB_SERVICE_HOST",
    ],
)
def test_variables_that_are_not_settings_are_left_alone(tmp_path: Path, variable: str) -> None:
    assert read(tmp_path, {variable: "anything"}) == Settings()


@pytest.mark.parametrize(
    "name, value, fault",
    [
        ("lease", "15x", r"lease \(keyword\) is not a duration: '15x', position 3: unknown unit"),
        ("lease", "15", r"position 3: a unit is missing"),
        ("lease", 0.1, "must be from 200ms to 1d, not 100ms"),
        ("lease", True, "must be a timedelta"),
        ("grace", -1, "must not be negative"),
        ("poll", 0, "must be from 10ms"),
        ("thread_slots", "4", r"thread_slots \(keyword\) must be a whole number from 0 to 10000, not '4'"),
        ("thread_slots", True, "must be a whole number"),
        ("crash_limit", 0, "must be a whole number from 1"),
        ("max_payload", "256 potatoes", "number of bytes or text like '256KiB'"),
        ("max_payload", "999GiB", "number of bytes or text"),
        ("max_payload", "999999MiB", "must be a whole number from 1024"),
        ("synchronous", "ful", "must be one of full, normal, not 'ful'. Did you mean 'full'"),
        ("synchronous", 1, "must be one of full, normal, not 1"),
        ("notify", 1, "must be true or false, not 1"),
        ("notify", "yes", "must be true or false"),
        ("include", ["a b"], "module names like 'shop.tasks', and 'a b' is none"),
        ("include", 3, "must be a list of modules, not int"),
        ("schema", "a;drop", "letters, digits and underscores"),
        ("schema", "x" * 64, "up to 63"),
        ("url", "", "must be text like"),
        ("url", 3, "must be text like"),
    ],
)
def test_a_wrong_value_is_refused_with_its_source_and_reason(
    tmp_path: Path, name: str, value: object, fault: str
) -> None:
    with pytest.raises(ConfigurationError, match=fault) as caught:
        read(tmp_path, {}, **{name: value})
    assert str(caught.value).startswith(f"{name} (keyword)")


def test_a_wrong_value_names_the_variable_or_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"lease \(environment DULY_LEASE\) .*'15 parsecs'"):
        read(tmp_path, {"DULY_LEASE": "15 parsecs"})
    with pytest.raises(ConfigurationError, match=r"notify \(environment DULY_NOTIFY\) .*'maybe'"):
        read(tmp_path, {"DULY_NOTIFY": "maybe"})
    with pytest.raises(ConfigurationError, match=r"log_lines \(environment DULY_LOG_LINES\)"):
        read(tmp_path, {"DULY_LOG_LINES": "-1"})
    (tmp_path / "pyproject.toml").write_text("[tool.duly]\npoll = true")
    with pytest.raises(ConfigurationError, match=r"poll \(.*pyproject.toml: tool.duly.poll\) must be"):
        read(tmp_path)


@pytest.mark.requirement("C11")
def test_stuck_after_shorter_than_the_lease_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"stuck_after \(environment DULY_STUCK_AFTER\) .*\(15s\)"):
        read(tmp_path, {"DULY_STUCK_AFTER": "10s"})
    assert read(tmp_path, stuck_after="5s", lease="1s").stuck_time == timedelta(seconds=5)


@pytest.mark.parametrize("data", [b"lease = ", b"\xff\xfe", b"a = " + b"[" * 5000])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "duly.toml").write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"duly\.toml is not valid TOML"):
        read(tmp_path)


@pytest.mark.parametrize("text", ['tool = "duly"', '[tool]\nduly = "yes"'])
def test_a_tool_table_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"tool\.duly must be a table"):
        read(tmp_path)


def test_a_password_in_the_url_is_never_shown(tmp_path: Path) -> None:
    settings = read(tmp_path, url="postgresql://me:secret@db/app")
    assert "secret" not in repr(settings)
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, url="postgresql://me:secret\x00@db/app")
    assert "secret" not in str(caught.value)
