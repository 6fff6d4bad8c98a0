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

function line(run, number) { // `number`: of this curve among those of its method
  return { color: colour(run), dash: DASHES[number % DASHES.length], width: 2 + 1.5 * Math.floor(number / DASHES.length) };
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

function nothing(id, text) {
  const target = document.getElementById(id);
  Plotly.purge(target);
  target.classList.remove("js-plotly-plot"); // which plotly.js leaves there
  target.replaceChildren(element("p", text));
  target.style.height = "auto";
}

function logarithmic(columns) {
  const values = columns.flat().filter((value) => value > 0);
  if (columns.flat().some((value) => value !== null && value <= 0)) return {};
  const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
  return { type: "log", exponentformat: "power", dtick: decades > 1.5 ? 1 : "D2" };
}

function lines(chart) {
  const id = chart.name, by = against[id] || chart.x, buttons = document.getElementById(id).previousElementSibling;
  const drawn = page.runs.filter((run) => typeof run.charts[id] === "object");
  buttons.hidden = !drawn.length;
  for (const button of buttons.children) button.setAttribute("aria-pressed", String(by === button.value));
  if (!drawn.length) return nothing(id, page.runs.map((run) => run.charts[id]).find((text) => text) || "");
  const seen = {}, curves = drawn.flatMap((run) => Object.entries(run.charts[id]).map(([text, curve], _, own) => {
    const number = seen[run.method] = (seen[run.method] ?? -1) + 1;
    return { run, curve, number, name: drawn.length === 1 ? text : run.name + (own.length > 1 ? `, ${text}` : "") };
  }));
  const traces = curves.map(({ run, curve, number, name }) => ({
    type: "scatter", mode: curve[chart.y].length < (curves.length < 9 ? 60 : 2) ? "lines+markers" : "lines", name: plain(name),
    x: curve[by], y: curve[chart.y], line: line(run, number), marker: { size: 5 },
  }));
  const axis = chart.log ? logarithmic(traces.map((trace) => trace.y)) : {};
  draw(id, traces, { xaxis: { title: { text: by === "seconds" ? clock(drawn) : LABELS[by] } }, yaxis: { title: { text: plain(chart.y_label) }, ...axis }, ...legend(id, curves.map((one) => one.name)) });
}

function facts() {
  document.getElementById("facts").replaceChildren(...page.runs.map((run) => {
    const swatch = element("span", "", { className: "swatch" });
    swatch.style.background = colour(run);
    const f = run.facts;
    const shown = {
      ...run.measured, "epochs": `${number(f.epochs)} of ${number(f.wanted_epochs)}`,
      "reports": number(f.reports), [run.clock]: number(f.seconds, 4), "reports per second": number(f.reports_per_second),
      "mean delay": number(f.mean_delay), "longest delay": number(f.max_delay),
    };
    const cells = Object.entries(shown).map(([label, value]) => element("div", [element("b", value), element("span", label)]));
    const title = `${run.name}: ${run.method} on ${run.task}, ${plural(run.workers, "worker")}, ${run.engine}, ${run.state}`;
    return element("div", [element("h2", [swatch, title]), element("div", cells, { className: "facts" })], { className: "run" });
  }));
}

function choice() {
  const target = document.getElementById("choice");
  if (page.runs.length < 2 || target.childElementCount) return;
  const select = element("select", page.runs.map((run, i) => element("option", run.name, { value: i, selected: i === chosen })), { id: "run" });
  select.onchange = () => { chosen = Number(select.value); render(); };
  target.replaceChildren(element("label", ["Below: ", select], { htmlFor: "run" }));
}

function timeline(chart, run) {
  const id = chart.name, t = run.charts[id];
  const workers = [...new Set(t.worker)].sort((a, b) => a - b), row = new Map(workers.map((worker, i) => [worker, i]));
  const roomy = t.worker.length / workers.length < document.getElementById(id).clientWidth / 12;
  const edge = roomy ? 0.7 : 0; // a gap between rounds, where there is space for it
  const states = page.colours.states, gone = states.absent;
  const traces = t.states.map((state, code) => {
    const positions = t.state.flatMap((value, i) => (value === code ? [i] : []));
    return {
      type: "bar", orientation: "h", name: state, y: positions.map((i) => row.get(t.worker[i])), base: positions.map((i) => t.begin[i]),
      x: positions.map((i) => t.end[i] - t.begin[i]), width: page.colours.heights[state], customdata: positions.map((i) => [t.end[i], t.rounds[i], t.worker[i]]),
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
  draw(id, traces, { barmode: "overlay", bargap: 0, height: Math.min(900, 110 + 22 * rows), dragmode: "zoom", ...legend(id, traces.map((trace) => trace.name)), showlegend: true,
    xaxis: { title: { text: run.clock } }, yaxis: { title: { text: chart.y_label }, autorange: "reversed", tickvals: labelled.map((worker) => row.get(worker)), ticktext: labelled } });
}

function bars(chart, run) {
  const c = run.charts[chart.name], left = c[chart.x], x = chart.x_label || run.clock;
  draw(chart.name, [{
    type: "bar", x: left.map((first, i) => first + (c.width[i] - 1) / 2), y: c[chart.y], width: c.width, marker: { color: colour(run) },
    customdata: left.map((first, i) => (c.width[i] === 1 ? first : `${first} to ${first + c.width[i] - 1}`)), hovertemplate: `${plain(x)} %{customdata}: %{y} ${plain(chart.y_label)}<extra></extra>`,
  }], { bargap: 0.05, xaxis: { title: { text: plain(x) }, tickformat: "d", dtick: left.at(-1) + c.width.at(-1) < 12 ? 1 : null }, yaxis: { title: { text: plain(chart.y_label) } } });
}

function dots(chart, run) {
  const c = run.charts[chart.name], x = c[chart.x], y = c[chart.y], shown = c.shown;
  const named = Object.keys(c).filter((name) => name !== "shown" && (name !== chart.x || chart.x_label)); // the time is on the axis
  const scale = { color: c[chart.colour], colorscale: "Cividis", reversescale: variable("--back") !== "#12161c", size: 7, showscale: true, colorbar: { title: { text: chart.colour, side: "right" }, thickness: 10 }, line: { width: 0.5, color: variable("--dim") } };
  const range = (name, edge) => (shown ? { range: [shown[name][0] - edge, shown[name][1] + edge] } : {});
  draw(chart.name, [{
    type: "scatter", mode: "markers", x, y, marker: chart.colour ? scale : { color: colour(run), size: 4, opacity: 0.6 }, cliponaxis: Boolean(shown),
    text: x.map((_, i) => named.map((name) => `${label(name)} ${number(c[name][i])}`).join("<br>")), hovertemplate: "%{text}<extra></extra>",
  }], { xaxis: { title: { text: plain(chart.x_label || run.clock) }, ...range(chart.x, 1) }, yaxis: { title: { text: plain(chart.y_label) }, ...(chart.log ? logarithmic([y]) : { rangemode: "tozero" }), ...range(chart.y, 0.7) } });
}

const KINDS = { bars, dots, timeline };

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
  const own = run.uses.some((u) => u.data !== undefined); // workers with data of their own
  table("uses", ["worker", ...(own ? ["data", "samples", "epochs of them"] : []), "rounds", "computing", "in transfer", "waiting", "absent", "mean delay", "longest delay"],
    run.uses.map((u) => [u.worker, ...(own ? [u.data, u.samples, number(u.epochs)] : []), u.rounds, percent(u.computing), percent(u.transfer), percent(u.waiting), percent(u.absent), number(u.mean_delay), u.max_delay]));
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

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (page.runs) render(); });
if (page.follow) follow(); else render();
