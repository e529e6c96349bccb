"""`duly web`: serve the dashboard and the HTTP API."""

from __future__ import annotations

import logging

import click

from duly.app import Duly
from duly.cli.apps import address_of, open_database, required_app
from duly.cli.base import FAILED, OK, Command, wants_json
from duly.cli.logs import say, set_up_logging
from duly.cli.options import app_argument, include_option, schema_option, url_option
from duly.cli.running import watching_signals
from duly.cli.serving import HOST, PORT, Served, is_loopback, listen, preload
from duly.cli.text import clean
from duly.domain.errors import ConfigurationError

LOOK_EVERY = 0.5
EVERYWHERE = ("0.0.0.0", "::")


@click.command(cls=Command)
@app_argument
@click.option("--host", default=HOST, show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, metavar="N", help="The port.")
@click.option("--read-only", is_flag=True, help="Only let people look.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name under which it is reached, beside those of this machine; may be given again.",
)
@url_option
@schema_option
@include_option
def web(
    app: str | None,
    host: str,
    port: int,
    read_only: bool,
    hosts: tuple[str, ...],
    url: str | None,
    schema: str | None,
    include: tuple[str, ...],
) -> int:
    """Serve the dashboard and the HTTP API of APP, or of a database.

    It prints a link that lets you in once. Programs send a token: $DULY_TOKEN, or one that `duly tokens create` made.
    On an address that other machines can reach it wants such a credential, or does not start.
    """
    preload()
    if app is not None and url is None:
        opened = required_app(app, include).app
    else:
        opened = open_database(url, schema, None, name_app="duly web app.py")
    opened.store.now_us()  # a database that cannot be used is said at once
    if not is_loopback(host):
        _need_credentials(opened, host)
    names = hosts if host in EVERYWHERE or is_loopback(host) else (*hosts, host)
    handler = set_up_logging(json=wants_json(), level="warning")
    try:
        with (
            watching_signals() as signals,
            Served(opened, listen(host, port), hosts=names, read_only=read_only) as served,
        ):
            _tell(opened, served, host, read_only=read_only)
            while not signals.seen.wait(LOOK_EVERY):
                if served.ended:
                    return FAILED
        return OK
    finally:
        if handler is not None:
            logging.getLogger().removeHandler(handler)


def _need_credentials(app: Duly, host: str) -> None:
    """Refuse to be reached by others where nobody could be told from anybody."""
    if app.settings.token or app.settings.web_users or any(each.kind == "token" for each in app.tokens()):
        return
    raise ConfigurationError(
        f"{host} can be reached from other machines, and nobody has a credential yet. "
        "Set DULY_TOKEN, or make a token: duly tokens create NAME --scope operate"
    )


def _tell(app: Duly, served: Served, host: str, *, read_only: bool) -> None:
    link = served.link() if is_loopback(host) else None
    mode = ", read-only" if read_only else ""
    where = link or served.address
    how = "It lets you in once." if link else "Sign in with a token."
    text = f"duly web{mode}, database {clean(address_of(app))}\n\n    {where}\n\n{how} Stop it with Ctrl-C."
    say("serving", text, json=wants_json(), address=served.address, link=link, read_only=read_only)
