"use strict";
// The frame of the page: state, helpers and what every chart shares. The other scripts add themselves to it:
//   Object.assign(KINDS, { bars })   where bars = (spec, run) => ... draws a declared chart; of kind `lines`: of all runs
//   parts.push((run) => ...)         is called for new data, another run, another theme; `card` gives it a place
// Names and texts of runs are hostile: they become text (`element`), or go through `plain` where plotly reads HTML.

let page = JSON.parse(document.getElementById("data").textContent);
let chosen = page.first ?? 0; // the run that is shown in detail
const KINDS = {}, parts = [];
const LABELS = { seconds: "time", samples: "samples", epoch: "epochs" };
const against = {}; // by chart: what the curves are drawn against, where it is not time

const root = document.documentElement;
const variable = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const element = (name, content = "", attributes = {}) => {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...[].concat(content));
  return made;
};
const number = (value, digits = 3) => {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
};
const percent = (value, digits = 1) => (value === null || value === undefined ? "–" : (100 * value).toFixed(digits) + "%");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads some HTML in names
const label = (text) => text.replaceAll("_", " ");
const clock = (runs) => (new Set(runs.map((run) => run.clock)).size > 1 ? "seconds (virtual where simulated)" : runs[0].clock);

// Colours: one per method, everywhere the same; methods that have none of their own get those that are left.

const palette = () => page.colours[root.dataset.theme === "dark" ? "dark" : "light"];

function colour(run) {
  const { methods, other } = palette();
  if (methods[run.method]) return methods[run.method];
  const own = [...new Set(page.runs.map((one) => one.method))];
  const left = Object.keys(methods).filter((name) => !own.includes(name)).reverse();
  const place = own.filter((name) => !methods[name]).indexOf(run.method);
  return methods[left[place]] || other;
}

const swatch = (run) => {
  const made = element("span", "", { className: "swatch" });
  made.style.background = colour(run);
  return made;
};

// Cards: `card` makes one in a section, or finds it again, and returns its body.

function card(section, id, { title = "", note = "", wide = false, chart = false } = {}) {
  if (!document.getElementById(id)) {
    const heading = element("h3", title, { id: `title-${id}`, hidden: !title });
    const tools = element("div", "", { className: "tools", role: "group" });
    tools.setAttribute("aria-label", `${title}: controls`);
    const head = element("header", [element("div", [heading, element("p", note, { className: "note", hidden: !note })]), tools]);
    const body = element("div", "", { id, className: chart ? "chart" : "body" });
    const made = element(chart ? "figure" : "div", title || note ? [head, body] : body, { className: wide ? "card wide" : "card" });
    if (title) made.setAttribute("aria-labelledby", heading.id);
    if (chart) readable(made, body, tools);
    document.querySelector(`#section-${section} .cards`).append(made);
  }
  return document.getElementById(id);
}

const cardOf = (id) => document.getElementById(id).closest(".card");

function retitle(id, title, note = "") {
  const heading = document.getElementById(`title-${id}`), below = heading.nextElementSibling;
  Object.assign(heading, { textContent: title, hidden: !title });
  Object.assign(below, { textContent: note, hidden: !note });
}

function readable(made, body, tools) { // what a chart has for the keyboard and for screen readers
  const summary = element("p", "", { className: "unseen", id: `summary-${body.id}` });
  const data = element("div", "", { className: "data scroll", id: `data-${body.id}`, tabIndex: 0, hidden: true });
  const button = element("button", "Data", { type: "button", className: "quiet", title: "Show the data as a table" });
  button.onclick = () => { data.hidden = !data.hidden; fillData(body.id); };
  button.setAttribute("aria-controls", data.id);
  made.append(summary, data);
  body.tabIndex = 0;
  body.setAttribute("role", "group");
  body.setAttribute("aria-roledescription", "chart");
  body.setAttribute("aria-labelledby", `title-${body.id}`);
  body.setAttribute("aria-describedby", summary.id);
  zoomable(body, tools);
  tools.append(button);
  new ResizeObserver(() => fit(body)).observe(body);
}

