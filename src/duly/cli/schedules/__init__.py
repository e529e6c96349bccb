"""`duly schedules`: recurring jobs, looked at and changed.

look.py     list, show
load.py     load: how many runs the next hours bring
preview.py  next: the times of a rule, with or without a database
write.py    add, edit
act.py      enable, disable, run, remove
find.py     which recurring job a word means
text.py     recurring jobs and their times for people
"""

from __future__ import annotations

import click

from duly.cli.base import Group
from duly.cli.schedules import act, load, look, preview, write


@click.group(cls=Group)
def schedules() -> None:
    """Look at recurring jobs, make them, and change when they run.

    WHICH is a name, TASK/KEY (TASK alone where there is no key), an id, or the last characters of an id.
    """


for _command in (
    look.list_schedules,
    look.show,
    preview.preview,
    load.load,
    write.add,
    write.edit,
    act.enable,
    act.disable,
    act.run,
    act.remove,
):
    schedules.add_command(_command)
