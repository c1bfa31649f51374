"use strict";
// Asks /ui/state once a second while the page is visible, and shows what it says. Whatever comes
// from there is set as text, never as markup.

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const NONE = "–";

const page = {
  key: "", paused: false, pressed: false, timer: 0, asking: false, said: "",
  urls: new Map(), policy: "", reads: new Set(),
};
const $ = (id) => document.getElementById(id);

// Figures.

const is = (value) => value !== null && value !== undefined;
const grouped = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const count = (value) => (is(value) ? grouped(value, 0) : NONE);
const percent = (value) => (is(value) ? `${grouped(100 * value, 0)} %` : NONE);
const ms = (value) => (is(value) ? `${grouped(value, value < 100 ? 1 : 0)} ms` : NONE);
const seconds = (value) => (is(value) ? `${grouped(value, value < 10 ? 1 : 0)} s` : NONE);
const rate = (value) => (is(value) ? grouped(value, value < 100 ? 1 : 0) : NONE);

function clock(timeMs, nowMs) {
  const at = new Date(Date.now() - (nowMs - timeMs));
  return `${at.toLocaleTimeString("en-GB")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

const withoutScheme = (url) => url.replace("http://", "");

function nameOf(place) {
  if (!is(place)) return NONE;
  const named = (id) => (page.urls.has(id) ? `${id} · ${withoutScheme(page.urls.get(id))}` : `replica ${id}`);
  return place.filter(is).map(named).join(" → ");
}

// Elements.

function made(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function say(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}

function chip(state, text = state) {
  return made("span", text.replaceAll("_", " "), { class: "chip", "data-state": state });
}

// A table whose rows become cards on a narrow screen: each cell knows its column's name.
// columns: [name, what a row's cell holds (text or an element), whether that is words].
function heads(row, columns) {
  row.replaceChildren(
    ...columns.map(([name, , words]) => made("th", name, { role: "columnheader", scope: "col", class: words ? "words" : "" })),
  );
}

function cells(row, columns, item) {
  row.replaceChildren(
    ...columns.map(([name, of, words]) => {
      const cell = made("td", "", { role: "cell", "data-label": name, class: words ? "words" : "" });
      cell.append(of(item));
      return cell;
    }),
  );
}

// The replicas.

function stateOf(replica) {
  const box = document.createElement("div");
  box.append(chip(replica.state));
  if (replica.state !== "up" && replica.last_failure)
    box.append(made("small", `${replica.last_failure.error}; ${seconds(replica.last_failure.ago_s)} ago`));
  return box;
}

function gaugesOf(replica) {
  const age = seconds(replica.gauges_age_s);
  return replica.gauges_are_stale ? `${age}, stale` : age;
}

const REPLICA_COLUMNS = [
  ["Replica", (r) => `${r.id} · ${withoutScheme(r.url)}${r.role ? ` (${r.role})` : ""}`, true],
  ["State", stateOf, true],
  ["In flight", (r) => count(r.in_flight)],
  ["Held for it", (r) => count(r.held_requests)],
  ["Expected wait", (r) => ms(r.wait_ms)],
  ["Runs there", (r) => count(r.running_requests)],
  ["Queued there", (r) => count(r.waiting_requests)],
  ["KV use", (r) => percent(r.kv_use_fraction)],
  ["Gauges' age", gaugesOf],
  ["Hit rate, expected", (r) => percent(r.expected_cached_fraction)],
  ["by the engine", (r) => percent(r.reported_cached_fraction)],
  ["Requests", (r) => count(r.requests)],
  ["Share", (r) => percent(r.share_fraction)],
];

function showReplicas(state) {
  page.urls = new Map(state.replicas.map((replica) => [replica.id, replica.url]));
  const rows = new Map([...$("replicas").children].map((row) => [row.dataset.id, row]));
  $("replicas").replaceChildren(
    ...state.replicas.map((replica) => {
      const row = rows.get(String(replica.id)) ?? made("tr", "", { role: "row", "data-id": replica.id });
      cells(row, REPLICA_COLUMNS, replica);
      return row;
    }),
  );
}

// The decisions.

const CANDIDATE_COLUMNS = [
  ["Candidate", (c) => (c.is_chosen ? `✓ ${nameOf(c.place)}` : nameOf(c.place)), true],
  ["Expected wait", (c) => ms(c.wait_ms)],
  ["beyond the shortest", (c) => ms(c.longer_wait_ms)],
  ["Prefill", (c) => ms(c.prefill_ms)],
  ["Saved prefill", (c) => ms(c.saved_prefill_ms)],
  ["Wait and prefill", (c) => ms(c.first_token_ms)],
  ["Cached tokens", (c) => count(c.cached_tokens)],
  ["Requests", (c) => count(c.requests)],
  ["Pending tokens", (c) => count(c.pending_tokens)],
  ["Context tokens", (c) => count(c.context_tokens)],
  ["Queued there", (c) => count(c.waiting_requests)],
  ["Runs there", (c) => count(c.running_requests)],
  ["KV use", (c) => percent(c.kv_use_fraction)],
  ["Iteration", (c) => ms(c.iteration_ms)],
];

// They come as columns, an entry a candidate in each.
function candidatesOf({ candidates }) {
  if (!candidates) return [];
  const columns = Object.entries(candidates).filter(([, column]) => Array.isArray(column));
  return candidates.place.map((_, number) => ({
    is_chosen: number === candidates.chosen,
    ...Object.fromEntries(columns.map(([name, column]) => [name, column[number]])),
  }));
}

function statusOf(decision) {
  const { kind, followed_by: next, result } = decision;
  if (is(next)) return chip("over", `${kind}, then ${typeof next === "number" ? `#${next}` : next}`);
  if (kind !== "sent") return chip(kind);
  return chip(result ? result.status : "in flight");
}

// Of each signal that a policy may read, what it says of a candidate. One that prices the work sees
// the prefix in that.
const WORDS = {
  work: (c) => (c.saved_prefill_ms > 0 ? `its prefix saves ${ms(c.saved_prefill_ms)} of prefill` : "no prefill is saved there"),
  prefix: (c) => (c.cached_tokens > 0 ? `${count(c.cached_tokens)} tokens of its prompt are cached there` : "nothing of its prompt is cached there"),
  queue: (c) => (c.longer_wait_ms > 0 ? `waiting there costs ${ms(c.longer_wait_ms)} more than the shortest wait` : "nobody has a shorter wait"),
  requests: (c) => `requests there: ${count(c.requests)}`,
  pending: (c) => `prompt tokens to be computed there: ${count(c.pending_tokens)}`,
  context: (c) => `context tokens there: ${count(c.context_tokens)}`,
  engine: (c) => `its engine told of ${count(c.running_requests)} running and ${count(c.waiting_requests)} queued`,
  decode: (c) => `an iteration there takes ${ms(c.iteration_ms)}`,
};

// Why, in a sentence, out of what the policy saw of the one that was chosen.
function becauseOf(decision) {
  const chosen = candidatesOf(decision).find((candidate) => candidate.is_chosen);
  if (!chosen) return decision.kind === "unplaced" ? "It got no replica." : "";
  const seen = Object.keys(WORDS).filter((signal) => page.reads.has(signal) && !(signal === "prefix" && page.reads.has("work")));
  if (seen.length === 0) return `${page.policy} looks at no figure of the candidates; its reason: ${decision.reason}.`;
  return `${seen.map((signal) => WORDS[signal](chosen)).join(", ")}.`.replace(/^./, (first) => first.toUpperCase());
}

function facts(pairs) {
  const list = document.createElement("dl");
  for (const [name, value] of pairs) {
    const box = document.createElement("div");
    box.append(made("dt", name), made("dd", value));
    list.append(box);
  }
  return list;
}

function inside(decision) {
  const box = made("div", "", { class: "inside" });
  const { result } = decision;
  const usage = result ? result.usage : {};
  box.append(
    made("p", becauseOf(decision)),
    facts([
      ["Path", decision.path],
      ["Prompt tokens, estimated", count(decision.prompt_tokens)],
      ["Answer tokens, at most", count(decision.output_tokens)],
      ["Tokens taken to be cached", count(decision.cached_tokens)],
      ["Session, hashed", decision.session ?? NONE],
      ["Its last replica", nameOf(decision.home)],
      ["Attempt", count(decision.attempt)],
      ["Waited here", ms(decision.waited_ms)],
      ["Expected prefill", ms(decision.prefill_ms)],
      ["Wait as it came to be", ms(result ? result.realised_wait_ms : null)],
      ["Tokens by the engine: prompt, cached, answer", [usage.prompt_tokens, usage.cached_tokens, usage.output_tokens].map(count).join(", ")],
      ["HTTP", result && is(result.http_status) ? String(result.http_status) : NONE],
      ["Error", (result && result.error) || NONE],
    ]),
  );
  const candidates = candidatesOf(decision);
  if (candidates.length === 0) return box;
  const inAll = decision.candidates.in_all;
  const title = candidates.length < inAll
    ? `${candidates.length} of ${inAll} candidates: the one chosen, the shortest wait, the longest prefix`
    : `${inAll} candidates`;
  const table = made("table", "", { class: "cards", role: "table", "aria-label": title });
  const head = made("thead", "", { role: "rowgroup" });
  const body = made("tbody", "", { role: "rowgroup" });
  const row = made("tr", "", { role: "row" });
  heads(row, CANDIDATE_COLUMNS);
  head.append(row);
  for (const candidate of candidates) {
    const line = made("tr", "", { role: "row", class: candidate.is_chosen ? "chosen" : "" });
    cells(line, CANDIDATE_COLUMNS, candidate);
    body.append(line);
  }
  table.append(head, body);
  box.append(made("p", title, { class: "quiet" }), table);
  return box;
}

function decisionOf(decision, nowMs) {
  const item = document.createElement("details");
  const summary = document.createElement("summary");
  summary.append(
    made("span", clock(decision.time_ms, nowMs)),
    made("span", is(decision.sequence) ? `#${decision.sequence}` : NONE),
    made("span", nameOf(decision.place)),
    made("span", decision.reason),
    made("span", `wait ${ms(decision.wait_ms)}`),
    made("span", `TTFT ${ms(decision.ttft_ms)}`),
    statusOf(decision),
  );
  item.append(summary);
  item.addEventListener("toggle", () => {
    if (item.open && item.children.length === 1) item.append(inside(decision));
  });
  return item;
}

