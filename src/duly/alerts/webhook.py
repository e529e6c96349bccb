"""Tells a webhook: a POST with a JSON body, signed so that the receiver can tell that it is ours and not a replay.

    Duly-Id: the notice's id; the same if it is sent again
    Duly-Timestamp: seconds since the epoch
    Duly-Signature: v1=HMAC-SHA256(secret, "<timestamp>.<body>") in hex

`verify` is what a receiver does.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from duly.__about__ import __version__


class WebhookFailed(Exception):
    """It did not take the message."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a message."""
    return "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now: float, tolerance: float = 300.0) -> bool:
    """Whether a message was signed with this secret, not long ago."""
    given = {name.lower(): value for name, value in headers.items()}
    timestamp = given.get("duly-timestamp", "")
    if not timestamp.isascii() or not timestamp.isdecimal() or abs(now - int(timestamp)) > tolerance:
        return False
    return hmac.compare_digest(sign(secret, timestamp, body).encode(), given.get("duly-signature", "").encode())


def send(url: str, body: bytes, *, notice_id: str, secret: str | None, timeout: float) -> None:
    """Send a message once. Anything but an answer of 2xx is a failure; redirects are not followed."""
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"duly/{__version__}",
        "Duly-Id": notice_id,
        "Duly-Timestamp": timestamp,
    }
    if secret:
        headers["Duly-Signature"] = sign(secret, timestamp, body)
    parts = urlsplit(url)
    make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=timeout)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise WebhookFailed(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise WebhookFailed(f"it answered {status}")
