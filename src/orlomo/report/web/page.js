"use strict";
// Draws the runs in #data; where that names an address to follow, asks it for news once a second.

const LABELS = { seconds: "time", samples: "samples", epoch: "epochs" };
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const clock = (runs) => (new Set(runs.map((run) => run.clock)).size > 1 ? "seconds (virtual where simulated)" : runs[0].clock);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const against = { accuracy: "seconds", loss: "seconds" };
let page = JSON.parse(document.getElementById("data").textContent);
let chosen = 0;

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const element = (name, content = "", attributes = {}) => {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...[].concat(content));
  return made;
};
const number = (value, digits = 3) =>
  value === null || value === undefined ? "–" : Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads some HTML in names
const percent = (value, digits = 1) => (value === null || value === undefined ? "–" : (100 * value).toFixed(digits) + "%");

function colour(run) {
  return run.method === "local-sgd" ? variable("--fore") : page.colours.methods[run.method] || page.colours.other;
}

function line(run) {
  const place = page.runs.filter((other) => other.method === run.method).indexOf(run);
  return { color: colour(run), dash: DASHES[place % DASHES.length], width: 2 + 1.5 * Math.floor(place / DASHES.length) };
}

function legend(id, runs) { // its height, in rows of as many names as fit
  const longest = Math.max(...runs.map((run) => run.name.length)), each = 7 * longest + 60;
  const rows = Math.ceil(runs.length / Math.max(1, Math.floor((document.getElementById(id).clientWidth - 70) / each)));
  return runs.length > 1 ? { showlegend: true, tall: 20 * Math.max(0, rows - 1) } : {};
}

function draw(id, traces, more = {}) {
  const fore = variable("--fore"), line = variable("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, title: { standoff: 8 } };
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: fore, family: "system-ui, sans-serif", size: 12 },
    margin: { l: 50, r: 12, t: 8, b: 42 }, hovermode: "closest", uirevision: `${id}-${chosen}-${against[id] || ""}`, showlegend: false,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, maxheight: 40 + (more.tall || 0) }, ...more,
    xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
  };
  const place = document.getElementById(id);
  if (!place.classList.contains("js-plotly-plot")) place.replaceChildren(); // what `nothing` said
  place.style.height = more.height ? `${more.height}px` : "";
  if (more.tall) place.style.height = `${place.clientHeight + more.tall}px`; // a long legend
  Plotly.react(place, traces, layout, { responsive: true, displayModeBar: false });
}

function nothing(id, text) {
  const place = document.getElementById(id);
  Plotly.purge(place);
  place.classList.remove("js-plotly-plot"); // which it keeps
  place.replaceChildren(element("p", text));
  place.style.height = "auto";
}

function logarithmic(columns) {
  const values = columns.flat().filter((value) => value > 0);
  if (columns.flat().some((value) => value !== null && value <= 0)) return {};
  const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
  return { type: "log", exponentformat: "power", dtick: decades > 1.5 ? 1 : "D2" };
}

function curve(id, name, label, scale, more = {}) {
  const by = against[id];
  const runs = page.runs.filter((run) => run.curves[name]);
  const none = page.runs.some((run) => Object.keys(run.curves).length) ? "This task has no accuracy." : "No evaluation yet.";
  document.querySelector(`[data-for=${id}]`).hidden = !runs.length;
  if (!runs.length) return nothing(id, none);
  const traces = runs.map((run) => ({
    type: "scatter", mode: run.curves[name].value.length < (runs.length < 9 ? 60 : 2) ? "lines+markers" : "lines", name: plain(run.name),
    x: run.curves[name][by], y: run.curves[name].value.map((value) => (value === null ? null : scale * value)),
    line: line(run), marker: { size: 5 },
  }));
  draw(id, traces, { xaxis: { title: { text: by === "seconds" ? clock(runs) : LABELS[by] } }, yaxis: { title: { text: label }, ...more }, ...legend(id, runs) });
}

function loss() {
  const evaluated = page.runs.filter((run) => run.curves.train_loss);
  const runs = page.runs.filter((run) => run.loss.loss.some((value) => value !== null));
  if (evaluated.length || !runs.length) return curve("loss", "train_loss", "training loss", 1, logarithmic(evaluated.map((run) => run.curves.train_loss.value)));
  document.querySelector("[data-for=loss]").hidden = true;
  draw("loss", runs.map((run) => ({ // no evaluation yet
    type: "scatter", mode: "markers", name: plain(run.name), x: run.loss.finish, y: run.loss.loss, marker: { color: colour(run), size: 4, opacity: 0.6 },
  })), { xaxis: { title: { text: clock(runs) } }, yaxis: { title: { text: "loss of each report" }, ...logarithmic(runs.map((run) => run.loss.loss)) }, ...legend("loss", runs) });
}

