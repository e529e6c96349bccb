"""What somebody may try to have run in an operator's browser, put into every field that a job can carry."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from duly import Backoff, Duly, current_job

PAYLOADS = (
    "<script>window.xss=1</script>",
    "<script src=/static/duly.js onload=window.xss=2></script>",
    "<img src=x onerror=window.xss=3>",
    "<svg onload=window.xss=4>",
    "<svg><script>window.xss=5</script></svg>",
    '"><script>window.xss=6</script>',
    "'><script>window.xss=7</script>",
    '" onmouseover=window.xss=8 x="',
    "' onfocus=window.xss=9 autofocus x='",
    "</title><script>window.xss=10</script>",
    "</textarea><script>window.xss=11</script>",
    "</pre><script>window.xss=12</script>",
    "</script><script>window.xss=13</script>",
    "</style><script>window.xss=14</script>",
    "--><script>window.xss=15</script>",
    "<iframe srcdoc='<script>parent.xss=16</script>'></iframe>",
    "<iframe src=javascript:parent.xss=17></iframe>",
    "<a href=javascript:window.xss=18>click</a>",
    "javascript:window.xss=19",
    "<details open ontoggle=window.xss=20>",
    "<video><source onerror=window.xss=21>",
    "<body onload=window.xss=22>",
    "<input autofocus onfocus=window.xss=23>",
    "<math><mtext></p><script>window.xss=24</script>",
    "<object data=javascript:window.xss=25>",
    "<embed src=javascript:window.xss=26>",
    "<marquee onstart=window.xss=27>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=javascript:window.xss=28'>",
    "<form action=javascript:window.xss=29><button>go</button></form>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css'</style>",
    "{{7*7}}{% for x in ().__class__.__bases__ %}{% endfor %}",
    "${window.xss=30}`${window.xss=31}`",
    "&lt;script&gt;window.xss=32&lt;/script&gt;",
    "&#x3C;script&#x3E;window.xss=33&#x3C;/script&#x3E;",
    "\\u003cscript\\u003ewindow.xss=34\\u003c/script\\u003e",
    "<ScRiPt >window.xss=35</sCrIpT >",
    "<scr<script>ipt>window.xss=36</scr</script>ipt>",
    "\u202e<script>window.xss=37</script>\u2066",
    "<template><script>window.xss=38</script></template>",
    '<noscript><p title="</noscript><img src=x onerror=window.xss=39>">',
    'event: live\ndata: {"html":{"tiles":"<img src=x onerror=window.xss=40>"}}',
)
EVERY = " ".join(PAYLOADS)


def short(n: int, most: int) -> str:
    """One of the payloads that fit a short field."""
    fitting = [each for each in PAYLOADS if len(each.encode()) <= most and each.isprintable()]
    return fitting[n % len(fitting)]


class Poisoned:
    """A `Duly` with jobs, tenants, schedules, errors and logs that carry every payload wherever text may stand."""

    def __init__(self, jobs: Duly) -> None:
        self.jobs = jobs
        self.names: list[str] = []
        self._declare()
        self.job = ""
        self.recurring: list[str] = []
        self._fill()

    def _declare(self) -> None:
        @self.jobs.task(name="evil.fail", retry=Backoff.none())
        def fail(**args: str) -> None:
            current_job().log(EVERY)
            for payload in PAYLOADS:
                current_job().log(payload)
            current_job().progress(0.5, EVERY[:200])
            raise type(short(3, 60), (Exception,), {})(EVERY)

        @self.jobs.task(name="evil.return")
        def give(**args: str) -> dict[str, str]:
            current_job().log(EVERY)
            return {payload: payload for payload in PAYLOADS}

        self.fail, self.give = fail, give

    def _fill(self) -> None:
        jobs = self.jobs
        everything: dict[str, Any] = {f"arg{n}": payload for n, payload in enumerate(PAYLOADS)}
        job = self.fail.using(tags=[short(0, 60), short(1, 60)], enqueued_by=short(2, 200)).enqueue(**everything)
        given = self.give.enqueue(**everything)
        jobs.tick(10)
        self.job = job.id
        self.jobs_shown = [job.id, given.id]
        for n, payload in enumerate(PAYLOADS):
            tenant = self._if_allowed("tenant", payload)
            queue = self._if_allowed("queue", payload)
            waiting = self.give.using(delay="9h", tenant=tenant, queue=queue, unique=payload[:100] or None).enqueue(
                a=payload
            )
            if n % 5 == 0:
                with jobs.acting_as(payload[:200].replace("\n", " "), via="api"):
                    jobs.cancel(waiting.id, payload)
            self.jobs_shown.append(waiting.id)
        for n, payload in enumerate(PAYLOADS[:12]):
            made = self.fail.recur(
                payload, every="1h", args={"arg": payload}, name=payload[:100], description=payload,
                created_by=short(n, 200), tenant=self._if_allowed("tenant", payload) or "",
            )  # fmt: skip
            self.recurring.append(made.id)
            if n % 3 == 0:
                made.disable(payload)
        jobs.recurring_by_id(self.recurring[1]).run_now()
        jobs.tick(3)
        with jobs.acting_as(short(4, 200)):
            jobs.pause(queue="mail", reason=EVERY[:900])
            jobs.pause(tenant="t", reason=EVERY[:900])
            jobs.pause(key=f"evil.fail/{short(5, 60)}", reason=EVERY[:900])
            jobs.alerts.silence("depth", short(6, 200), reason=EVERY[:900])
            jobs.create_token(short(7, 200))

    def _if_allowed(self, kind: str, payload: str) -> str | None:
        """The payload as a name, where such a name is allowed at all."""
        from duly.domain import names
        from duly.domain.errors import DulyError

        check = {"tenant": names.check_tenant, "queue": names.check_queue_name}[kind]
        try:
            return check(payload)
        except DulyError:
            return None

    def pages(self) -> list[str]:
        """Every page on which something of it stands, also by what is in the address."""
        found = ["/", "/jobs", "/jobs?state=failed", "/schedules", "/queues", "/workers", "/tenants", "/audit"]
        found += [f"/jobs/{job_id}" for job_id in (*self.jobs_shown[:6], *self.recurring[:4])]
        found += [f"/schedules/{job_id}" for job_id in self.recurring[:4]]
        found += [f"/schedules/{job_id}/edit" for job_id in self.recurring[:2]]
        found += ["/runs", "/why", "/usage?by=tenant,task,queue", "/system", "/system/doctor", "/alerts"]
        for payload in PAYLOADS[2:8]:
            text = quote(payload)
            found += [f"/jobs?text={text}&task={text}&tenant={text}&tag={text}", f"/audit?by={text}", f"/jobs/{text}"]
            found += [f"/schedules?task={text}&tenant={text}", f"/jobs/new?task={text}", f"/schedules/new?task={text}"]
            found += [f"/runs?task={text}", f"/usage?task={text}&tenant={text}", f"/schedules/preview?rule={text}"]
        return found