// Nothing moves away under a pointer or a keyboard's focus, nor while something is read.
function isLookedInto(list) {
  const hovers = matchMedia("(hover: hover)").matches && list.matches(":hover");
  return page.pressed || hovers || list.querySelector("details[open], summary:focus-visible") !== null;
}

function showDecisions(state) {
  page.policy = state.policy;
  page.reads = new Set(state.reads);
  const list = $("decisions");
  if (isLookedInto(list)) return;
  list.replaceChildren(...state.decisions.map((decision) => decisionOf(decision, state.now_ms)));
  if (state.decisions.length === 0) list.append(made("p", "None yet since this page is open."));
}

// The headline.

const STANDINGS = { good: "", reduced: "", down: "No request can be answered now: " };

function showHeadline(state) {
  const of = `${state.ready} of ${state.replicas.length} replicas ready`;
  say("verdict", `${STANDINGS[state.standing]}${of}`);
  $("verdict").dataset.standing = state.standing;
  if (page.said !== of) say("said", of); // a screen reader hears of changes only
  page.said = of;
  say("version", state.version);
  say("policy", state.policy);
  say("rate", rate(state.requests_per_s));
  say("p50", ms(state.ttft.p50_ms));
  say("p99", ms(state.ttft.p99_ms));
  say("expected", percent(state.expected_cached_fraction));
  say("reported", percent(state.reported_cached_fraction));
  say("held", count(state.held_requests));
  say(
    "window",
    `Of the last ${seconds(state.window_s)}, as far as somebody has looked; TTFT of ${count(state.ttft.count)} streams in ${seconds(state.ttft.window_s)}.` +
      ` Refused since the start: ${count(state.refused_requests)}. The policy looks at: ${state.reads.join(", ")}.`,
  );
}

