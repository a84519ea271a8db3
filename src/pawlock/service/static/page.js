"use strict";
// The token lives in this variable alone: no cookie, no storage, no URL.
let token = "";
let namespace = "pawlock";
let may = [];
let locks = [];
let recent = [];
let paused = false;
let pressed = false;
let stream = null;
let audit = [];
// How far this machine's clock is from the service's, in seconds.
let ahead = 0;
// Why what is shown is not live; "": it is.
let trouble = "";
// When the shown picture came, and when anything did, by this machine's clock in ms; 0: not yet.
let seenAt = 0;
let heardAt = 0;
let gap = 0;
const SHOWN = 120;
// Seconds: who waits so long behind one holder waits for something that is stuck; see the alert of the same name.
const LONG = 60;
// Rows: thousands take a second to draw, every second.
const MOST = 300;
// Three pictures that do not come; how far they are apart is not known before the second.
const silence = () => 3 * Math.max(2, gap || 6);
// Of each name that had waiters lately: how many, at each picture of the last two minutes.
const crowds = new Map();
const at = (id) => document.getElementById(id);
// What is drawn anew under a finger takes the click with it, and the text that somebody selects to copy it.
const selecting = () => !getSelection().isCollapsed;
const frozen = () => paused || pressed || selecting();

// The shown lock is in the URL, so that it can be sent to somebody; the token never is.
const view = () => new URLSearchParams(location.search);
function setView(changes, push) {
  const next = view();
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, value); else next.delete(key);
  }
  const query = next.toString();
  const url = query ? `/?${query}` : "/";
  if (push) history.pushState(null, "", url); else history.replaceState(null, "", url);
  draw();
}