function switches() {
  for (const place of document.querySelectorAll(".switch")) {
    const id = place.dataset.for;
    if (!place.childElementCount) place.append(...Object.entries(LABELS).map(([by, label]) => element("button", label, { type: "button", value: by, onclick: () => { against[id] = by; render(); } })));
    for (const button of place.children) button.setAttribute("aria-pressed", String(against[id] === button.value));
  }
}

function facts() {
  document.getElementById("facts").replaceChildren(...page.runs.map((run) => {
    const swatch = element("span", "", { className: "swatch" });
    swatch.style.background = colour(run);
    const f = run.facts;
    const shown = {
      "test accuracy": percent(f.test_accuracy, 2), "training loss": number(f.train_loss), "epochs": `${number(f.epochs)} of ${number(f.wanted_epochs)}`,
      "reports": number(f.reports), [run.clock]: number(f.seconds, 4), "reports a second": number(f.reports_per_second),
      "mean delay": number(f.mean_delay), "longest delay": number(f.max_delay),
    };
    const cells = Object.entries(shown).map(([label, value]) => element("div", [element("b", value), element("span", label)]));
    const title = `${run.name}: ${run.method} on ${run.task}, ${plural(run.workers, "worker")}, ${run.engine}, ${run.state}`;
    return element("div", [element("h2", [swatch, title]), element("div", cells, { className: "facts" })], { className: "run" });
  }));
}

function choice() {
  const place = document.getElementById("choice");
  if (page.runs.length < 2 || place.childElementCount) return;
  const select = element("select", page.runs.map((run, i) => element("option", run.name, { value: i, selected: i === chosen })), { id: "run" });
  select.onchange = () => { chosen = Number(select.value); render(); };
  place.replaceChildren(element("label", ["Below: ", select], { htmlFor: "run" }));
}

function timeline(run) {
  const t = run.timeline;
  if (!t.worker.length) return nothing("timeline", "No report yet.");
  const workers = [...new Set(t.worker)].sort((a, b) => a - b), row = new Map(workers.map((worker, i) => [worker, i]));
  const roomy = t.worker.length / workers.length < document.getElementById("timeline").clientWidth / 12;
  const edge = roomy ? 0.7 : 0; // between rounds
  const states = page.colours.states, gone = states.absent;
  const traces = t.states.map((state, code) => {
    const places = t.state.flatMap((value, i) => (value === code ? [i] : []));
    return {
      type: "bar", orientation: "h", name: state, y: places.map((i) => row.get(t.worker[i])), base: places.map((i) => t.begin[i]),
      x: places.map((i) => t.end[i] - t.begin[i]), width: page.colours.heights[state], customdata: places.map((i) => [t.end[i], t.rounds[i], t.worker[i]]),
      marker: {
        // Not quite opaque: plotly.js would draw what is opaque a pixel wide at least, and narrow bars would hide others.
        color: state === "absent" ? "#00000000" : (states[state] || colour(run)) + (state === "lost work" ? "" : "fc"),
        line: state === "absent" ? { width: 1, color: gone } : { width: edge, color: variable("--panel") },
        pattern: { shape: { "lost work": "/", absent: "x" }[state] || "", fgcolor: gone, size: 6, solidity: 0.2 },
      },
      hovertemplate: `worker %{customdata[2]}: ${state}<br>%{base:.4g} to %{customdata[0]:.4g} (rounds: %{customdata[1]})<extra></extra>`,
    };
  }).filter((trace) => trace.y.length);
  const rows = workers.length, labelled = workers.filter((_, i) => i % Math.ceil(rows / 40) === 0);
  draw("timeline", traces, { barmode: "overlay", bargap: 0, height: Math.min(900, 110 + 22 * rows), dragmode: "zoom", ...legend("timeline", traces), showlegend: true,
    xaxis: { title: { text: run.clock } }, yaxis: { title: { text: "worker" }, autorange: "reversed", tickvals: labelled.map((worker) => row.get(worker)), ticktext: labelled } });
}