function showFirstTokens(state) {
  const points = [...state.ttft.seconds].sort((a, b) => b[0] - a[0]);
  const most = Math.max(1, ...points.map(([, , longest]) => longest));
  const line = (which) => points.map((point) => `${(600 * (60 - point[0])) / 60},${(78 - (76 * point[which]) / most).toFixed(1)}`).join(" ");
  $("median").setAttribute("points", line(1));
  $("longest").setAttribute("points", line(2));
  const said = points.length
    ? `Of each second of the last minute: the median (line) and the longest (dashes); ${ms(most)} at the most.`
    : "No stream yet: only requests with \"stream\": true have a time to first token.";
  say("spark-said", said);
  $("spark").setAttribute("aria-label", said);
}

function show(state) {
  showHeadline(state);
  showFirstTokens(state);
  showReplicas(state);
  showDecisions(state);
  document.body.dataset.shown = state.now_ms;
}

// Asking.

function complain(text) {
  $("notice").hidden = !text;
  say("notice", text);
}

async function ask() {
  const headers = page.key ? { authorization: `Bearer ${page.key}` } : {};
  const answer = await fetch("/ui/state", {
    headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401) {
    $("key-form").hidden = false;
    say("verdict", "This router wants a key");
    complain(page.key ? "The router does not know this key." : "");
    page.key = "";
    return false;
  }
  if (!answer.ok) throw new Error(`it answered with ${answer.status}`);
  show(await answer.json());
  complain("");
  return true;
}

async function turn() {
  clearTimeout(page.timer);
  if (page.asking || page.paused || document.hidden) return;
  page.asking = true;
  let goesOn = true;
  try {
    goesOn = await ask();
  } catch (error) {
    $("verdict").dataset.standing = "lost";
    complain(`The router was not heard: ${error.message}. What stands below is old; it is asked again.`);
  }
  page.asking = false;
  if (goesOn) page.timer = setTimeout(turn, EVERY_MS);
}

$("pause").addEventListener("click", () => {
  page.paused = !page.paused;
  $("pause").setAttribute("aria-pressed", String(page.paused));
  turn();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  page.key = $("key").value.trim();
  $("key").value = "";
  $("key-form").hidden = true;
  turn();
});
$("decisions").addEventListener("pointerdown", () => { page.pressed = true; });
for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => { page.pressed = false; });
document.addEventListener("visibilitychange", turn);
heads($("replica-heads"), REPLICA_COLUMNS);
turn();
