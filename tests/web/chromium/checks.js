// What people with a keyboard, a screen reader or tired eyes need, checked on the page as it is drawn. Returns what is wrong.
() => {
  const problems = [];
  const wrong = (rule, element, more = "") => problems.push(`${rule}: ${element.outerHTML.slice(0, 120)} ${more}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const visible = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && element.getClientRects().length > 0;

  // -- names
  function named(element) {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent || "").join(" ").trim();
    const own = element.getAttribute("aria-label");
    if (own) return own.trim();
    if (element.labels && element.labels.length) return [...element.labels].map((label) => label.textContent).join(" ").trim();
    if (element.matches("input, select, textarea, progress")) return "";
    return (element.textContent || element.getAttribute("title") || "").trim();
  }
  for (const element of all("a[href], button, summary, input:not([type=hidden]), select, textarea, progress, [role=img], [role=search], nav")) {
    if (!named(element)) wrong("no name", element);
  }
  for (const element of all("[aria-labelledby]")) {
    for (const id of element.getAttribute("aria-labelledby").split(/\s+/)) if (!document.getElementById(id)) wrong("names a missing id", element);
  }
  const ids = all("[id]").map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) problems.push(`two elements with the id ${id}`);
  const navs = all("nav").map(named);
  if (new Set(navs).size !== navs.length) problems.push("two landmarks with one name");

  // -- structure
  if (document.documentElement.lang !== "en") problems.push("no language");
  if (!document.title.trim()) problems.push("no title");
  if (all("main").length !== 1 || all("h1").length !== 1) problems.push("not one main and one h1");
  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const now = Number(heading.tagName[1]);
    if (now > level + 1) wrong("a level of headings is skipped", heading);
    level = now;
  }
  for (const list of all("ul, ol")) for (const child of list.children) if (child.tagName !== "LI") wrong("no item of a list", child);
  for (const table of all("table")) {
    if (!table.querySelector("caption") && !table.closest("[aria-labelledby]")) wrong("a table without a name", table);
    for (const head of table.querySelectorAll("th")) if (!head.scope || !head.textContent.trim() && !head.querySelector("[aria-label]")) wrong("a header without scope or words", head);
  }
  for (const element of all("[tabindex]")) if (element.tabIndex > 0) wrong("takes the order of tabbing away", element);
  for (const element of all("pre")) if (element.scrollHeight > element.clientHeight + 1 && element.tabIndex < 0) wrong("scrolls but not by keys", element);

  // -- size of what is pressed
  for (const element of all("button, summary, input:not([type=hidden]):not([type=checkbox]), select")) {
    if (visible(element) && element.getBoundingClientRect().height < 24 && element.closest(".drop, form, .tools")) wrong("too small to press", element);
  }

  // -- contrast
  const channel = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  function colour(text) {
    const numbers = (text.match(/[\d.]+(e-?\d+)?%?/g) || []).map(Number);
    if (text.startsWith("color(srgb")) return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
    if (text.startsWith("rgb")) return [numbers[0] / 255, numbers[1] / 255, numbers[2] / 255, numbers[3] ?? 1];
    throw new Error(`unknown colour ${text}`);
  }
  const over = (top, under) => [0, 1, 2].map((n) => top[n] * top[3] + under[n] * (1 - top[3]));
  function ground(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = colour(getComputedStyle(at).backgroundColor);
      layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [1, 1, 1]);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || seen.has(element) || element.closest("svg, script, .unseen, .skip, datalist, option") || !visible(element)) continue;
    seen.add(element);
    if (element.closest("button:disabled")) continue;
    const style = getComputedStyle(element), under = ground(element);
    const text = over(colour(style.color), under);
    const [light, dark] = [luminance(text), luminance(under)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    if (ratio < (size >= 24 || (bold && size >= 18.66) ? 3 : 4.5)) wrong("contrast", element, `${ratio.toFixed(2)} at ${size}px`);
  }
  // Edges of what is filled in must be seen too (3 to 1).
  for (const element of all("input:not([type=hidden]):not([type=checkbox]), select, textarea")) {
    if (!visible(element)) continue;
    const edge = over(colour(getComputedStyle(element).borderTopColor), ground(element.parentElement)), under = ground(element.parentElement);
    const [light, dark] = [luminance(edge), luminance(under)].sort((a, b) => b - a);
    if ((light + 0.05) / (dark + 0.05) < 3) wrong("contrast of an edge", element, ((light + 0.05) / (dark + 0.05)).toFixed(2));
  }
  return problems;
}