function fit(target) { // a chart is as large as its place, whatever changes that
  const now = target._fullLayout;
  if (!now || !drawings[target.id] || !target.clientWidth || root.dataset.printing) return;
  if (Math.abs(now.width - target.clientWidth) > 1 || Math.abs(now.height - target.clientHeight) > 1) Plotly.Plots.resize(target);
}

function choices(id, options, value, choose) { // a switch above a chart; options: texts by value
  const tools = cardOf(id).querySelector(".tools"), found = tools.querySelector(".switch");
  const focused = found?.contains(document.activeElement) && document.activeElement.value;
  const made = element("div", Object.entries(options).map(([key, text]) => {
    const button = element("button", text, { type: "button", value: key, onclick: () => choose(key) });
    button.setAttribute("aria-pressed", String(key === value));
    return button;
  }), { className: "switch", role: "group" });
  if (found) found.replaceWith(made); else tools.prepend(made);
  if (focused) made.querySelector(`[value="${CSS.escape(focused)}"]`)?.focus();
}

function table(target, headings, rows, caption = "") { // cells are texts, numbers or elements
  const cell = (name, content) => element(name, content instanceof Node ? content : String(content));
  const first = (content) => Object.assign(cell("th", content), { scope: "row" });
  const heads = element("tr", headings.map((content) => Object.assign(cell("th", content), { scope: "col" })));
  const body = rows.map(([name, ...cells]) => element("tr", [first(name), ...cells.map((content) => cell("td", content))]));
  const made = element("table", [element("caption", caption, { className: "unseen" }), element("thead", heads), element("tbody", body)]);
  const place = target.classList.contains("scroll") ? target : target.querySelector(":scope > .scroll") || target.appendChild(element("div", "", { className: "scroll" }));
  const { scrollLeft, scrollTop } = place;
  place.replaceChildren(made);
  Object.assign(place, { scrollLeft, scrollTop });
  return made;
}

// Charts. `draw` takes plotly's traces and layout, and besides: `summary` (a text for screen readers), `rows` (a function
// that gives [headings, rows] for the data table), `height`, `tall` (pixels more, for a long legend).

const drawings = {}; // by chart: what its summary and its data table are made from

function draw(id, traces, more = {}) {
  const { summary, rows, height, tall, xaxis, yaxis, ...rest } = more;
  const fore = variable("--fore"), dim = variable("--dim"), line = variable("--line"), grid = variable("--grid");
  const axis = { gridcolor: grid, zerolinecolor: line, linecolor: line, tickfont: { color: dim }, automargin: true, title: { standoff: 8 } };
  const titled = (one) => (one?.title ? { ...one, title: { standoff: 8, font: { color: dim, size: 12 }, ...one.title } } : one);
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: fore, family: "system-ui, sans-serif", size: 12 },
    margin: { l: 50, r: 12, t: 10, b: 42 }, hovermode: "closest", uirevision: `${id}-${chosen}`, showlegend: false,
    hoverlabel: { bgcolor: variable("--panel"), bordercolor: line, font: { color: fore } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, maxheight: 40 + (tall || 0) }, ...rest,
    xaxis: { ...axis, ...titled(xaxis) }, yaxis: { ...axis, ...titled(yaxis) },
  };
  const target = document.getElementById(id);
  if (!target.classList.contains("js-plotly-plot")) target.replaceChildren(); // the text that `nothing` put there
  target.style.height = height ? `${height}px` : "";
  if (tall) target.style.height = `calc(var(--chart) + ${tall}px)`;
  drawings[id] = { traces, summary, rows, first: { x: { ...layout.xaxis }, y: { ...layout.yaxis } } }; // copies: plotly writes into them
  cardOf(id).classList.remove("empty");
  keepZoom(id, layout);
  Plotly.react(target, traces, layout, { displayModeBar: false, doubleClick: false });
  target.querySelector(".svg-container")?.setAttribute("aria-hidden", "true"); // its text is in the summary and the table
  document.getElementById(`summary-${id}`).textContent = summary || described(traces, layout);
  watchZoom(id);
  fillData(id);
}

