"use strict";
// Draws the runs in #data. Where that names an address to follow, asks it for new data once per second.

const LABELS = { seconds: "time", samples: "samples", epoch: "epochs" };
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const clock = (runs) => (new Set(runs.map((run) => run.clock)).size > 1 ? "seconds (virtual where simulated)" : runs[0].clock);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const against = {}; // by chart: what the curves are drawn against, where it is not time
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
const label = (text) => text.replaceAll("_", " ");

function colour(run) {
  return run.method === "local-sgd" ? variable("--fore") : page.colours.methods[run.method] || page.colours.other;
}

function legend(id, names) { // shown for several names; higher where they take more than one row
  const longest = Math.max(...names.map((name) => name.length)), each = 7 * longest + 60;
  const rows = Math.ceil(names.length / Math.max(1, Math.floor((document.getElementById(id).clientWidth - 70) / each)));
  return names.length > 1 ? { showlegend: true, tall: 20 * Math.max(0, rows - 1) } : {};
}

function sections() { // one per chart that is declared
  for (const chart of page.charts) {
    if (document.getElementById(chart.name) || !page.runs.some((run) => chart.name in run.charts)) continue;
    const lines = chart.kind === "lines";
    const parts = [element("h2", chart.title + (lines ? " against" : ""))];
    if (chart.note) parts.push(element("p", chart.note));
    if (lines) parts.push(element("div", Object.entries(LABELS).map(([by, text]) => element("button", text, { type: "button", value: by, onclick: () => { against[chart.name] = by; render(); } })), { className: "switch" }));
    parts.push(element("div", "", { id: chart.name, className: "chart" }));
    const section = element("section", parts, { className: chart.kind === "timeline" ? "wide" : "" });
    document.querySelector("main").insertBefore(section, document.getElementById(lines ? "choice" : "uses-section"));
  }
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
  const target = document.getElementById(id);
  if (!target.classList.contains("js-plotly-plot")) target.replaceChildren(); // the text that `nothing` put there
  target.style.height = more.height ? `${more.height}px` : "";
  if (more.tall) target.style.height = `${target.clientHeight + more.tall}px`; // a long legend
  Plotly.react(target, traces, layout, { responsive: true, displayModeBar: false });
}

const linked = new Set(); // the charts whose x axis is the time of the chosen run: they are zoomed together
const shownTime = { range: null }; // what they show of it; null: all

function linkRange(id) { // to be called after `draw`; whoever draws more when zoomed listens to "range" of the document
  if (linked.has(id)) return;
  linked.add(id);
  document.getElementById(id).on("plotly_relayout", (change) => {
    const both = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    const all = change["xaxis.autorange"] || change.autosize;
    if (linkRange.busy || (!all && both[0] === undefined)) return;
    setRange(change["xaxis.autorange"] ? null : both[0] === undefined ? shownTime.range : both.map(Number));
  });
}

async function setRange(range) { // null: all
  if (JSON.stringify(range) === JSON.stringify(shownTime.range)) return;
  shownTime.range = range;
  linkRange.busy = true; // what is set here is no new choice of the user
  await Promise.all([...linked].map((id) => Plotly.relayout(id, range ? { "xaxis.range": range } : { "xaxis.autorange": true })));
  linkRange.busy = false;
  document.dispatchEvent(new CustomEvent("range", { detail: range }));
}

function nothing(id, text) {
  linked.delete(id);
  const target = document.getElementById(id);
  Plotly.purge(target);
  target.classList.remove("js-plotly-plot"); // which plotly.js leaves there
  target.replaceChildren(element("p", text));
  target.style.height = "auto";
}

const KINDS = {}; // by a chart's kind: the function (chart, run) that draws it; the other files add theirs

function chart(one, run) { // a chart that shows one run
  const columns = run.charts[one.name], target = document.getElementById(one.name);
  if (target) target.parentElement.hidden = columns === undefined;
  if (typeof columns === "string") nothing(one.name, columns);
  else if (columns) KINDS[one.kind](one, run);
}

function table(id, headings, rows) {
  const row = (name, cells) => element("tr", cells.map((cell) => element(name, String(cell))));
  const target = document.getElementById(id), { scrollTop, scrollLeft } = target;
  target.replaceChildren(element("table", [element("thead", row("th", headings)), element("tbody", rows.map((cells) => row("td", cells)))]));
  Object.assign(target, { scrollTop, scrollLeft });
}

function render() {
  const run = page.runs[chosen];
  document.getElementById("title").textContent = document.title = page.title;
  say(page.notes);
  facts(); choice(); sections();
  for (const one of page.charts) one.kind === "lines" ? lines(one) : chart(one, run);
  workerTable(run);
  eventTable(run);
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

async function newData() {
  const answer = await fetch(page.follow, { cache: "no-cache" });
  return [answer.ok, await answer.text()];
}

async function follow() {
  setTimeout(follow, 1000);
  if (follow.asking) return;
  follow.asking = true;
  const [good, text] = await newData().catch(() => [false, "orlomo watch has ended; this is what it showed last."]);
  follow.asking = false;
  if (!good) return say([text]);
  if (text === follow.last) return say(page.notes);
  follow.last = text;
  page = JSON.parse(text);
  render();
}