function delays(run) {
  const d = run.delays;
  if (!d.left.length) return nothing("delays", "No report yet.");
  draw("delays", [{
    type: "bar", x: d.left.map((left, i) => left + (d.width[i] - 1) / 2), y: d.count, width: d.width, marker: { color: colour(run) },
    customdata: d.left.map((left, i) => (d.width[i] === 1 ? left : `${left} to ${left + d.width[i] - 1}`)), hovertemplate: "delay %{customdata}: %{y} reports<extra></extra>",
  }], { bargap: 0.05, xaxis: { title: { text: "delay (reports)" }, tickformat: "d", dtick: d.left.at(-1) + d.width.at(-1) < 12 ? 1 : null }, yaxis: { title: { text: "reports" } } });
}

function dots(id, run, column, label, more = {}) {
  const c = run[column];
  if (!c.finish.length) return nothing(id, "No report yet.");
  draw(id, [{
    type: "scatter", mode: "markers", x: c.finish, y: c[column], marker: { color: colour(run), size: 4, opacity: 0.6 }, customdata: c.iteration, cliponaxis: false,
    hovertemplate: `iteration %{customdata}<br>${label} %{y}<extra></extra>`,
  }], { xaxis: { title: { text: run.clock } }, yaxis: { title: { text: label }, rangemode: "tozero", ...more } });
}

function groups(run) {
  const g = run.groups;
  if (typeof g === "string") return nothing("groups", g);
  if (!g.group.length) return nothing("groups", "No report yet.");
  draw("groups", [{
    type: "scatter", mode: "markers", x: g.iteration, y: g.group, customdata: g.iteration.map((_, i) => [g.worker[i], g.delay[i], g.behind[i], g.weight[i]]),
    marker: { color: g.weight, colorscale: "Cividis", reversescale: variable("--back") !== "#12161c", size: 7, showscale: true, colorbar: { title: { text: "weight", side: "right" }, thickness: 10 }, line: { width: 0.5, color: variable("--dim") } },
    hovertemplate: "iteration %{x}, worker %{customdata[0]}<br>group %{y}, %{customdata[2]} behind, delay %{customdata[1]}<br>weight %{customdata[3]:.3g}<extra></extra>",
  }], { xaxis: { title: { text: "iteration" }, range: [g.shown.iteration[0] - 1, g.shown.iteration[1] + 1] }, yaxis: { title: { text: "group" }, range: [g.shown.group[0] - 0.7, g.shown.group[1] + 0.7] } });
}

function table(id, headings, rows) {
  const row = (name, cells) => element("tr", cells.map((cell) => element(name, String(cell))));
  const place = document.getElementById(id), { scrollTop, scrollLeft } = place;
  place.replaceChildren(element("table", [element("thead", row("th", headings)), element("tbody", rows.map((cells) => row("td", cells)))]));
  Object.assign(place, { scrollTop, scrollLeft });
}

function render() {
  const run = page.runs[chosen];
  document.getElementById("title").textContent = document.title = page.title;
  say(page.notes);
  facts(); choice(); switches();
  curve("accuracy", "test_accuracy", "test accuracy (%)", 100);
  loss();
  timeline(run); delays(run); dots("delay", run, "delay", "delay"); dots("eta", run, "eta", "η"); groups(run);
  table("uses", ["worker", "rounds", "computing", "in transfer", "waiting", "absent", "mean delay", "longest delay"],
    run.uses.map((u) => [u.worker, u.rounds, percent(u.computing), percent(u.transfer), percent(u.waiting), percent(u.absent), number(u.mean_delay), u.max_delay]));
  const differing = Object.entries(page.differences);
  document.getElementById("differences-section").hidden = !differing.length;
  table("differences", ["setting", ...page.runs.map((r) => r.name)], differing.map(([name, values]) => [name, ...values]));
  const settings = document.getElementById("config");
  if (!settings.childElementCount) settings.append(...page.runs.map((r) => element("details", [element("summary", r.name), element("pre", r.config)], { open: page.runs.length === 1 })));
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

function say(notes) {
  document.getElementById("state").replaceChildren(...notes.map((note) => element("span", note + " ", { className: "alert" })));
}

async function news() {
  const answer = await fetch(page.follow, { cache: "no-cache" });
  return [answer.ok, await answer.text()];
}

async function follow() {
  setTimeout(follow, 1000);
  if (follow.asking) return;
  follow.asking = true;
  const [good, text] = await news().catch(() => [false, "orlomo watch has ended; this is what it showed last."]);
  follow.asking = false;
  if (!good) return say([text]);
  if (text === follow.last) return say(page.notes);
  follow.last = text;
  page = JSON.parse(text);
  render();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (page.runs) render(); });
if (page.follow) follow(); else render();