async function ask(path, options = {}) {
  const response = await fetch(path, {
    ...options, cache: "no-store", headers: { ...options.headers, Authorization: `Bearer ${token}` },
  });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    const error = new Error(problem.detail || `HTTP ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return response;
}
const space = () => `/v1/ns/${encodeURIComponent(namespace)}`;
const pathOf = (lock) => `${space()}/${lock.kind === "rlock" ? "lock" : lock.kind}/${encodeURIComponent(lock.name)}`;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
const clock = (moment) => new Date(moment * 1000).toLocaleTimeString(undefined, { hour12: false, timeZoneName: "short" });
const ageOf = (lock) => {
  const since = lock.since ?? lock.seen_since ?? null;
  // Of a picture that is old: as it was then.
  return since === null ? null : Math.max(0, (trouble || frozen() ? seenAt : Date.now()) / 1000 - ahead - since);
};
const waitOf = (lock) => lock.longest_wait ?? 0;
const waitersOf = (lock) => lock.waiting ?? lock.queue_length;
const isStuck = (lock) => waitOf(lock) >= LONG && (ageOf(lock) ?? 0) >= LONG;
// The end of a fence tells it from the others; all of it is for who points at it.
function short(fence) {
  const text = String(fence ?? "–");
  return element("span", text.length > 8 ? `…${text.slice(-6)}` : text, { title: `fencing token ${text}`, class: "short" });
}
// A name is anybody's text: what would turn the reading order is shown, and each name is read by itself.
const TURNS = /[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const visible = (text) => String(text ?? "").replace(TURNS, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
const own = (text) => element("bdi", visible(text));
function item(...parts) {
  const one = element("li");
  one.append(...parts.filter((part) => part !== ""));
  return one;
}
function list(id, lines) {
  at(id).replaceChildren(...(lines.length ? lines : [element("li", "no entries", { class: "none" })]));
}
function chosen() {
  const search = view().get("search") || "";
  const found = locks.filter((lock) => (lock.name.includes(search) || lock.holder.includes(search))
    && (!view().get("contended") || waitersOf(lock) > 0));
  const orders = {
    wait: (a, b) => waitOf(b) - waitOf(a) || orders.age(a, b),
    age: (a, b) => (ageOf(b) ?? -1) - (ageOf(a) ?? -1),
    name: (a, b) => (a.name < b.name ? -1 : 1),
    waiters: (a, b) => waitersOf(b) - waitersOf(a),
    ttl: (a, b) => (a.ttl_left ?? Infinity) - (b.ttl_left ?? Infinity),
  };
  return found.sort(orders[view().get("sort")] || orders.wait);
}

function cellOf(what, ...parts) {
  const cell = element("td", null, { "data-what": what, class: ["Name", "Holder"].includes(what) ? "" : "number" });
  cell.append(...parts);
  return cell;
}
function linkTo(lock, link) {
  link.replaceChildren(own(lock.name));
  link.setAttribute("href", `/?kind=${lock.kind}&name=${encodeURIComponent(lock.name)}`);
  link.onclick = (event) => {
    event.preventDefault();
    setView({ kind: lock.kind, name: lock.name }, true);
  };
  return link;
}
function row(lock) {
  const line = element("tr", null, {
    class: `${waitOf(lock) >= LONG ? "long" : ""} ${isStuck(lock) ? "stuck" : ""} ${waitersOf(lock) ? "" : "calm"}`,
  });
  const name = cellOf("Name", linkTo(lock, element("a")));
  if (lock.kind !== "lock") name.append(` (${lock.kind})`);
  if (isStuck(lock)) name.append(" ", element("span", "stuck", { class: "stuck-mark" }));
  const who = lock.foreign ? "not pawlock" : lock.holder || lock.holders.map((one) => one.holder).join(", ");
  line.append(
    name, cellOf("Longest wait", waitersOf(lock) ? duration(waitOf(lock)) : "–"), cellOf("Waiters", waitersOf(lock)),
    cellOf("Holder", own(who), lock.holders.length && lock.count > 1 ? ` and ${lock.count - 1} more` : ""),
    cellOf("Held for", duration(ageOf(lock))), cellOf("TTL left", duration(lock.ttl_left)), cellOf("Fence", short(lock.fence)),
  );
  return line;
}
const changeLine = (one) => item(
  `${clock(one.at)}  `, own(one.name), `: ${one.what}`, one.holder ? ", " : "", one.holder ? own(one.holder) : "",
  ...(one.fence === null ? [] : [", fence ", short(one.fence)]));

function drawWorst() {
  const worst = locks.reduce((most, lock) => (waitersOf(lock) && waitOf(lock) >= waitOf(most ?? {}) ? lock : most), null);
  at("worst").className = !worst ? "" : waitOf(worst) >= LONG ? "waits long" : "waits";
  at("worst-time").textContent = worst ? duration(waitOf(worst)) : "nobody waits";
  at("worst-name").hidden = at("worst-more").hidden = !worst;
  if (!worst) return;
  linkTo(worst, at("worst-name"));
  const waiting = locks.reduce((sum, lock) => sum + waitersOf(lock), 0);
  at("worst-more").textContent = `${isStuck(worst) ? `stuck: held for ${duration(ageOf(worst))}; ` : ""}${waiting} waiting in all`;
}
// What is shown, and whether it is still true.
function drawState() {
  const silent = heardAt && (Date.now() - heardAt) / 1000 > silence();
  const why = !token ? "" : trouble || (silent ? "The service sends nothing any more." : "");
  const old = seenAt ? `What is shown is ${duration((Date.now() - seenAt) / 1000)} old, of ${clock(seenAt / 1000)}.` : "";
  at("outage").hidden = !why;
  if (at("outage-why").textContent !== why) at("outage-why").textContent = why;
  at("outage-age").textContent = old;
  document.body.classList.toggle("stale", Boolean(why));
  const state = !token ? "not connected" : why ? "not live"
    : paused || selecting() ? `paused at ${clock(seenAt / 1000)}${paused ? "" : ": text is selected"}` : seenAt ? `live: ${namespace}` : "connecting";
  if (at("state").textContent !== state) at("state").textContent = state;
}
setInterval(drawState, 1000);

function drawAll() {
  const found = chosen();
  const focused = document.activeElement && document.activeElement.getAttribute("href");
  drawWorst();
  at("rows").replaceChildren(...found.slice(0, MOST).map(row));
  if (focused) {
    for (const link of at("rows").querySelectorAll("a")) if (link.getAttribute("href") === focused) link.focus();
  }
  const cut = found.length > MOST ? `; the first ${MOST} are shown` : "";
  at("count").textContent = `${found.length} of ${locks.length} held locks in ${visible(namespace)}${seenAt ? `, at ${clock(seenAt / 1000)}` : ""}${cut}`;
  list("recent", recent.slice(-20).reverse().map(changeLine));
  tellAudit("audit", audit);
}
// Two minutes wide, and as high as the next even number, so that the middle line has one too.
function plot(counts) {
  const now = seenAt / 1000;
  const numbers = counts.map(([, n]) => n);
  const most = Math.max(2, 2 * Math.ceil(Math.max(0, ...numbers) / 2));
  at("one-line").setAttribute("points", counts.map(([when, n]) => `${(600 - (now - when) * 5).toFixed(1)},${100 - (n / most) * 100}`).join(" "));
  at("one-top").textContent = most;
  at("one-half").textContent = most / 2;
  at("one-peak").textContent = `current ${numbers[numbers.length - 1] || 0}, peak ${Math.max(0, ...numbers)}`;
}
function noteCrowds() {
  const when = seenAt / 1000;
  const now = new Map(locks.map((lock) => [`${lock.kind} ${lock.name}`, waitersOf(lock)]));
  for (const [key, n] of now) if (n && !crowds.has(key)) crowds.set(key, []);
  for (const [key, counts] of crowds) {
    counts.push([when, now.get(key) || 0]);
    while (when - counts[0][0] > SHOWN) counts.shift();
    if (!counts.some(([, n]) => n)) crowds.delete(key);
  }
}

// What the page of a lock shows; nothing of one stays there under the name of the next.
let drawn = "";
function begin(key, name) {
  drawn = key;
  at("title").replaceChildren(own(name));
  at("one-problem").textContent = "";
  at("one-body").hidden = at("force").hidden = true;
}
async function drawOne(kind, name) {
  const key = `${kind} ${name}`;
  if (drawn !== key) begin(key, name);
  const listed = locks.find((lock) => lock.kind === kind && lock.name === name);
  let lock = listed;
  let problem = "";
  try {
    lock = { ...(listed || {}), ...(await (await ask(pathOf({ kind, name }))).json()), kind };
    if (listed) for (const what of ["since", "seen_since"]) lock[what] = listed[what];
  } catch (error) {
    problem = error.message;
  }
  if (drawn !== key) return;
  at("one-problem").textContent = problem;
  // Of an outage, what the last picture has.
  at("one-body").hidden = !lock;
  if (!lock) return;
  const several = lock.holders.length && lock.count > 1;
  held = lock.holders;
  const holders = lock.holders.slice(0, SHOWN).map((one) => `${one.holder}${kind.startsWith("rwlock") ? `, ${one.mode}` : ""}, ${duration(one.ttl_left)} left`);
  if (lock.count > holders.length) holders.push(`and ${lock.count - holders.length} more`);
  const facts = {
    "Longest wait": waitersOf(lock) ? `${duration(lock.longest_wait)}${isStuck(lock) ? " (stuck)" : ""}` : "nobody waits", Waiters: waitersOf(lock),
    State: lock.done ? `done, kept for ${duration(lock.done.keep_left)}` : lock.held ? "held" : "free", Kind: kind,
    [several ? "Holders" : "Holder"]: (several ? holders.join("\n") : lock.foreign ? "not pawlock" : lock.holder) || "–",
    ...(lock.limit ? { Permits: `${lock.used} of ${lock.limit} in use` } : {}),
    Since: ageOf(lock) === null || !lock.held ? "–"
      : `${clock(lock.since ?? lock.seen_since)} (${duration(ageOf(lock))})`,
    "TTL left": lock.held ? duration(lock.ttl_left) : "–", "Fencing token": lock.fence ?? "–",
  };
  at("facts").classList.toggle("long", waitOf(lock) >= LONG);
  at("facts").replaceChildren(...Object.entries(facts).flatMap(([what, value]) => [element("dt", what), element("dd", visible(value))]));
  const inside = waitersOf(lock) - lock.queue_length;
  const queue = lock.waiters.map((one) => item(own(one.holder), `, waits ${duration(one.age)}`));
  const unlisted = lock.queue_length - queue.length;
  const also = (text) => queue.push(element("li", `${queue.length ? "and " : ""}${text}`, { class: "none" }));
  if (unlisted > 0) also(`${unlisted} more`);
  if (inside > 0) also(`${inside} inside clients, behind the holder or waiter of each`);
  at("queue").replaceChildren(...queue);
  at("queue").hidden = !queue.length;
  at("nobody").hidden = Boolean(queue.length);
  const seen = recent.filter((one) => one.name === name && one.kind === kind).reverse();
  list("changes", seen.map(changeLine));
  plot(crowds.get(key) || []);
  tellAudit("one-audit", audit.filter((one) => one.name === name));
  at("force").hidden = !(may.includes("force") && lock.held);
}
function draw() {
  const name = view().get("name");
  const in_ = Boolean(token);
  at("login").hidden = in_;
  at("leave").hidden = !in_;
  at("spaces").hidden = !in_;
  at("all").hidden = !in_ || Boolean(name);
  at("one").hidden = !in_ || !name;
  at("search").value === (view().get("search") || "") || (at("search").value = view().get("search") || "");
  at("sort").value = view().get("sort") || "wait";
  at("contended").checked = Boolean(view().get("contended"));
  drawState();
  if (!in_) return;
  if (name) drawOne(view().get("kind") || "lock", name); else drawAll();
}

async function drawAudit() {
  audit = (await (await ask(`${space()}/audit`)).json()).audit;
  draw();
}
function tellAudit(id, entries) {
  const lines = entries.slice(0, 20).map((one) => item(
    `${clock(one.at)}  `, own(one.name), `: ${one.action}, ${one.outcome}`,
    one.holder ? ", was " : "", one.holder ? own(one.holder) : "", ": ", own(one.text)));
  list(id, lines);
}

// EventSource can send no Authorization header, and a token in the URL would stand in logs.
async function follow() {
  const mine = new AbortController();
  if (stream) stream.abort();
  stream = mine;
  while (token && stream === mine) {
    try {
      const response = await ask(`${space()}/events`, { signal: mine.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        parts.forEach(take);
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      trouble = `The service cannot be reached: ${error.message}.`;
      drawState();
      if (error.status === 401 || error.status === 403) return forget(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
function take(part) {
  const kind = /^event: (.*)$/m.exec(part);
  const data = /^data: (.*)$/m.exec(part);
  if (!kind || !data) return;
  const answer = JSON.parse(data[1]);
  gap = heardAt ? (Date.now() - heardAt) / 1000 : 0;
  heardAt = Date.now();
  trouble = kind[1] === "trouble" ? `${answer.detail[0].toUpperCase()}${answer.detail.slice(1)}.` : "";
  drawState();
  if (trouble || frozen()) return;
  ({ locks, recent } = answer);
  seenAt = heardAt;
  ahead = Date.now() / 1000 - answer.now;
  noteCrowds();
  draw();
}
function forget(why) {
  token = "";
  if (stream) stream.abort();
  at("refused").textContent = why || "";
  draw();
}

async function enter(wanted) {
  namespace = wanted;
  locks = [];
  recent = [];
  audit = [];
  crowds.clear();
  trouble = drawn = "";
  seenAt = heardAt = 0;
  try {
    const answer = await (await ask(`/v1/whoami?namespace=${encodeURIComponent(namespace)}`)).json();
    may = answer.may.includes("admin") ? ["read", "acquire", "force", "admin"] : answer.may;
    if (!may.includes("read")) throw new Error(`this token has no read role in ${namespace}`);
    const known = [...new Set([namespace, ...answer.namespaces])].sort();
    at("space").replaceChildren(...known.map((one) => element("option", visible(one), { value: one })));
    at("space").value = namespace;
  } catch (error) {
    forget(error.message);
    return;
  }
  at("refused").textContent = "";
  draw();
  follow();
  // What keeps it away, the stream tells.
  drawAudit().catch(() => {});
}
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("token").value = "";
  enter(at("namespace").value);
});
at("space").addEventListener("change", () => {
  setView({ kind: "", name: "", search: "" }, true);
  enter(at("space").value);
});
at("leave").addEventListener("click", () => forget(""));
at("search").addEventListener("input", () => setView({ search: at("search").value }));
at("sort").addEventListener("change", () => setView({ sort: at("sort").value }));
at("contended").addEventListener("change", () => setView({ contended: at("contended").checked ? "1" : "" }));
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  drawState();
});
for (const id of ["home", "back"]) {
  at(id).addEventListener("click", (event) => {
    event.preventDefault();
    setView({ kind: "", name: "" }, true);
  });
}
// What the dialog asks about, whatever is shown behind it by the time of the answer.
let doomed = null;
let held = [];
at("force").addEventListener("click", () => {
  doomed = { kind: view().get("kind") || "lock", name: view().get("name") };
  at("sure-text").replaceChildren(own(doomed.name), ` in ${visible(namespace)}: the previous holder keeps running until it notices; its fencing token becomes stale.`);
  const each = new Map();
  for (const { holder } of held) each.set(holder, (each.get(holder) || 0) + 1);
  at("whom").replaceChildren(element("option", `all ${held.length}`, { value: "" }), ...[...each].map(([holder, n]) =>
    element("option", `${visible(holder)}${n > 1 ? ` (${n} times)` : ""}`, { value: holder })));
  at("who").hidden = held.length < 2;
  at("sure-problem").textContent = "";
  at("sure").showModal();
});
at("no").addEventListener("click", () => at("sure").close());
at("sure-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask(`${pathOf(doomed)}/force-release`, {
      method: "POST", body: JSON.stringify({ reason: at("reason").value, holder: at("whom").value }),
    });
    at("sure").close();
    at("reason").value = "";
    await drawAudit();
  } catch (error) {
    at("sure-problem").textContent = error.message;
  }
});
function step(by) {
  const links = [...at("rows").querySelectorAll("a")];
  const now = links.indexOf(document.activeElement);
  const next = links[now < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, now + by))];
  if (next) next.focus();
}
const STEPS = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !token || at("sure").open || at("keys").open) return;
  const typing = event.target.matches("input, select");
  const one = Boolean(view().get("name"));
  if (typing && event.target === at("search") && event.key === "ArrowDown") { event.preventDefault(); step(1); }
  if (typing) return;
  if (event.key === "?") at("keys").showModal();
  if (event.key === "p") at("pause").click();
  if (event.key === "f" && one && !at("force").hidden) { event.preventDefault(); at("force").click(); }
  if (event.key === "Escape" && one) setView({ kind: "", name: "" }, true);
  if (one) return;
  if (event.key === "/") { event.preventDefault(); at("search").focus(); }
  if (STEPS[event.key]) { event.preventDefault(); step(STEPS[event.key]); }
});
at("help").addEventListener("click", () => at("keys").showModal());
addEventListener("pointerdown", () => { pressed = true; });
for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => { pressed = false; });
addEventListener("popstate", draw);
draw();
