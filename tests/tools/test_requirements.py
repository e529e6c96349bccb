"""`make requirements`: what it reads, what it prints, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import requirements

DOCUMENT = """\
# Requirements

- **A1** A job is stored once,
  and found again.
- **A2** A job ends.

An aside.
  Not part of A2.
- **B10** A job may fail.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.md").write_text(DOCUMENT)
    (tmp_path / "tests" / "store").mkdir(parents=True)
    return tmp_path


def write_test(project: Path, source: str) -> None:
    (project / "tests" / "store" / "test_jobs.py").write_text(source)


def run(project: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = requirements.main(["--root", str(project), *options])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_requirements_are_read_in_order_with_their_whole_text(project: Path) -> None:
    found = requirements.parse(project / "docs" / "requirements.md")
    assert [(r.id, r.text) for r in found] == [
        ("A1", "A job is stored once, and found again."),
        ("A2", "A job ends."),
        ("B10", "A job may fail."),
    ]


def test_every_requirement_is_printed_with_its_tests_or_as_having_none(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(project, '@pytest.mark.requirement("A1", "B10")\ndef test_it(): ...\n')
    code, printed, _ = run(project, capsys)
    assert code == 0
    assert printed.splitlines() == [
        "A1  A job is stored once, and found again.",
        "      tests/store/test_jobs.py::test_it",
        "A2  A job ends.",
        "      no test yet",
        "B10 A job may fail.",
        "      tests/store/test_jobs.py::test_it",
        "",
        "3 requirements: 2 with tests, 1 without.",
        "Without: A2",
    ]


@pytest.mark.parametrize(
    "source, test",
    [
        ('@pytest.mark.requirement("A1")\nasync def test_it(): ...', "::test_it"),
        ('@mark.requirement("A1")\ndef test_it(): ...', "::test_it"),
        ('@pytest.mark.requirement("A1")\nclass TestIt:\n    def test_it(self): ...', "::TestIt"),
        (
            'class TestIt:\n    @pytest.mark.requirement("A1")\n    def test_it(self): ...',
            "::TestIt::test_it",
        ),
        ('pytestmark = [pytest.mark.deep, pytest.mark.requirement("A1")]', ""),
        (
            '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.requirement("A1"))])\n'
            "def test_it(n): ...",
            "::test_it",
        ),
    ],
)
def test_a_mark_is_found_wherever_pytest_takes_one(project: Path, source: str, test: str) -> None:
    write_test(project, source)
    assert [(m.id, m.test) for m in requirements.collect(project)] == [("A1", f"tests/store/test_jobs.py{test}")]


def test_what_merely_looks_like_a_mark_is_passed_over(project: Path) -> None:
    write_test(project, '# pytest.mark.requirement("A1")\nvenv.requirement("A1")\nrequirement("A1")\n')
    assert list(requirements.collect(project)) == []


def test_examples_count_and_absent_folders_do_not_matter(project: Path) -> None:
    (project / "examples").mkdir()
    (project / "examples" / "test_app.py").write_text('@pytest.mark.requirement("A2")\ndef test_app(): ...')
    assert [m.test for m in requirements.collect(project)] == ["examples/test_app.py::test_app"]


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_an_unknown_id_is_refused_by_name_and_place(
    project: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    write_test(project, '\n@pytest.mark.requirement("A1", "Z9")\ndef test_it(): ...')
    code, printed, error = run(project, capsys, *options)
    assert (code, printed) == (1, "")
    assert error == "tests/store/test_jobs.py::test_it (line 2): docs/requirements.md has no 'Z9'\n"


def test_check_prints_nothing_when_all_is_well(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test(project, '@pytest.mark.requirement("A1")\ndef test_it(): ...')
    assert run(project, capsys, "--check") == (0, "", "")


@pytest.mark.parametrize(
    "mark, complaint",
    [
        ("requirement()", "at least one id"),
        ('requirement(id="A1")', "at least one id"),
        ("requirement(A1)", "written out as text"),
    ],
)
def test_a_mark_without_plain_ids_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], mark: str, complaint: str
) -> None:
    write_test(project, f"@pytest.mark.{mark}\ndef test_it(): ...")
    code, _, error = run(project, capsys, "--check")
    assert code == 1
    assert "tests/store/test_jobs.py::test_it (line 1)" in error
    assert complaint in error


def test_an_id_given_twice_in_the_document_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (project / "docs" / "requirements.md").open("a") as document:
        document.write("- **A1** Once more.\n")
    code, _, error = run(project, capsys, "--check")
    assert code == 1
    assert "A1 is there twice" in error


def test_our_own_document_holds_the_whole_list() -> None:
    ids = [r.id for r in requirements.parse(requirements.ROOT / requirements.DOCUMENT)]
    sizes = {"A": 12, "B": 9, "C": 15, "D": 10, "E": 10}
    listed = [f"{section}{n}" for section, size in sizes.items() for n in range(1, size + 1)]
    assert ids == [*listed, *(f"S{n}" for n in (1, 2, 3, 5, 6, 7, 8, 9, 11))]


def test_environments_that_lie_in_a_hidden_folder_are_passed_over(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(project, '@pytest.mark.requirement("A1")\ndef test_it(): ...\n')
    hidden = project / "benchmarks" / ".bench" / "peer"
    hidden.mkdir(parents=True)
    (hidden / "of_another_python.py").write_text("this is no Python\n")
    code, _, told = run(project, capsys, "--check")
    assert (code, told) == (0, "")
