"""How an app is found, and what is said when it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from duly.cli.apps import AppNotFound, find_app
from tests.cli.conftest import Project

ONE = "from duly import Duly\njobs = Duly()\n@jobs.task\ndef hello() -> None: ...\n"


def test_by_module_and_attribute(bare: Project) -> None:
    bare.write("shop_one.py", ONE)
    found = find_app("shop_one:jobs")
    assert list(found.app.registry.tasks) == ["hello"]
    assert found.app.app_path == "shop_one:jobs"


def test_by_module_alone_where_it_has_only_one(bare: Project) -> None:
    bare.write("shop_two.py", ONE + "queue = jobs\n")
    assert find_app("shop_two").app.app_path == "shop_two:jobs"


@pytest.mark.parametrize("spec", ["shop_three.py", "./shop_three.py", "shop_three.py:jobs"])
def test_by_file(bare: Project, spec: str) -> None:
    bare.write("shop_three.py", ONE)
    assert find_app(spec).app.app_path == "shop_three:jobs"


def test_by_a_file_elsewhere_whose_neighbours_it_imports(bare: Project) -> None:
    bare.write("elsewhere/settings_of_four.py", "NAME = 'four'\n")
    bare.write("elsewhere/shop_four.py", "from settings_of_four import NAME\n" + ONE)
    assert find_app("elsewhere/shop_four.py").module.NAME == "four"


def test_by_a_file_in_a_package(bare: Project) -> None:
    bare.write("shop_five/__init__.py", "")
    bare.write("shop_five/names.py", "NAME = 'five'\n")
    bare.write("shop_five/app.py", "from shop_five.names import NAME\nfrom . import names\n" + ONE)
    found = find_app("shop_five/app.py")
    assert found.app.app_path == "shop_five.app:jobs"
    assert sys.modules["shop_five.app"] is found.module


def test_by_a_file_named_like_a_module_of_python(bare: Project) -> None:
    bare.write("json.py", ONE)
    assert list(find_app("json.py").app.registry.tasks) == ["hello"]


def test_main_is_not_run(bare: Project) -> None:
    bare.write("shop_six.py", ONE + "if __name__ == '__main__':\n    raise SystemExit('run')\n")
    find_app("shop_six.py")


def test_included_modules_bring_their_tasks(bare: Project) -> None:
    bare.write("shop_seven.py", ONE)
    bare.write("more_tasks.py", "from shop_seven import jobs\n@jobs.task\ndef bye() -> None: ...\n")
    assert set(find_app("shop_seven", ("more_tasks",)).app.registry.tasks) == {"hello", "bye"}


def test_modules_included_by_the_settings_bring_their_tasks(bare: Project) -> None:
    bare.write("duly.toml", 'include = ["tasks_of_eight"]')
    bare.write("shop_eight.py", ONE)
    bare.write("tasks_of_eight.py", "from shop_eight import jobs\n@jobs.task\ndef bye() -> None: ...\n")
    assert set(find_app("shop_eight").app.registry.tasks) == {"hello", "bye"}


@pytest.mark.parametrize(
    "spec, words",
    [
        ("nowhere", ["no module 'nowhere'"]),
        ("nowhere.deep:jobs", ["no module 'nowhere.deep'"]),
        ("shop", ["no module 'shop'", "shops"]),
        ("nowhere.py", ["no file nowhere.py"]),
        ("shopz.py", ["no file shopz.py", "Did you mean 'shops.py'?"]),
        ("duly", ["the name of duly itself"]),
        ("./duly.py", ["the name of duly itself"]),
        ("a b", ["neither a module nor a file"]),
        ("shops:job", ["shops has no 'job'", "shops:one", "shops:two"]),
        ("shops", ["shops has several", "shops:one", "shops:two"]),
        ("shops:number", ["it is a int, not a Duly"]),
        ("empty", ["has no Duly in it", "jobs = Duly()"]),
        ("lonely:app", ["lonely has no 'app'", "Did you mean lonely:jobs?"]),
        ("raises", ["raises cannot be loaded", "ValueError: not today", "raises.py, line 2"]),
        ("raises.py", ["raises.py cannot be loaded", "ValueError: not today", "raises.py, line 2"]),
        ("leaves", ["leaves cannot be loaded", "SystemExit"]),
        ("broken.py", ["broken.py cannot be loaded", "SyntaxError", "line 1"]),
        ("needs", ["needs cannot be loaded", "No module named 'not_installed'"]),
    ],
)
def test_what_cannot_be_found_is_said_in_one_line(bare: Project, spec: str, words: list[str]) -> None:
    bare.write("shops.py", "from duly import Duly\none, two, number = Duly(), Duly(), 3\n")
    bare.write("lonely.py", ONE)
    bare.write("empty.py", "")
    bare.write("raises.py", "import duly\nraise ValueError('not today')\n")
    bare.write("leaves.py", "raise SystemExit(7)\n")
    bare.write("broken.py", "def (:\n")
    bare.write("needs.py", "import not_installed\n")
    if spec == "shop":
        words = words[:1]
    with pytest.raises(AppNotFound) as caught:
        find_app(spec)
    for word in words:
        assert word in str(caught.value)
    answer = bare.duly("worker", spec)
    assert answer.code == 2
    assert answer.err.startswith("duly: ")
    assert answer.err.count("\n") == 1


def test_without_an_app_the_command_asks_for_one(bare: Project) -> None:
    answer = bare.duly("worker")
    assert answer.code == 2
    assert "which app?" in answer.err
    assert "DULY_APP" in answer.err


def test_the_environment_can_name_the_app(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_APP", "app.py")
    sqlite_project.ok("enqueue", "add", "x=1")
    assert sqlite_project.ok("tick", "--json").json["claimed"] == 1
    assert sqlite_project.ok("jobs", "list", "--json").json[0]["state"] == "succeeded"


def test_an_error_in_the_app_has_a_traceback_with_debug(bare: Project) -> None:
    bare.write("raises.py", "raise ValueError('not today')\n")
    answer = bare.duly("worker", "raises.py", "--debug")
    assert answer.code == 2
    assert "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("duly: ")


def test_the_database_of_an_app_is_used_by_commands_that_need_no_app(bare: Project, tmp_path: Path) -> None:
    bare.write("shop_nine.py", f"from duly import Duly\njobs = Duly('sqlite:///{tmp_path}/nine.db')\n")
    assert bare.duly("jobs", "list", "--app", "shop_nine.py").code == 3
    bare.ok("migrate", "--app", "shop_nine.py")
    assert bare.ok("jobs", "list", "--app", "shop_nine.py", "--json").json == []
