"use strict";
// The parts that every page has, drawing all of it, and following a run.

const CONNECTION_LOST = "orlomo watch does not answer; this is what it showed last. The page continues as soon as it answers again.";
class Refused extends Error {} // what orlomo watch says where it cannot show the run

const following = { tag: "", lost: false, patience: 20000 };

function header() {
  document.getElementById("title").textContent = document.title = page.title;
  const pill = document.getElementById("live"), [first] = page.runs, many = page.runs.length > 1;
  const running = page.runs.filter((run) => run.state.startsWith("running")), finished = page.runs.filter((run) => run.state.startsWith("finished"));
  const state = running.length ? "running" : finished.length === page.runs.length ? "finished" : "stopped";
  const several = running.length ? `${running.length} of ${page.runs.length} running` : `${finished.length} of ${page.runs.length} finished`;
  const text = following.lost ? "no connection" : many ? several : first.state;
  pill.dataset.state = following.lost ? "lost" : state;
  if (pill.textContent !== text) pill.textContent = text;
  const { epochs, wanted_epochs: wanted } = first.facts, share = many || !running.length || !wanted ? null : Math.min(1, (epochs || 0) / wanted);
  const progress = document.getElementById("progress");
  progress.hidden = share === null;
  progress.setAttribute("aria-valuenow", String(Math.round(100 * (share || 0))));
  progress.firstElementChild.style.width = percent(share || 0);
}

function say(notes) {
  const target = document.getElementById("state"), texts = notes.map((note) => element("p", note, { className: "alert" }));
  if (target.textContent !== notes.join("")) target.replaceChildren(...texts);
}

function facts() { // one run: its numbers; several: a table, in which one can be chosen
  if (page.runs.length > 1) return allRuns();
  const [run] = page.runs, f = run.facts, [row] = page.methods, value = page.target ? targetValue() : null;
  const shown = {
    ...run.measured, ...(value === null ? {} : { [`${run.clock} to ${targetText(value)}`]: targetCells(value)[0] }),
    "epochs": `${number(f.epochs)} of ${number(f.wanted_epochs)}`, "reports": number(f.reports), [run.clock]: number(f.seconds, 4),
    ...(row ? { "computing": percent(row.computing, 0) } : {}), ...(row && row.delays !== "-" ? { "delay 50% / 95% / max": row.delays } : {}),
  };
  const cells = Object.entries(shown).map(([text, value]) => element("div", [element("b", value), element("span", text)]));
  const title = `${run.method} on ${run.task.split("/").pop()}, ${run.membership}, ${run.engine}, ${run.state}`;
  const body = card("story", "facts", { title, wide: true });
  retitle("facts", title);
  document.getElementById("title-facts").prepend(swatch(run));
  body.replaceChildren(element("div", cells, { className: "facts" }));
}

function allRuns() {
  const measured = [...new Set(page.runs.flatMap((run) => Object.keys(run.measured)))];
  const body = card("settings", "facts", { title: "All runs", note: "A run's name shows it in detail above.", wide: true });
  const rows = page.runs.map((run, place) => {
    const button = element("button", [swatch(run), run.name], { type: "button", className: "quiet", onclick: () => { chooseRun(place); document.getElementById("detail").scrollIntoView(); } });
    return [button, run.method, run.state, ...measured.map((name) => run.measured[name] ?? "–"), number(run.facts.epochs), number(run.facts.reports), number(run.facts.seconds, 4)];
  });
  table(body, ["run", "method", "state", ...measured, "epochs", "reports", clock(page.runs)], rows, "All runs");
}

function chooseRun(place) {
  chosen = place;
  render();
}

function choice() {
  const target = document.getElementById("choice"), names = page.runs.map((run) => run.name);
  target.hidden = names.length < 2;
  if (target.hidden) return;
  const select = document.getElementById("run") || element("select", "", { id: "run", onchange: (event) => chooseRun(Number(event.target.value)) });
  if (!select.isConnected) target.replaceChildren(element("label", "In detail:", { htmlFor: "run" }), select);
  if (select.length !== names.length) select.replaceChildren(...names.map((name, place) => element("option", name, { value: place })));
  select.value = chosen;
}

function settings() {
  const body = card("settings", "settings", { wide: true });
  document.querySelector("#section-settings h2").textContent = page.runs.length > 1 ? "Runs and settings" : "Settings";
  for (const [place, run] of page.runs.entries()) {
    const text = body.querySelectorAll("pre")[place];
    if (text) text.textContent = run.config;
    else body.append(element("details", [element("summary", run.name), element("pre", run.config, { tabIndex: 0 })], { open: page.runs.length === 1 }));
  }
  const differing = Object.entries(page.differences);
  if (!differing.length) return;
  const made = table(card("differences", "differences", { wide: true }), ["setting", ...page.runs.map((run) => run.name)], differing.map(([name, values]) => [name, ...values]));
  for (const cell of made.querySelectorAll("td")) cell.className = "long";
}

