"""Text for people: clean, with times that can be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from duly.cli.text import clean, clean_lines, local, plain_table, plural, relative, when, without_password
from duly.cli.watch import Files

NOW = datetime(2030, 6, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain", "plain"),
        ("zwölf 日本", "zwölf 日本"),
        ("a\nb\tc\r\nd", "a b c d"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 null\x00 del\x7f csi\x9b", "bell\\x07 null\\x00 del\\x7f csi\\x9b"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("lone \ud800", "lone \\ud800"),
    ],
)
def test_clean_leaves_no_control_character(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in clean(text))


def test_clean_cuts() -> None:
    assert clean("x" * 10, 5) == "xxxx…"
    assert clean("xxxxx", 5) == "xxxxx"


def test_clean_lines_keeps_lines() -> None:
    assert clean_lines("a\n\tb\x1b\r\nc") == "a\n    b\\x1b\nc"


@pytest.mark.parametrize(
    "before, text",
    [
        (timedelta(0), "now"),
        (timedelta(seconds=5), "5 s ago"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(hours=30), "1 d ago"),
        (timedelta(hours=-2), "in 2 h"),
    ],
)
def test_times_are_shown_by_how_long_ago_they_are(before: timedelta, text: str) -> None:
    assert relative(NOW - before, NOW) == text


def test_times_are_local_unless_utc_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert local(NOW, now=NOW) == "21:00:00"
        assert local(NOW, now=NOW, utc=True) == "12:00:00Z"
        assert local(NOW - timedelta(days=2), now=NOW) == "2030-05-30 21:00:00"
        assert when(NOW, NOW, utc=True) == "12:00:00Z (now)"
        assert when(None, NOW) == "-"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text, shown",
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("at postgresql://me:se@cr/et@host/db now", "at postgresql://me:***@host/db now"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me&password=***"),
        ("sqlite:///duly.db", "sqlite:///duly.db"),
    ],
)
def test_passwords_are_not_shown(text: str, shown: str) -> None:
    assert without_password(text) == shown


def test_tables_are_aligned_and_cut() -> None:
    text = plain_table(["A", "N"], [["日本", "1"], ["x", "100"]], right=[1])
    assert text == "A       N\n日本    1\nx     100"
    assert plain_table(["A"], [["x" * 50]], width=10).splitlines()[1] == "x" * 9 + "…"


def test_plural() -> None:
    assert (plural(1, "job"), plural(1200, "job")) == ("1 job", "1,200 jobs")


def test_watched_files_change_come_and_go(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "a.py").write_text("1")
    (folder / "notes.txt").write_text("1")
    for ignored in (".git", "node_modules", "__pycache__", "my-environment"):
        (folder / ignored).mkdir()
    (folder / "my-environment" / "pyvenv.cfg").write_text("")
    files = Files([folder, folder])
    assert files.changed() == []
    (folder / "a.py").write_text("22")
    assert files.changed() == [folder / "a.py"]
    (folder / "b.py").write_text("1")
    assert files.changed() == [folder / "b.py"]
    (folder / "b.py").unlink()
    assert files.changed() == [folder / "b.py"]
    (folder / "notes.txt").write_text("22")
    for ignored in (".git", "node_modules", "__pycache__", "my-environment"):
        (folder / ignored / "x.py").write_text("1")
    assert files.changed() == []


@pytest.mark.parametrize("width", [30, 60, 200])
def test_rich_tables_fit_and_only_the_last_column_is_cut(width: int) -> None:
    pytest.importorskip("rich")
    from duly.cli.output import rich_table

    rows = [["0123456789ab", "send_welcome", "failed", "x" * 100], ["0123456789ab", "日本", "queued", ""]]
    drawn = rich_table(["JOB", "TASK", "STATE", "DETAIL"], rows, right=[2], width=width)
    if width == 30:
        assert drawn is None
        return
    assert drawn is not None
    assert "send_welcome" in drawn
    assert all(len(line) <= width for line in drawn.split("\n"))
    assert ("…" in drawn) is (width == 60)
