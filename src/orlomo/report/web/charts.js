"use strict";
// The charts of one run: how its delays, weights and losses are distributed.

function logarithmic(columns) {
  const values = columns.flat().filter((value) => value > 0);
  if (columns.flat().some((value) => value !== null && value <= 0)) return {};
  const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
  return { type: "log", exponentformat: "power", dtick: decades > 1.5 ? 1 : "D2" };
}

{ // What follows is for this file alone.

const FAR = 4; // an axis is logarithmic where the largest value is so many times above the 95% quantiles
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

// Whole numbers from 0 on: where a few are very large, on a scale of log(1 + value), which has a place for 0.
const MARKS = [0, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 1e5, 1e6, 1e9, 1e12, 1e15, 1e18];
const scaled = (wide) => (wide ? (value) => (value === null ? null : Math.log10(1 + value)) : (value) => value);
const marks = (wide, largest) => {
  const shown = MARKS.filter((value) => value <= 1.2 * largest);
  return wide ? { tickvals: shown.map(scaled(true)), ticktext: shown.map((value) => number(value)), tickangle: 0 } : {};
};

function bands(chart, run) {
  const id = chart.name, every = run.charts[id], own = every.workers || {}, names = Object.keys(own);
  const alone = names.includes(ofWorker[id]) ? ofWorker[id] : "", c = alone ? { ...own[alone], end: every.end } : every, shade = colour(run);
  workerChoice(chart, run, names, alone);
  const several = sum(c.outliers), largest = most(c.largest), wide = !chart.log && largest > FAR * Math.max(3, most(c.high)), at = scaled(wide);
  const texts = c.bin.map((_, i) => `${when(c, run, i)}: ${plural(c.number[i], "report")}<br>median ${number(c.middle[i])}, 5% to 95%: ${number(c.low[i])} to ${number(c.high[i])}<br>` +
    `largest ${number(c.largest[i])}` + (c.outliers[i] ? `, ${plural(c.outliers[i], "report")} above twice the 95%` : ""));
  const each = (every.each?.finish || []).flatMap((_, i) => (!alone || String(every.each.worker[i]) === alone ? [i] : []));
  const who = alone ? `worker ${alone}, ` : "", line = { color: shade, width: 0 };
  const traces = [
    ...(alone ? [{ type: "scatter", mode: "none", ...steps(every, every.low.map(at), every.high.map(at)), fill: "toself", fillcolor: faint(variable("--dim"), 0.2), line, name: "all workers, 5% to 95%", hoverinfo: "skip" }] : []),
    { type: "scatter", mode: "none", ...steps(c, c.low.map(at), c.high.map(at)), fill: "toself", fillcolor: faint(shade, 0.28), line, name: `${who}5% to 95%`, hoverinfo: "skip" },
    { type: "scatter", mode: "lines", ...stepLine(c, c.middle.map(at)), line: { color: shade, width: 2 }, name: `${who}median`, hoverinfo: "skip" },
    ...(each.length ? [{ type: "scatter", mode: "markers", x: each.map((i) => every.each.finish[i]), y: each.map((i) => at(every.each[chart.y][i])), marker: { color: shade, size: 4, opacity: 0.55 }, name: "reports", hoverinfo: "skip" }] : []),
    { type: "scatter", mode: "markers", x: middles(c), y: c.middle.map(at), marker: { opacity: 0 }, text: texts, hovertemplate: "%{text}<extra></extra>", showlegend: false },
    ...(several ? [{ type: "scatter", mode: "markers", x: middles(c), y: c.largest.map((value, i) => (c.outliers[i] ? at(value) : null)), text: texts, hoverinfo: "skip", marker: { color: shade, size: 5 }, cliponaxis: false,
      name: `above twice the 95%: ${plural(several, "report")}, up to ${number(largest)}` }] : []),
  ];
  const inexact = every.exact_below <= largest ? ` Delays of ${number(every.exact_below)} and more are rounded down by less than ${percent(2 / every.exact_below, 2)}.` : "";
  const shown = `${alone ? `${number(sum(c.number))} reports of worker ${alone}` : plural(sum(c.number), "report")} in stretches of ${number(c.width, 4)} ${run.clock}`;
  retitle(id, chart.title, `${chart.note} All ${shown}: the median, and the range from the 5% to the 95% quantile. A dot is the largest value of a stretch, where it lies above twice the 95% quantile.${inexact}`.trim());
  draw(id, traces, { hovermode: "x", hoverdistance: 50, ...legend(id, traces.filter((trace) => trace.showlegend !== false).map((trace) => trace.name)), showlegend: true,
    summary: `${chart.title}: ${shown}; medians from ${number(c.middle.reduce((a, b) => Math.min(a, b)))} to ${number(most(c.middle))}; 95% quantiles up to ${number(most(c.high))}; the largest value is ${number(largest)}.`,
    rows: () => [[`from (${run.clock})`, "to", "reports", "5%", "median", "95%", "largest", "above twice the 95%"], c.bin.map((_, i) => [...edges(c, i).map((edge) => number(edge, 5)), ...["number", "low", "middle", "high", "largest", "outliers"].map((name) => number(c[name][i]))])],
    xaxis: { title: { text: plain(chart.x_label || run.clock) }, range: [0, every.end] },
    yaxis: { title: { text: plain(chart.y_label) + (wide ? ", logarithmic" : "") }, fixedrange: true, ...marks(wide, largest), ...(chart.log ? logarithmic([c.low, c.high]) : { rangemode: "tozero" }) } });
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
  const height = Math.min(600, Math.max(320, tall(run.charts.worker_delays))); // as the chart beside it
  draw(chart.name, traces, { ...more, height, bargap: 0, rows: () => [["delay", "reports"], [...c.left.map((first, i) => [width === 1 ? number(first) : `${number(first)} to ${number(first + width - 1)}`, number(c.counts[i])]), ...(c.above ? [[`above ${number(c.limit)}`, number(c.above)]] : [])]],
    summary: `${chart.title}: ${plural(total, "report")}; most often ${number(c.left[c.counts.indexOf(most(c.counts))])}${width > 1 ? ` to ${number(c.left[c.counts.indexOf(most(c.counts))] + width - 1)}` : ""}; the largest is ${number(c.largest)}. ${c.rest}`,
    xaxis: { title: { text: plain(x) }, tickformat: "d", ...ticks }, yaxis: { title: { text: plain(chart.y_label) }, fixedrange: true } });
}

function ticksTo(end) { // whole numbers in steps of 1, 2 or 5 times a power of ten
  const rough = Math.max(1, end / 8), power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

const tall = (c) => 96 + 21 * c.worker.length;

function rows(chart, run) {
  const c = run.charts[chart.name], shade = colour(run), y = c.worker.map((_, i) => i);
  const largest = most(c.largest), wide = largest > FAR * Math.max(3, most(c.high)), at = scaled(wide), thin = wide ? 0.01 : 0.2;
  const texts = c.worker.map((name, i) => `${plain(name)}: ${plural(c.number[i], "report")}<br>median ${number(c.middle[i])}, 5% to 95%: ${number(c.low[i])} to ${number(c.high[i])}, largest ${number(c.largest[i])}`);
  const common = { text: texts, hovertemplate: "%{text}<extra></extra>" };
  const traces = [
    { type: "bar", orientation: "h", y, base: c.low.map((low) => at(low) - thin), x: c.high.map((high, i) => at(high) - at(c.low[i]) + 2 * thin), width: 0.6, marker: { color: faint(shade, 0.35) }, name: "5% to 95%", textposition: "none", ...common },
    { type: "scatter", mode: "markers", x: c.middle.map(at), y, marker: { symbol: "line-ns", size: thickness, line: { width: 3, color: shade } }, name: "median", ...common },
    { type: "scatter", mode: "markers", x: c.largest.map(at), y, marker: { color: shade, size: 5 }, cliponaxis: false, name: "largest", ...common },
  ];
  draw(chart.name, traces, { height: tall(c), ...legend(chart.name, ["5% to 95%", "median", "largest"]), showlegend: true, bargap: 0,
    summary: `${chart.title}: ${c.worker.map((name, i) => `${name}: median ${number(c.middle[i])}, 95% ${number(c.high[i])}, largest ${number(c.largest[i])}`).join("; ")}.`,
    rows: () => [["worker", "reports", "5%", "median", "95%", "largest"], c.worker.map((name, i) => [name, ...["number", "low", "middle", "high", "largest"].map((part) => number(c[part][i]))])],
    xaxis: { title: { text: plain(chart.x_label) + (wide ? ", logarithmic" : "") }, ...marks(wide, largest), rangemode: "tozero" },
    yaxis: { autorange: "reversed", fixedrange: true, tickvals: y, ticktext: c.worker.map(plain), showgrid: false, zeroline: false } });
}

function weights(chart, run) {
  const c = run.charts[chart.name], shade = colour(run), last = c.last.at(-1), wide = last > 60, at = scaled(wide);
  const x = c.delay.map((delay, i) => at((delay + c.last[i]) / 2));
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
  const edge = 0.02 * Math.max(1, at(last));
  retitle(chart.name, chart.title, c.weight_middle ? chart.note : `${chart.note.split(". ")[0]}.`); // the rest is about the momentum
  draw(chart.name, traces, { ...legend(chart.name, kinds.map(([, text]) => text)), showlegend: true,
    summary: `${chart.title}: ${kinds.map(([name, text]) => `${text} is ${number(c[`${name}_middle`][0])} for ${delays[0]} and ${number(c[`${name}_middle`].at(-1))} for ${delays.at(-1)}`).join("; ")}.`,
    rows: () => [["delay", "reports", ...kinds.flatMap(([, text]) => [`${text}: 5%`, "median", "95%"])], x.map((_, i) => [delays[i].replace(/^delays? /, ""), number(c.number[i]), ...kinds.flatMap(([name]) => ["low", "middle", "high"].map((part) => number(c[`${name}_${part}`][i], 4)))])],
    xaxis: { title: { text: plain(chart.x_label) + (wide ? ", logarithmic" : "") }, range: [-edge, at(last) + edge], ...marks(wide, last) },
    yaxis: { title: { text: plain(chart.y_label) }, rangemode: "tozero" } });
}

const SHARES = { weight: ["entered the momentum", 0.85], eta: ["had decayed when it came", 0.4], full: ["cut for the delay", 0] };
const shares = (c) => [...(c.weight ? ["weight"] : []), "eta", ...(sum(c.cut) ? ["full"] : [])]; // each up to its own sum, above the one before
const shareText = (c, name) => (c.weight || name === "full" ? SHARES[name][0] : "applied");

function audit(chart, run) { // what became of the ideal sum of weights, in each bin of time
  const id = chart.name, c = run.charts[id], shade = colour(run), names = shares(c);
  const share = (name) => c[name].map((value, i) => value / c.full[i]);
  const texts = c.bin.map((_, i) => `${when(c, run, i)}<br>` + sums(c, [i]).map(([text, sum, part]) => `${text}: ${sum} (${part})`).join("<br>"));
  const traces = names.map((name, k) => {
    const dark = c.weight ? SHARES[name][1] : name === "eta" ? 0.85 : 0;
    return { type: "scatter", mode: "lines", ...steps(c, k ? share(names[k - 1]) : c.bin.map(() => 0), share(name)), fill: "toself", line: { color: shade, width: dark ? 0 : 0.5 }, name: shareText(c, name), hoverinfo: "skip",
      fillcolor: dark ? faint(shade, dark) : "#00000000", ...(dark ? {} : { fillpattern: { shape: "/", fgcolor: shade, bgcolor: "#00000000", solidity: 0.25, size: 6 } }) };
  });
  traces.push({ type: "scatter", mode: "markers", x: middles(c), y: share(names[0]), marker: { opacity: 0 }, text: texts, hovertemplate: "%{text}<extra></extra>", showlegend: false });
  const all = sums(c, c.bin.map((_, i) => i));
  draw(id, traces, { hovermode: "x", hoverdistance: 50, ...legend(id, traces.slice(0, -1).map((trace) => trace.name)), showlegend: true,
    summary: `${chart.title}: ${all.map(([text, sum, part]) => `${text}: ${sum}, ${part}`).join("; ")}.`,
    rows: () => [[`from (${run.clock})`, "to", "reports", "of them cut", "ideal sum", ...names.filter((name) => name !== "full").map((name) => (name === "eta" ? "sum of η" : "sum of η · βᵇ"))],
      c.bin.map((_, i) => [...edges(c, i).map((edge) => number(edge, 5)), number(c.number[i]), number(c.cut[i]), ...["full", ...names.filter((name) => name !== "full")].map((name) => number(c[name][i], 5))])],
    xaxis: { title: { text: plain(run.clock) }, range: [0, c.end] }, yaxis: { title: { text: plain(chart.y_label) }, tickformat: ".0%", rangemode: "tozero", fixedrange: true } });
  linkRange(id);
  auditStretch();
}

function sums(c, bins) { // of these bins of time: a text, a sum of weights and its share of the ideal one
  const total = (name) => sum(bins.map((i) => c[name][i])), ideal = total("full"), row = (text, value) => [text, number(value, 4), percent(value / ideal)];
  const late = c.weight ? [row("of that, entered the momentum", total("weight")), row("of that, had decayed when it came", total("eta") - total("weight"))] : [];
  return [row(`ideal: 1/K for each of ${plural(total("number"), "report")}`, ideal), row("realised: the sum of η", total("eta")), ...late, row(`cut for the delay of ${plural(total("cut"), "report")}`, Math.max(0, ideal - total("eta")))];
}

function auditStretch() { // the sums of the stretch of time that is shown
  const run = page.runs && page.runs[chosen], one = run && page.charts.find((chart) => chart.kind === "audit"), c = one && run.charts[one.name];
  if (!c || !document.getElementById(one.name)) return;
  const [from, to] = span || [-Infinity, Infinity], bins = c.bin.flatMap((_, i) => (edges(c, i)[0] < to && edges(c, i)[1] > from ? [i] : []));
  const body = document.getElementById(`${one.name}-sums`) || element("div", "", { id: `${one.name}-sums`, ariaLive: "polite" });
  if (!body.isConnected) document.getElementById(one.name).after(body);
  const heading = bins.length ? `${span ? "" : "The whole run, "}${when(c, run, bins[0], bins.at(-1))}` : "No report in this stretch";
  const made = table(body, [heading, "sum of weights", "share"], sums(c, bins), heading);
  for (const cell of made.querySelectorAll("th")) cell.style.whiteSpace = "normal";
}
document.addEventListener("span", auditStretch);

function dots(chart, run) {
  const c = run.charts[chart.name], x = c[chart.x], y = c[chart.y], named = Object.keys(c);
  const scale = { color: c[chart.colour], colorscale: "Cividis", reversescale: root.dataset.theme !== "dark", size: x.length > 300 ? 5 : 7, showscale: true, colorbar: { title: { text: chart.colour, side: "right" }, thickness: 10 }, line: { width: 0.5, color: variable("--dim") } };
  draw(chart.name, [{
    type: "scatter", mode: "markers", x, y, marker: scale, cliponaxis: false,
    text: x.map((_, i) => named.map((name) => `${label(name)} ${number(c[name][i])}`).join("<br>")), hovertemplate: "%{text}<extra></extra>",
  }], { rows: () => [named.map(label), x.map((_, i) => named.map((name) => number(c[name][i], 4)))], xaxis: { title: { text: plain(chart.x_label) }, tickformat: ",d" }, yaxis: { title: { text: plain(chart.y_label) }, tickformat: ",d" } });
}

Object.assign(KINDS, { bars, bands, rows, weights, audit, dots });

}