function tidy() { // sections with nothing in them are left out, also of the navigation
  const shown = [...document.querySelectorAll("section[data-nav]")].filter((section) => {
    const needless = section.id === "section-methods" && page.runs.length === 1; // the numbers of one run are above
    section.hidden = needless || ![...section.querySelectorAll(".card")].some((made) => !made.hidden);
    return !section.hidden;
  });
  const nav = document.getElementById("nav"), wanted = shown.map((section) => section.id).join();
  if (nav.dataset.shown === wanted) return;
  nav.dataset.shown = wanted;
  nav.replaceChildren(...shown.map((section) => element("a", section.dataset.nav, { href: `#${section.id}` })));
  mark();
}

function mark() { // the section that is being read
  const top = document.getElementById("bar").offsetHeight + 40, links = [...document.querySelectorAll("#nav a")];
  const place = (link) => document.querySelector(link.hash).getBoundingClientRect().top;
  const ended = innerHeight + scrollY >= root.scrollHeight - 2; // the last sections cannot come to the top
  const asked = ended && links.find((link) => link.hash === location.hash && place(link) > 0);
  const passed = asked || (ended && links.at(-1)) || links.filter((link) => place(link) <= top).at(-1) || links[0];
  if (passed && !passed.ariaCurrent) document.getElementById("nav").scrollTo({ left: passed.offsetLeft - 60 });
  for (const link of links) link === passed ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
}

function render(bit = false) { // `bit`: what is in sight first, the rest bit by bit
  const run = page.runs[chosen] || page.runs[chosen = 0];
  header(); say(page.notes); choice();
  for (const spec of page.charts) declare(spec, run);
  for (const part of parts) part(run);
  facts(); settings(); tidy();
  const near = (spec) => {
    const { top, bottom } = cardOf(spec.name).getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  const shown = page.charts.filter((spec) => document.getElementById(spec.name));
  waiting = bit ? shown.filter((spec) => !near(spec)) : [];
  for (const spec of shown) if (!waiting.includes(spec)) declared(spec, run);
  clearTimeout(timer);
  drawWaiting();
}

let timer = 0;
let waiting = []; // charts that are out of sight: drawn one after the other, with pauses in which the page answers

function drawWaiting() {
  const begin = performance.now(), spec = waiting.shift();
  if (spec) declared(spec, page.runs[chosen]);
  if (waiting.length) timer = setTimeout(drawWaiting, performance.now() - begin);
  else root.dataset.drawn = String(Number(root.dataset.drawn || 0) + 1);
}

// Light and dark: as the system says, or as the button says.

function setTheme() {
  const dark = root.dataset.chosen ? root.dataset.chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const now = dark && !root.dataset.printing ? "dark" : "light", button = document.getElementById("theme");
  button.textContent = dark ? "Light" : "Dark";
  button.setAttribute("aria-label", `Show in ${dark ? "light" : "dark"} colours`);
  if (root.dataset.theme === now) return;
  root.dataset.theme = now;
  if (page.runs && root.dataset.drawn) render();
}

document.getElementById("theme").onclick = () => {
  root.dataset.chosen = root.dataset.theme === "dark" ? "light" : "dark";
  setTheme();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", setTheme);

// Printing: light, and every chart as wide as the paper.

function printing(on) {
  if (on) root.dataset.printing = "yes"; else delete root.dataset.printing;
  setTheme();
  while (waiting.length) drawWaiting();
  paint();
  for (const plot of document.querySelectorAll(".card:not([hidden]) > .js-plotly-plot")) {
    Plotly.relayout(plot, on ? { width: plot.clientWidth, height: plot.clientHeight } : { width: null, height: null, autosize: true });
  }
}
addEventListener("beforeprint", () => printing(true));
addEventListener("afterprint", () => printing(false));

let marking = 0;
addEventListener("scroll", () => { marking ||= requestAnimationFrame(() => { marking = 0; mark(); }); }, { passive: true });

async function ask() { // new data; null: nothing new
  const answer = await fetch(page.follow, { cache: "no-store", headers: { "If-None-Match": following.tag }, signal: AbortSignal.timeout(following.patience) });
  if (answer.status === 304) return null;
  const text = await answer.text();
  if (!answer.ok) throw new Refused(text);
  following.tag = answer.headers.get("ETag") || "";
  return JSON.parse(text);
}

async function follow() {
  clearTimeout(following.timer);
  if (following.asking) return;
  following.asking = true;
  const begin = performance.now();
  const found = await ask().catch((error) => error);
  following.asking = false;
  following.lost = found instanceof Error && !(found instanceof Refused);
  if (found instanceof Error) {
    if (page.runs) header();
    say([following.lost ? CONNECTION_LOST : found.message, ...(page.notes || [])]);
  } else if (found) {
    page = found;
    render(true);
  } else {
    header();
    say(page.notes);
  }
  following.timer = setTimeout(follow, Math.max(400, 2 * (performance.now() - begin)));
}

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  setTheme();
  document.head.append(element("script", await inflated(document.getElementById("plotly").textContent)));
  if (!page.follow) return render(true);
  addEventListener("online", follow);
  addEventListener("visibilitychange", () => { if (!document.hidden) follow(); });
  follow();
}

start();
