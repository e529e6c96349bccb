"""`duly doctor`: checks the whole installation, and mends what it can."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from duly.app import Duly
from duly.cli.apps import address_of, open_database
from duly.cli.base import Command, wants_json
from duly.cli.bulk import can_ask
from duly.cli.options import database_options
from duly.cli.output import bold, to_json
from duly.cli.text import clean, plural
from duly.doctor.finding import Finding, Severity, worst

EXIT = {Severity.OK: 0, Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}
_COLOURS = {Severity.OK: "green", Severity.INFO: "blue", Severity.WARNING: "yellow", Severity.ERROR: "red"}
_WIDTH = max(len(severity) for severity in Severity)


@click.command(cls=Command)
@database_options
@click.option("--fix", is_flag=True, help="Mend what can be mended, each finding in one transaction; asks first.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@click.option("--deep", is_flag=True, help="Look at every job and read all of an SQLite file, however long it takes.")
def doctor(url: str | None, schema: str | None, app: str | None, fix: bool, yes: bool, deep: bool) -> int:
    """Check the installation: database, workers, jobs, schedules. Changes nothing without --fix.

    Exit codes: 0 all is well, 1 there are warnings, 2 there are errors.
    """
    opened = open_database(url, schema, app, create=True)
    if fix and not yes and wants_json():
        raise click.UsageError("with --json nobody can be asked. Say --yes too", click.get_current_context())
    findings = opened.doctor(deep=deep)
    if wants_json():
        findings = [repair(opened, finding) if fix and finding.fixable else finding for finding in findings]
        click.echo(to_json(as_dict(opened, findings)))
        return EXIT[worst(findings)]
    click.echo(f"{clean(address_of(opened))}\n")
    click.echo(as_text(findings))
    if fix:
        findings = mend(opened, findings, yes=yes)
    click.echo("\n" + summary(findings, fix=fix))
    return EXIT[worst(findings)]


def repair(app: Duly, finding: Finding) -> Finding:
    """Mend one finding. (Imported here: other commands start without all that a check-up needs.)"""
    from duly.doctor import examine

    return examine.repair(app, finding)


def as_dict(app: Duly, findings: list[Finding]) -> dict[str, Any]:
    """Return the check-up as plain values."""
    return {
        "database": address_of(app),
        "severity": str(worst(findings)),
        "findings": [finding.as_dict() for finding in findings],
    }


def as_text(findings: list[Finding]) -> str:
    """Return the findings by area: a short line for what is in order, evidence and next step for what is not."""
    lines: list[str] = []
    for area, group in groupby(findings, key=lambda each: each.area):
        lines += [bold(area), *(line for finding in group for line in _lines(finding)), ""]
    return "\n".join(lines[:-1])


def _lines(finding: Finding) -> list[str]:
    word = click.style(str(finding.severity).ljust(_WIDTH), fg=_COLOURS[finding.severity])
    lines = [f"  {word}  {clean(finding.what)}"]
    if finding.next is not None:
        lines.append(f"  {' ' * _WIDTH}  -> {clean(finding.next)}")
    return lines


def mend(app: Duly, findings: list[Finding], *, yes: bool) -> list[Finding]:
    """Mend what can be mended and a person agrees to; say what was done."""
    after: list[Finding] = []
    for finding in findings:
        if finding.fixable and (yes or _agreed(finding)):
            finding = repair(app, finding)
            click.echo(f"\n{bold('fix')} {clean(finding.area)}: {clean(finding.what)}")
            done = finding.fixed or (f"not mended: {finding.refused}",)
            for line in done:
                click.echo(f"  {clean(line)}")
        after.append(finding)
    return after


def _agreed(finding: Finding) -> bool:
    if not can_ask():
        raise click.UsageError(
            "--fix asks before it mends, and nobody is there. Say --yes", click.get_current_context()
        )
    return click.confirm(f"\n{clean(finding.what)}\n{clean(finding.next or '')}\nMend it?", err=True)


def summary(findings: list[Finding], *, fix: bool) -> str:
    """Return one line about it all."""
    errors = sum(finding.left is Severity.ERROR for finding in findings)
    warnings = sum(finding.left is Severity.WARNING for finding in findings)
    mended = sum(finding.fixed is not None for finding in findings)
    parts = [plural(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n]
    text = ", ".join(parts) if parts else "all is well"
    if mended:
        text += f"; {plural(mended, 'finding')} mended"
    if not fix and any(finding.fixable for finding in findings):
        text += ". What can be mended: duly doctor --fix"
    return text