function nothing(id, text) {
  const target = document.getElementById(id);
  Plotly.purge(target);
  target.classList.remove("js-plotly-plot"); // which plotly leaves there
  target.replaceChildren(element("p", text));
  target.style.height = "auto";
  cardOf(id).classList.add("empty");
  delete drawings[id];
  document.getElementById(`summary-${id}`).textContent = text;
  fillData(id);
}

function described(traces, layout) { // in words, where a chart has no better summary
  const name = (axis) => axis?.title?.text || "value";
  const texts = traces.filter((trace) => trace.y?.length).map((trace) => {
    const across = trace.orientation === "h", values = [...(across ? trace.x : trace.y)].filter((value) => typeof value === "number");
    if (!values.length) return "";
    const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    return `${trace.name || "values"}: ${plural(values.length, "point")}, ${number(low)} to ${number(high)}, the last ${number(values.at(-1))}`;
  }).filter(Boolean);
  const more = texts.length > 8 ? `; and ${texts.length - 8} more` : "";
  return `${name(layout.yaxis)} against ${name(layout.xaxis)}. ${texts.slice(0, 8).join("; ")}${more}.`;
}

const MOST_ROWS = 1000; // in a data table

function fillData(id) {
  const data = document.getElementById(`data-${id}`), button = cardOf(id).querySelector(`[aria-controls="data-${id}"]`), drawing = drawings[id];
  for (const tool of cardOf(id).querySelectorAll(".tools > :is(.quiet, .zoom)")) tool.hidden = !drawing;
  if (!drawing) data.hidden = true;
  button.setAttribute("aria-expanded", String(!data.hidden));
  if (data.hidden) return;
  const [headings, rows] = drawing.rows ? drawing.rows() : rowsOf(id, drawing.traces);
  table(data, headings, rows.slice(0, MOST_ROWS), document.getElementById(`title-${id}`).textContent);
  if (rows.length > MOST_ROWS) data.append(element("p", `${number(rows.length - MOST_ROWS)} more rows are not shown here; orlomo export writes all of the run's tables.`));
}

function rowsOf(id, traces) {
  const axes = document.getElementById(id).layout, name = (axis, other) => axis?.title?.text || other;
  const text = (value) => (typeof value === "number" ? number(value, 5) : value ?? "–");
  const rows = traces.flatMap((trace) => Array.from(trace.y || [], (y, i) => [trace.name || "", text(trace.x?.[i]), text(y)]));
  return [["series", name(axes.xaxis, "x"), name(axes.yaxis, "y")], rows];
}

function legend(id, names) { // shown for several names; higher where they take more than one row
  const longest = Math.max(...names.map((name) => name.length)), each = 7 * longest + 60;
  const rows = Math.ceil(names.length / Math.max(1, Math.floor((document.getElementById(id).clientWidth - 70) / each)));
  return names.length > 1 ? { showlegend: true, tall: 20 * Math.max(0, rows - 1) } : {};
}

const SECTIONS = { lines: "curves", timeline: "timelines", report_loss: "curves", eta: "weights", groups: "audit" };
const sectionOf = (spec) => spec.section ?? SECTIONS[spec.name] ?? SECTIONS[spec.kind] ?? "delays";

const found = (spec, run) => (spec.kind === "lines" ? page.runs : [run]).map((one) => one.charts[spec.name]).filter((columns) => columns !== undefined);

function declare(spec, run) { // a card for a chart of charts.py; all have one before the first is drawn, or it would not fit
  if (spec.kind === "timeline") return; // timelines.js draws all of them together
  if (!page.runs.some((one) => spec.name in one.charts)) return;
  card(sectionOf(spec), spec.name, { title: spec.title, note: spec.note, wide: spec.wide ?? spec.kind === "timeline", chart: true });
  cardOf(spec.name).hidden = !found(spec, run).length;
}

function declared(spec, run) {
  const columns = found(spec, run);
  if (!columns.length || spec.kind === "timeline") return;
  if (columns.every((one) => typeof one === "string")) nothing(spec.name, columns[0]);
  else KINDS[spec.kind](spec, run);
}
