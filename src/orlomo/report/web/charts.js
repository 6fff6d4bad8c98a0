"use strict";
// The charts of one run: how its delays, weights and losses are distributed.

function logarithmic(columns) {
  const values = columns.flat().filter((value) => value > 0);
  if (columns.flat().some((value) => value !== null && value <= 0)) return {};
  const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
  return { type: "log", exponentformat: "power", dtick: decades > 1.5 ? 1 : "D2" };
}

{ // What follows is for this file alone.

const FAR = 3; // an axis ends where the largest value is so many times above the rest, and says what lies beyond
const ofWorker = {}; // by chart: the worker that is shown alone

const sum = (column) => column.reduce((a, b) => a + b, 0);
const most = (column) => column.reduce((a, b) => Math.max(a, b), 0);
const faint = (shade, opacity) => shade + Math.round(255 * opacity).toString(16).padStart(2, "0");
const thickness = 9; // of marks, in pixels

const edges = (c, i) => [c.bin[i] * c.width, Math.min((c.bin[i] + 1) * c.width, c.end)]; // of a bin of time

// The outline of an area between two columns of steps: one polygon for each stretch of bins without a gap.
function steps(c, low, high) {
  const x = [], y = [];
  for (let first = 0; first < c.bin.length; ) {
    let last = first;
    while (c.bin[last + 1] === c.bin[last] + 1) last += 1;
    for (let i = first; i <= last; i += 1) { x.push(...edges(c, i)); y.push(high[i], high[i]); }
    for (let i = last; i >= first; i -= 1) { x.push(...edges(c, i).reverse()); y.push(low[i], low[i]); }
    x.push(null); y.push(null);
    first = last + 1;
  }
  return { x, y };
}

function stepLine(c, values) { // a line that is level in each bin
  const x = [], y = [];
  c.bin.forEach((bin, i) => {
    if (i && bin !== c.bin[i - 1] + 1) { x.push(null); y.push(null); }
    x.push(...edges(c, i)); y.push(values[i], values[i]);
  });
  return { x, y };
}

const middles = (c) => c.bin.map((_, i) => sum(edges(c, i)) / 2);
const when = (c, run, first, last = first) => `${number(edges(c, first)[0], 4)} to ${number(edges(c, last)[1], 4)} ${run.clock}`;

// The traces of values far above: dots, and triangles at the end of the axis for those beyond it.
function far(positions, values, top, shade, name, texts, across = false) {
  const trace = (chosen, symbol, size) => {
    const at = chosen.map((i) => Math.min(values[i], top)), where = chosen.map((i) => positions[i]);
    return { type: "scatter", mode: "markers", name, x: across ? at : where, y: across ? where : at, text: chosen.map((i) => texts[i]), hovertemplate: "%{text}<extra></extra>",
      marker: { color: shade, size, symbol }, cliponaxis: false, showlegend: false };
  };
  const inside = [], beyond = [];
  positions.forEach((_, i) => { if (values[i] !== null) (values[i] > top ? beyond : inside).push(i); });
  const found = [trace(inside, "circle", 5), trace(beyond, across ? "triangle-right" : "triangle-up", 9)].filter((one) => one.x.length);
  if (found.length) found[0].showlegend = true;
  return found;
}

function bands(chart, run) {
  const id = chart.name, every = run.charts[id], own = every.workers || {}, names = Object.keys(own);
  const alone = names.includes(ofWorker[id]) ? ofWorker[id] : "", c = alone ? { ...own[alone], end: every.end } : every, shade = colour(run);
  workerChoice(chart, run, names, alone);
  const several = sum(c.outliers), largest = most(c.largest), top = chart.log ? Infinity : largest > FAR * most(c.high) ? 2.2 * Math.max(1, most(c.high)) : Infinity;
  const texts = c.bin.map((_, i) => `${when(c, run, i)}: ${plural(c.number[i], "report")}<br>median ${number(c.middle[i])}, 5% to 95%: ${number(c.low[i])} to ${number(c.high[i])}<br>` +
    `largest ${number(c.largest[i])}` + (c.outliers[i] ? `, ${plural(c.outliers[i], "report")} above twice the 95%` : ""));
  const each = (every.each?.finish || []).flatMap((_, i) => (!alone || String(every.each.worker[i]) === alone ? [i] : []));
  const who = alone ? `worker ${alone}, ` : "", line = { color: shade, width: 0 };
  const traces = [
    ...(alone ? [{ type: "scatter", mode: "none", ...steps(every, every.low, every.high), fill: "toself", fillcolor: faint(variable("--dim"), 0.2), line, name: "all workers, 5% to 95%", hoverinfo: "skip" }] : []),
    { type: "scatter", mode: "none", ...steps(c, c.low, c.high), fill: "toself", fillcolor: faint(shade, 0.28), line, name: `${who}5% to 95%`, hoverinfo: "skip" },
    { type: "scatter", mode: "lines", ...stepLine(c, c.middle), line: { color: shade, width: 2 }, name: `${who}median`, hoverinfo: "skip" },
    ...(each.length ? [{ type: "scatter", mode: "markers", x: each.map((i) => every.each.finish[i]), y: each.map((i) => every.each[chart.y][i]), marker: { color: shade, size: 4, opacity: 0.55 }, name: "reports", hoverinfo: "skip" }] : []),
    { type: "scatter", mode: "markers", x: middles(c), y: c.middle, marker: { opacity: 0 }, text: texts, hovertemplate: "%{text}<extra></extra>", showlegend: false },
    ...far(middles(c), c.largest.map((value, i) => (c.outliers[i] ? value : null)), top, shade, `largest, where above twice the 95% (${plural(several, "report")}, up to ${number(largest)})`, texts),
  ];
  draw(id, traces, { hovermode: "x", hoverdistance: 50, ...legend(id, traces.filter((trace) => trace.showlegend !== false).map((trace) => trace.name)), showlegend: true,
    xaxis: { title: { text: plain(chart.x_label || run.clock) } },
    yaxis: { title: { text: plain(chart.y_label) + (top < Infinity ? " (cut: ▲ lie higher)" : "") }, fixedrange: true, ...(chart.log ? logarithmic([c.low, c.high]) : top < Infinity ? { range: [0, 1.06 * top] } : { rangemode: "tozero" }) } });
  linkRange(id);
}

function workerChoice(chart, run, names, alone) { // above the chart
  const tools = cardOf(chart.name).querySelector(".tools"), id = `${chart.name}-worker`;
  if (!names.length) return document.getElementById(id)?.remove();
  const select = document.getElementById(id) || element("select", "", { id, ariaLabel: `${chart.title}: worker` });
  if (!select.isConnected) tools.prepend(select);
  const options = [["", "all workers"], ...names.map((name) => [name, `worker ${name}`])];
  if ([...select.options].map((one) => one.value).join() !== options.map(([value]) => value).join()) select.replaceChildren(...options.map(([value, text]) => element("option", text, { value })));
  select.value = alone;
  select.onchange = () => { ofWorker[chart.name] = select.value; declared(chart, page.runs[chosen]); };
}

function bars(chart, run) {
  const c = run.charts[chart.name], x = chart.x_label || run.clock, width = c.width, end = c.left.at(-1) + width, shade = colour(run);
  const total = sum(c.counts) + c.above, share = (count) => `${number(count)} of ${plural(total, "report")} (${percent(count / total, 2)})`;
  const traces = [{
    type: "bar", x: c.left.map((first) => first + (width - 1) / 2), y: c.counts, width: c.left.map(() => width), marker: { color: shade, line: { width: c.left.length > 40 ? 0 : 1, color: variable("--panel") } },
    text: c.left.map((first, i) => `delay ${width === 1 ? first : `${first} to ${first + width - 1}`}: ${share(c.counts[i])}`), textposition: "none", hovertemplate: "%{text}<extra></extra>",
  }];
  const more = {};
  if (c.above) { // one bar apart from the others, which has no place on the axis
    const where = end + Math.max(2, c.left.length / 10) * width;
    traces.push({ type: "bar", x: [where], y: [c.above], width: [Math.max(1, c.left.length / 20) * width], marker: { color: "#00000000", line: { width: 1, color: shade }, pattern: { shape: "/", fgcolor: shade, solidity: 0.3 } },
      text: [`${share(c.above)} above ${number(c.limit)}, the largest ${number(c.largest)}`], textposition: "none", hovertemplate: "%{text}<extra></extra>" });
    more.annotations = [{ x: 1, xref: "paper", xanchor: "right", y: 0.96, yref: "paper", text: plain(c.rest), showarrow: false, font: { size: 13 } }];
  }
  const ticks = c.above ? { tickvals: ticksTo(c.limit), range: [-0.5, end + (Math.max(2, c.left.length / 10) * 1.6) * width] } : { dtick: end < 12 ? 1 : null };
  draw(chart.name, traces, { ...more, bargap: 0, xaxis: { title: { text: plain(x) }, tickformat: "d", ...ticks }, yaxis: { title: { text: plain(chart.y_label) }, fixedrange: true } });
}

function ticksTo(end) { // whole numbers in steps of 1, 2 or 5 times a power of ten
  const rough = Math.max(1, end / 8), power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

function rows(chart, run) {
  const c = run.charts[chart.name], shade = colour(run), y = c.worker.map((_, i) => i);
  const top = most(c.largest) > FAR * most(c.high) ? 1.6 * Math.max(1, most(c.high)) : Infinity;
  const texts = c.worker.map((name, i) => `${plain(name)}: ${plural(c.number[i], "report")}<br>median ${number(c.middle[i])}, 5% to 95%: ${number(c.low[i])} to ${number(c.high[i])}, largest ${number(c.largest[i])}`);
  const common = { text: texts, hovertemplate: "%{text}<extra></extra>" };
  const traces = [
    { type: "bar", orientation: "h", y, base: c.low.map((low) => low - 0.2), x: c.high.map((high, i) => high - c.low[i] + 0.4), width: 0.6, marker: { color: faint(shade, 0.35) }, name: "5% to 95%", textposition: "none", ...common },
    { type: "scatter", mode: "markers", x: c.middle, y, marker: { symbol: "line-ns", size: thickness, line: { width: 3, color: shade } }, name: "median", ...common },
    ...far(y, c.largest, top, shade, "largest", texts, true),
  ];
  draw(chart.name, traces, { height: 96 + 21 * y.length, showlegend: true, bargap: 0,
    xaxis: { title: { text: plain(chart.x_label) + (top < Infinity ? ` (cut: ▶ lie further out, up to ${number(most(c.largest))})` : "") }, ...(top < Infinity ? { range: [-0.5, 1.04 * top] } : { rangemode: "tozero" }) },
    yaxis: { autorange: "reversed", fixedrange: true, tickvals: y, ticktext: c.worker.map(plain), showgrid: false } });
}

function weights(chart, run) {
  const c = run.charts[chart.name], shade = colour(run), last = c.last.at(-1), far = last > 60;
  const at = (delay) => (far ? Math.log10(1 + delay) : delay), x = c.delay.map((delay, i) => at((delay + c.last[i]) / 2));
  const largest = Math.sqrt(most(c.number)), size = c.number.map((count) => 5 + (12 * Math.sqrt(count)) / largest);
  const delays = c.delay.map((delay, i) => (delay === c.last[i] ? `delay ${number(delay)}` : `delays ${number(delay)} to ${number(c.last[i])}`));
  const kinds = [["eta", "η", "circle-open"], ...(c.weight_middle ? [["weight", "weight in the momentum", "diamond"]] : [])];
  const traces = kinds.flatMap(([name, text, symbol]) => {
    const [low, middle, high] = ["low", "middle", "high"].map((part) => c[`${name}_${part}`]);
    const ends = { x: x.flatMap((one) => [one, one, null]), y: x.flatMap((_, i) => [low[i], high[i], null]) };
    return [
      { type: "scatter", mode: "lines", ...ends, line: { color: faint(shade, 0.5), width: 2 }, hoverinfo: "skip", showlegend: false },
      { type: "scatter", mode: "markers", name: text, x, y: middle, marker: { symbol, size, color: shade, line: { width: 1.5, color: shade } },
        text: x.map((_, i) => `${delays[i]}: ${plural(c.number[i], "report")}<br>${text} ${number(middle[i])}` + (low[i] === high[i] ? "" : `, 5% to 95%: ${number(low[i])} to ${number(high[i])}`)), hovertemplate: "%{text}<extra></extra>" },
    ];
  });
  const marks = [0, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 1e5, 1e6, 1e9, 1e12, 1e15, 1e18].filter((delay) => delay <= last);
  draw(chart.name, traces, { ...legend(chart.name, kinds.map(([, text]) => text)), showlegend: true,
    xaxis: { title: { text: plain(chart.x_label) }, rangemode: "tozero", ...(far ? { tickvals: marks.map(at), ticktext: marks.map((one) => number(one)) } : {}) },
    yaxis: { title: { text: plain(chart.y_label) }, rangemode: "tozero" } });
}

const SHARES = [["weight", "enters the momentum", 0.85], ["eta", "late: has decayed by then", 0.4], ["full", "cut for its delay", 0]];

function audit(chart, run) { // what became of the ideal sum of weights, in each bin of time
  const id = chart.name, c = run.charts[id], shade = colour(run), shown = SHARES.filter(([name]) => c[name]);
  if (!c.weight) shown[0] = ["eta", "applied", 0.85];
  const share = (name) => c[name].map((value, i) => value / c.full[i]), texts = c.bin.map((_, i) => `${when(c, run, i)}<br>${auditText(c, shown, [i], false)}`);
  const traces = shown.map(([name, text, dark], k) => ({
    type: "scatter", mode: "lines", ...steps(c, k ? share(shown[k - 1][0]) : c.bin.map(() => 0), share(name)), fill: "toself", line: { color: shade, width: dark ? 0 : 0.5 }, name: text, hoverinfo: "skip",
    fillcolor: dark ? faint(shade, dark) : "#00000000", ...(dark ? {} : { fillpattern: { shape: "/", fgcolor: shade, bgcolor: "#00000000", solidity: 0.25, size: 6 } }),
  }));
  traces.push({ type: "scatter", mode: "markers", x: middles(c), y: share(shown[0][0]), marker: { opacity: 0 }, text: texts, hovertemplate: "%{text}<extra></extra>", showlegend: false });
  draw(id, traces, { hovermode: "x", hoverdistance: 50, ...legend(id, shown.map(([, text]) => text)), showlegend: true,
    xaxis: { title: { text: plain(run.clock) } }, yaxis: { title: { text: plain(chart.y_label) }, tickformat: ".0%", rangemode: "tozero", fixedrange: true } });
  linkRange(id);
  auditStretch();
}

function auditText(c, shown, bins, full) {
  const total = (name) => sum(bins.map((i) => c[name][i])), ideal = total("full"), of = (value) => `${number(value, 4)} (${percent(value / ideal)})`;
  const parts = shown.map(([name, text], k) => `${of(total(name) - (k ? total(shown[k - 1][0]) : 0))} ${text}`);
  const cut = total("cut"), reports = total("number");
  return full
    ? `${plural(reports, "report")}; ideal sum of weights ${number(ideal, 4)}, realised ${of(total("eta"))}: ${cut ? `${number(cut)} had less than 1/K, because of ${cut === 1 ? "its" : "their"} delay` : "all had 1/K or more"}. Of the ideal sum, ${parts.join("; ")}.`
    : `${plural(reports, "report")}, ideal sum ${number(ideal, 4)}<br>${parts.join("<br>")}`;
}

function auditStretch() { // the sums of the stretch of time that is shown
  const run = page.runs && page.runs[chosen], one = run && page.charts.find((chart) => chart.kind === "audit"), c = one && run.charts[one.name];
  if (!c || !document.getElementById(one.name)) return;
  const [from, to] = span || [-Infinity, Infinity], shown = SHARES.filter(([name]) => c[name]);
  if (!c.weight) shown[0] = ["eta", "applied", 0.85];
  const bins = c.bin.flatMap((bin, i) => (bin * c.width < to && (bin + 1) * c.width > from ? [i] : []));
  const text = document.getElementById(`${one.name}-sums`) || element("p", "", { id: `${one.name}-sums`, className: "note", ariaLive: "polite" });
  if (!text.isConnected) document.getElementById(one.name).after(text);
  text.textContent = bins.length
    ? `${span ? "" : "The whole run, "}${when(c, run, bins[0], bins.at(-1))}: ${auditText(c, shown, bins, true)} Zoom in to choose a stretch. Reports that are still being computed are not counted.`
    : "No report in this stretch.";
}
document.addEventListener("span", auditStretch);

function dots(chart, run) {
  const c = run.charts[chart.name], x = c[chart.x], y = c[chart.y], named = Object.keys(c);
  const scale = { color: c[chart.colour], colorscale: "Cividis", reversescale: root.dataset.theme !== "dark", size: 7, showscale: true, colorbar: { title: { text: chart.colour, side: "right" }, thickness: 10 }, line: { width: 0.5, color: variable("--dim") } };
  draw(chart.name, [{
    type: "scatter", mode: "markers", x, y, marker: scale, cliponaxis: false,
    text: x.map((_, i) => named.map((name) => `${label(name)} ${number(c[name][i])}`).join("<br>")), hovertemplate: "%{text}<extra></extra>",
  }], { xaxis: { title: { text: plain(chart.x_label) } }, yaxis: { title: { text: plain(chart.y_label) } } });
}

Object.assign(KINDS, { bars, bands, rows, weights, audit, dots });

}
