"""The HTTP API and the dashboard: `app.mount("/duly", duly.web.app(jobs, auth=...))`. Needs `pip install 'duly[web]'`.

Not here: what can be done (`duly.admin`); `duly.web.service` says who may.
"""

from __future__ import annotations

from duly.web.asgi import Web, create_app
from duly.web.principal import Principal, Scope

app = create_app

__all__ = ["Principal", "Scope", "Web", "app", "create_app"]
