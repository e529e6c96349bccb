// What makes a page live and handy. Everything on it can be read and done without this.

const prefix = document.documentElement.dataset.prefix || "";
const page = document.body.dataset.page;
const watched = document.body.dataset.watch || "";
const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const store = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* then it is forgotten */ } },
};

// -- times: how long ago, and exact in UTC or local -----------------------------------------------------------------

let local = store.get("duly-zone") === "local";
const two = (n) => String(n).padStart(2, "0");

function exact(at) {
  if (!local) return at.toISOString().slice(0, 19).replace("T", " ") + " UTC";
  const offset = -at.getTimezoneOffset();
  const zone = (offset < 0 ? "-" : "+") + two(Math.floor(Math.abs(offset) / 60)) + ":" + two(Math.abs(offset) % 60);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())} ${zone}`;
}

function relative(at) {
  const seconds = (Date.now() - at) / 1000;
  for (const [size, word] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (Math.abs(seconds) >= size) {
      const text = `${Math.floor(Math.abs(seconds) / size)} ${word}`;
      return seconds >= 0 ? `${text} ago` : `in ${text}`;
    }
  }
  return seconds >= 0 ? "just now" : "now";
}

function setText(element, text) { if (element.textContent !== text) element.textContent = text; }

function tellTimes(root = document) {
  for (const element of all("time", root)) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    if (element.classList.contains("rel")) {
      setText(element, relative(at));
      if (element.title !== exact(at)) element.title = exact(at);
    } else setText(element, exact(at));
  }
}

const zone = $("#zone");
function showZone() {
  zone.textContent = local ? "Local" : "UTC";
  zone.setAttribute("aria-label", `Times are ${local ? "local" : "UTC"}; show ${local ? "UTC" : "local time"}`);
}
zone.hidden = false;
zone.addEventListener("click", () => { local = !local; store.set("duly-zone", local ? "local" : "utc"); showZone(); tellTimes(); });
showZone();
tellTimes();
setInterval(tellTimes, 5000);

// -- theme ----------------------------------------------------------------------------------------------------------

const theme = $("#theme");
const themes = ["system", "light", "dark"];
function showTheme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  theme.textContent = { system: "Auto", light: "Light", dark: "Dark" }[chosen];
  theme.setAttribute("aria-label", `Theme: ${chosen}; change it`);
}
theme.hidden = false;
theme.addEventListener("click", () => {
  const next = themes[(themes.indexOf(store.get("duly-theme") || "system") + 1) % themes.length];
  store.set("duly-theme", next);
  showTheme(next);
});
showTheme(themes.includes(store.get("duly-theme")) ? store.get("duly-theme") : "system");

// -- live -----------------------------------------------------------------------------------------------------------

const pulse = $("#pulse");
const isLive = ["overview", "jobs", "queues", "workers", "tenants", "schedules"].includes(page);
const stamps = new Map();
const shown = new Map();
let source = null, timer = null, later = null, failures = 0;

function address(path) {
  const query = new URLSearchParams({ page });
  if (watched) query.set("watch", watched);
  return `${prefix}${path}?${query}`;
}

function beat(on, text) {
  pulse.hidden = false;
  pulse.className = `pulse ${on ? "on" : "off"}`;
  setText($("#pulse-text"), text);
}

function parsed(html) { return new DOMParser().parseFromString(html, "text/html"); }

function isBusy(element) {
  // What somebody is using is not taken from under their hands.
  const typed = (field) => field.type !== "checkbox" && field.type !== "hidden" && field.value !== field.defaultValue;
  const chosen = (field) => field.selectedIndex !== Math.max(0, [...field.options].findIndex((each) => each.defaultSelected));
  return element.contains(document.activeElement) || element.querySelector("details.drop[open]") !== null
    || all("input, textarea", element).some(typed) || all("select", element).some(chosen);
}

function apply(message) {
  for (const element of all("[data-live]")) {
    const name = element.dataset.live;
    const text = message.texts[name] ?? message.otherwise[name.slice(name.lastIndexOf(".") + 1)];
    if (text !== undefined) setText(element, text);
  }
  for (const element of all("[data-live-html]")) {
    const name = element.dataset.liveHtml, html = message.html[name];
    if (html === undefined || shown.get(name) === html || isBusy(element)) continue;
    shown.set(name, html);
    element.replaceChildren(...parsed(html).body.childNodes); // a script in it would not run
    tellTimes(element);
  }
  for (const [id, job] of Object.entries(message.jobs)) if (job) applyJob(id, job);
}

function applyJob(id, job) {
  const whole = $(`[data-refresh][data-job="${id}"]`);
  const before = stamps.get(id);
  stamps.set(id, job.stamp);
  if (whole) {
    const bar = $("progress", whole);
    if (bar && job.state === "running" && job.progress !== null) {
      bar.value = job.progress;
      setText($(".percent", whole), `${Math.floor(job.progress * 100)} %`);
    }
    // The first message may bring news, too: what happened while the page was on its way.
    if (before === undefined ? whole.dataset.state !== job.state : before !== job.stamp) refresh();
    return;
  }
  for (const badge of all(`[data-badge="${id}"]`)) {
    if (badge.textContent !== job.state) { badge.textContent = job.state; badge.className = `badge ${job.state}`; }
  }
  const progress = $(`[data-progress="${id}"]`);
  if (progress && job.progress !== null) setText(progress, `${Math.floor(job.progress * 100)} %`);
}

async function refresh() {
  // The job went on: fetch the page again and put what is new in its place.
  const whole = $("[data-refresh]");
  if (!whole) return;
  if (isBusy(whole)) { clearTimeout(later); later = setTimeout(refresh, 2000); return; }
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = $("[data-refresh]", parsed(await answer.text()));
  if (!fresh || isBusy(whole)) return;
  const opened = all("details[id][open]", whole).map((each) => each.id);
  whole.replaceChildren(...fresh.childNodes);
  for (const id of opened) if (document.getElementById(id)) document.getElementById(id).open = true;
  tellTimes(whole);
}

function listen() {
  stop();
  if (document.hidden) return;
  if (failures >= 3 || !("EventSource" in window)) return ask();
  source = new EventSource(address("/live"));
  source.onmessage = (event) => { failures = 0; beat(true, "live"); apply(JSON.parse(event.data)); };
  source.onerror = () => { failures += 1; beat(false, "connecting"); if (failures >= 3 || source.readyState === 2) ask(); };
}

async function ask() {
  stop();
  let wait = 5;
  try {
    const answer = await fetch(address("/live.json"));
    if (!answer.ok) throw new Error(String(answer.status));
    const message = await answer.json();
    wait = message.again_in;
    beat(true, "live");
    apply(message);
  } catch { beat(false, "offline"); }
  if (!document.hidden) timer = setTimeout(ask, wait * 1000);
}

function stop() {
  if (source) source.close();
  source = null;
  clearTimeout(timer);
}

if (isLive) {
  listen();
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : listen()));
  addEventListener("pagehide", stop);
}

// -- ticking many ---------------------------------------------------------------------------------------------------

const tickAll = $("#tick-all");
if (tickAll) {
  const ticks = () => all("#rows input[name=id]");
  const matching = $("#all-matching");
  const count = () => {
    const n = ticks().filter((tick) => tick.checked).length;
    setText($("#ticked"), matching.checked ? "" : n ? `${n} ticked` : "none ticked");
    $("#bulk-bar").classList.toggle("on", n > 0 || matching.checked);
    for (const button of all("#bulk-bar button")) button.disabled = !n && !matching.checked;
    tickAll.checked = n > 0 && n === ticks().length;
    tickAll.indeterminate = n > 0 && n < ticks().length;
  };
  tickAll.hidden = false;
  tickAll.addEventListener("change", () => { for (const tick of ticks()) tick.checked = tickAll.checked; count(); });
  $("#bulk").addEventListener("change", count);
  addEventListener("pageshow", count);
  count();
}

// -- arguments to start from ------------------------------------------------------------------------------------------

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-examples]")) return;
  const args = $("textarea[name=args]", event.target.form), known = [...event.target.options].map((each) => each.dataset.example);
  const untouched = args.value.trim() === "{}" || known.includes(args.value.trim());
  if (untouched) args.value = event.target.selectedOptions[0].dataset.example || "{}";
});

// -- what a rule means, while it is written -------------------------------------------------------------------------

let asked = 0, soon = null;

async function preview(form) {
  const box = $(".preview", form), title = $(".title", box), times = $(".times", box), mine = ++asked;
  const query = new URLSearchParams({ of: form.dataset.preview });
  for (const field of all("[data-when]", form)) if (field.type !== "checkbox" || field.checked) query.set(field.name, field.value.trim());
  if (!query.get("rules") && !query.get("no_rule")) { box.hidden = true; return; }
  let found;
  try {
    const answer = await fetch(`${prefix}/schedules/preview?${query}`, { headers: { accept: "application/json" } });
    if (!answer.ok) return;
    found = await answer.json();
  } catch { return; }
  if (mine !== asked) return; // something else was written since
  box.hidden = false;
  box.classList.toggle("wrong", found.wrong);
  setText(title, found.text);
  times.replaceChildren(...found.times.map((at) => {
    const item = document.createElement("li"), exactly = document.createElement("time"), about = document.createElement("time");
    exactly.dateTime = about.dateTime = at;
    exactly.className = "abs";
    about.className = "rel muted";
    item.append(exactly, " ", about);
    return item;
  }));
  tellTimes(times);
}

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-preview]");
  if (!form || !event.target.matches("[data-when]")) return;
  clearTimeout(soon);
  soon = setTimeout(() => preview(form), 300);
});

// -- keys -----------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const open of all("details.drop[open]")) { open.open = false; $("summary", open).focus(); }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    const search = $("#search");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
    else location.href = `${prefix}/jobs`;
  }
  if (event.key === "j" || event.key === "k") {
    const links = all("#rows tbody td.main > a");
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))];
    event.preventDefault();
    next.focus();
  }
});
document.addEventListener("click", (event) => {
  for (const open of all("details.drop[open]")) if (!open.contains(event.target)) open.open = false;
});
