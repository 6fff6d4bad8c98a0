"use strict";
// Metrics against time, samples or epochs: one curve per method, its seeds as a band, and a target that can be moved.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const whole = {}; // by chart: whether all of the axis is shown where a part is enough
const errors = {}; // by chart: whether what is missing to 100% is drawn, on a logarithmic axis; where it can be
const linear = {}; // by chart: whether the reader does not want that; default: where the best is below 90%
const MOST_POINTS = 800;

const plotted = (id) => (value) => (errors[id] ? 100 - value : value); // and back

function pointsOf(curve, by) { // evaluations that have both numbers
  const places = curve.value.flatMap((value, i) => (value === null || curve[by][i] === null ? [] : [i]));
  return { x: places.map((i) => curve[by][i]), y: places.map((i) => curve.value[i]) };
}

function between(points, x) { // between two evaluations by a straight line
  let low = 0, high = points.x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points.x[middle] <= x) low = middle; else high = middle;
  }
  const width = points.x[high] - points.x[low];
  return width > 0 ? points.y[low] + ((points.y[high] - points.y[low]) * (x - points.x[low])) / width : points.y[high];
}

function band(curves) { // the mean of the seeds, the worst and the best, up to where the shortest of them ends
  if (curves.length === 1) return { x: curves[0].x, y: curves[0].y };
  const end = Math.min(...curves.map((one) => one.x.at(-1)));
  let x = [...new Set(curves.flatMap((one) => one.x))].filter((one) => one <= end).sort((a, b) => a - b);
  if (x.length > MOST_POINTS) x = x.filter((_, i) => i % Math.ceil(x.length / MOST_POINTS) === 0 || i === x.length - 1);
  const values = x.map((one) => curves.map((points) => between(points, one)));
  return { x, y: values.map((own) => own.reduce((a, b) => a + b) / own.length), low: values.map((own) => Math.min(...own)), high: values.map((own) => Math.max(...own)) };
}

function curvesOf(chart, by) { // one per method and data set
  const seen = {}, several = page.methods.length > 1;
  return page.methods.flatMap((row) => {
    const runs = row.runs.map((place) => page.runs[place]).filter((run) => typeof run.charts[chart.name] === "object");
    const sets = [...new Set(runs.flatMap((run) => Object.keys(run.charts[chart.name])))];
    return sets.flatMap((set) => {
      const points = runs.filter((run) => set in run.charts[chart.name]).map((run) => pointsOf(run.charts[chart.name][set], by)).filter((one) => one.x.length);
      if (!points.length) return [];
      const number = seen[row.name] = (seen[row.name] ?? -1) + 1;
      const style = { color: colour({ method: row.name }), dash: DASHES[number % DASHES.length], width: 2 + 1.5 * Math.floor(number / DASHES.length) };
      const name = !several ? set : row.method + (sets.length > 1 ? `, ${set}` : "");
      return [{ ...band(points), name, style, seeds: points.length, row: row.method }];
    });
  });
}

function cutAt(curves, low, high) { // from where the axis is drawn, where the first evaluations would flatten all the rest
  const later = curves.flatMap((one) => (one.low || one.y).filter((_, i) => one.x[i] >= one.x.at(-1) / 3));
  const least = Math.min(...later, high - 0.05 * (high - low)); // not into the noise
  const rough = least - 0.08 * (high - least), unit = 10 ** Math.floor(Math.log10(high - rough || 1));
  const from = Math.floor(rough / unit) * unit;
  return from - low > 0.35 * (high - low) ? from : null;
}

function valueAxis(chart, curves) {
  const all = curves.flatMap((one) => (one.low ? [...one.low, ...one.high] : one.y));
  const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  if (chart.log && low > 0) {
    const pad = 0.05 * Math.max(0.2, Math.log10(high / low));
    return { axis: { ...logarithmic([all]), range: [Math.log10(low) - pad, Math.log10(high) + pad], autorange: false }, cut: null };
  }
  if (errors[chart.name]) return { axis: errorAxis(low, high), cut: null };
  const cut = chart.log ? null : cutAt(curves, low, high), from = cut === null || whole[chart.name] ? low : cut;
  const pad = 0.06 * (high - from || Math.abs(high) || 1);
  return { axis: { range: [from === cut ? cut : from - pad, high + pad], autorange: false }, cut };
}

function errorAxis(low, high) { // its labels are those of the values themselves
  const pad = 0.04 * Math.log10((100 - low) / (100 - high)) + 0.02, steps = [0, 1, 2, 3].flatMap((tens) => [100, 50, 20].map((one) => one / 10 ** tens));
  return { type: "log", range: [Math.log10(100 - low) + pad, Math.log10(100 - high) - pad], autorange: false, tickmode: "array", tickvals: steps, ticktext: steps.map((one) => String(Number((100 - one).toPrecision(6)))) };
}

const MARGIN = { top: 10, bottom: 42 };

function labels(id, curves, axis) { // at the ends of the curves, apart from one another
  const room = document.getElementById(id).clientHeight - MARGIN.top - MARGIN.bottom, gap = 15, log = axis.type === "log";
  const height = (value) => (room * ((log ? Math.log10(value) : value) - axis.range[0])) / (axis.range[1] - axis.range[0]);
  const last = Math.max(...curves.map((one) => one.x.at(-1))), near = (a, b) => Math.abs(a.one.x.at(-1) - b.one.x.at(-1)) < 0.25 * last;
  const ends = curves.map((one) => ({ one, y: height(one.y.at(-1)), place: 0 })).sort((a, b) => a.y - b.y);
  ends.forEach((end, i) => { end.place = ends.slice(0, i).filter((other) => near(end, other)).reduce((most, other) => Math.max(most, other.place + gap), Math.max(end.y, 6)); });
  ends.reverse().forEach((end, i) => { end.place = ends.slice(0, i).filter((other) => near(end, other)).reduce((most, other) => Math.min(most, other.place - gap), Math.min(end.place, room - 4)); });
  return ends.map(({ one, y, place }) => ({
    x: one.x.at(-1), y: log ? Math.log10(one.y.at(-1)) : one.y.at(-1), xanchor: "left", yanchor: "middle", xshift: 6, yshift: place - y,
    text: plain(one.name), font: { color: one.style.color, size: 12 }, showarrow: false, bgcolor: `${variable("--panel")}cc`, borderpad: 0,
  }));
}

function lines(chart) {
  const id = chart.name, by = against[id] || chart.x, figure = document.getElementById(id);
  choices(id, LABELS, by, (value) => { against[id] = value; choose(id, null); lines(chart); });
  const curves = curvesOf(chart, by), best = Math.max(...curves.flatMap((one) => one.high || one.y));
  const able = hasTarget(chart) && page.target.percent && page.target.higher && best < 100;
  errors[id] = able && !(linear[id] ?? best < 90);
  const { axis, cut } = valueAxis(chart, curves), marked = curves.length * Math.max(...curves.map((one) => one.x.length)) < 240;
  // Names stand at the ends of the curves where there is room for them, else in a legend.
  const room = 16 + 6.6 * Math.max(...curves.map((one) => one.name.length)), direct = curves.length > 1 && curves.length < 13 && figure.clientWidth > 480 && room <= 200;
  const drawn = curves.map((one) => ({ ...one, y: one.y.map(plotted(id)), low: one.low?.map(plotted(id)), high: one.high?.map(plotted(id)), shown: one.y }));
  const traces = drawn.flatMap((one) => {
    const edge = { type: "scatter", mode: "lines", x: one.x, line: { width: 0 }, hoverinfo: "skip", showlegend: false, name: plain(one.name) };
    const around = one.low ? [{ ...edge, y: one.low }, { ...edge, y: one.high, fill: "tonexty", fillcolor: `${one.style.color}2e` }] : [];
    return [...around, { type: "scatter", mode: marked ? "lines+markers" : "lines", name: plain(one.name), x: one.x, y: one.y, line: one.style, marker: { size: 4 }, text: one.shown.map((value) => number(value, 4)), hovertemplate: `${plain(one.name)}: %{text} at %{x}<extra></extra>` }];
  });
  const own = hasTarget(chart);
  if (own && by === "seconds") traces.push(crossings(id));
  const begins = cut !== null && !whole[id] ? [{ xref: "paper", yref: "paper", x: 1, y: 0, xanchor: "right", yanchor: "bottom", text: `the axis begins at ${number(cut)}${chart.y_label.endsWith("(%)") ? "%" : ""}`, showarrow: false, font: { color: variable("--dim"), size: 11 }, bgcolor: variable("--panel") }] : [];
  draw(id, traces, {
    xaxis: { title: { text: by === "seconds" ? clock(page.runs) : LABELS[by] }, range: xRange(curves), autorange: false }, yaxis: { title: { text: plain(chart.y_label) + (errors[id] ? ", logarithmic towards 100" : ""), standoff: own ? 20 : 8 }, ...axis },
    margin: { l: 50, r: direct ? room : 12, t: MARGIN.top, b: MARGIN.bottom }, annotations: [...begins, ...(direct ? labels(id, drawn, axis) : [])],
    ...(direct ? {} : legend(id, curves.map((one) => one.name))), summary: summaryOf(chart, curves, by),
    rows: () => [["curve", LABELS[by], chart.y_label, "worst seed", "best seed"], curves.flatMap((one) => one.x.map((x, i) => [one.name, number(x, 5), number(one.y[i], 5), ...(one.low ? [number(one.low[i], 5), number(one.high[i], 5)] : ["–", "–"])]))],
  });
  axisButtons(chart, cut, able);
  targetLine(chart, own);
}

const hasTarget = (chart) => Boolean(page.target) && chart.name === `metric-${page.target.metric}` && targetValue() !== null;

function notes() { // before any chart is drawn: its height depends on them
  const seeds = page.methods.some((row) => row.runs.length > 1) ? "Line: mean of the seeds. Band: from the worst to the best." : "";
  for (const chart of page.charts) {
    if (chart.kind !== "lines" || !document.getElementById(chart.name)) continue;
    const move = hasTarget(chart) ? "Dashed: the target. Drag it, or press the arrow keys when it has the focus." : "";
    retitle(chart.name, chart.title, [chart.note, seeds, move].filter(Boolean).join(" "));
  }
}

function xRange(curves) { // from 0; the names of the curves take no part in it
  const first = Math.min(0, ...curves.map((one) => one.x[0])), last = Math.max(...curves.map((one) => one.x.at(-1)));
  return [first, last + 0.03 * (last - first || 1)];
}

function summaryOf(chart, curves, by) {
  const texts = curves.slice(0, 8).map((one) => `${one.name}: from ${number(one.y[0])} to ${number(one.y.at(-1))} at ${number(one.x.at(-1))}`);
  return `${chart.y_label} against ${LABELS[by]}. ${texts.join("; ")}.`;
}

function axisButtons(chart, cut, able) {
  const id = chart.name, tools = cardOf(id).querySelector(".tools");
  const button = (name, text, pressed, shown, toggle) => {
    const made = tools.querySelector(`.${name}`) || tools.appendChild(element("button", text, { type: "button", className: `quiet ${name}` }));
    made.hidden = !shown;
    made.setAttribute("aria-pressed", String(Boolean(pressed)));
    made.onclick = () => { toggle(); lines(chart); };
  };
  button("cut", "Whole axis", whole[id], cut !== null, () => { whole[id] = !whole[id]; });
  button("error", "Log error", errors[id], able, () => { linear[id] = errors[id]; });
}

// The target.

function crossings(id) { // where each method reaches it
  const value = targetValue(), times = timesTo(value);
  const places = page.methods.flatMap((row, i) => (times[i].count === row.seeds ? [i] : []));
  return {
    type: "scatter", mode: "markers", name: "target reached", x: places.map((i) => times[i].seconds), y: places.map(() => plotted(id)(value)), showlegend: false,
    marker: { size: 9, color: variable("--panel"), line: { width: 2.5, color: places.map((i) => colour({ method: page.methods[i].name })) } },
    text: places.map((i) => plain(`${page.methods[i].method}: ${targetText(value)} after ${timeText(times[i].seconds)}`)), hovertemplate: "%{text}<extra></extra>",
  };
}

function step(value) {
  return page.target.percent ? 1 : 10 ** (Math.floor(Math.log10(Math.abs(value) || 1)) - 1);
}

function limits() {
  const all = page.target.records.flatMap((record) => record.value);
  return [all.reduce((a, b) => Math.min(a, b), Infinity), all.reduce((a, b) => Math.max(a, b), -Infinity)];
}

function aim(value, by) { // choose another target, a multiple of `by`; null: that of the page
  const [low, high] = limits();
  const round = value === null ? null : Number((Math.round(Math.min(high, Math.max(low, value)) / by) * by).toPrecision(10));
  if (round === targetValue() && value !== null) return;
  goal.value = round;
  aim.drawing ||= requestAnimationFrame(() => {
    aim.drawing = 0;
    methods(); facts();
    for (const spec of page.charts) if (spec.name === `metric-${page.target.metric}`) lines(spec);
  });
}

function targetLine(chart, wanted) {
  const id = chart.name, made = document.getElementById(`target-${id}`) || (wanted ? newTarget(chart) : null);
  if (!made) return;
  made.hidden = !wanted;
  if (!wanted) return;
  const value = targetValue(), [low, high] = limits(), texts = targetCells(value);
  const spoken = page.methods.slice(0, 6).map((row, i) => `${row.method} ${texts[i]}`).join(", ");
  for (const [name, text] of Object.entries({ valuemin: low, valuemax: high, valuenow: value, valuetext: `${targetText(value)}: ${spoken}` })) made.setAttribute(`aria-${name}`, String(text));
  made.querySelector(".handle").textContent = targetText(value);
  placeTarget(id);
}

function placeTarget(id) {
  const made = document.getElementById(`target-${id}`), figure = document.getElementById(id), layout = figure._fullLayout;
  if (!made || !layout?.yaxis || targetValue() === null) return;
  const { xaxis, yaxis } = layout, top = yaxis.d2p(plotted(id)(targetValue()));
  made.style.visibility = top >= -1 && top <= yaxis._length + 1 ? "" : "hidden";
  Object.assign(made.style, { left: `${figure.offsetLeft + xaxis._offset}px`, width: `${xaxis._length}px`, top: `${figure.offsetTop + yaxis._offset + top}px` });
}

function newTarget(chart) {
  const id = chart.name, figure = document.getElementById(id), made = element("div", element("span", "", { className: "handle" }), { id: `target-${id}`, className: "target", tabIndex: 0 });
  made.setAttribute("role", "slider");
  made.setAttribute("aria-orientation", "vertical");
  made.setAttribute("aria-label", `Target: ${page.target.label}`);
  made.onpointerdown = (event) => { made.setPointerCapture(event.pointerId); made.focus(); event.preventDefault(); };
  made.onpointermove = (event) => {
    if (!made.hasPointerCapture(event.pointerId)) return;
    const axis = figure._fullLayout.yaxis, value = plotted(id)(axis.p2d(event.clientY - figure.getBoundingClientRect().top - axis._offset));
    aim(value, event.shiftKey ? step(value) / 10 : step(value));
  };
  made.onkeydown = (event) => {
    const value = targetValue(), by = event.shiftKey ? step(value) / 10 : step(value);
    const moves = { ArrowUp: by, ArrowRight: by, ArrowDown: -by, ArrowLeft: -by, PageUp: 5 * by, PageDown: -5 * by };
    if (event.key in moves) aim(value + moves[event.key], by);
    else if (event.key === "Escape") aim(null);
    else return;
    event.preventDefault();
  };
  cardOf(id).append(made);
  figure.on("plotly_afterplot", () => placeTarget(id));
  figure.on("plotly_relayout", () => placeTarget(id));
  return made;
}

addEventListener("resize", () => { for (const made of document.querySelectorAll(".target")) placeTarget(made.id.slice("target-".length)); });

parts.push(notes);
Object.assign(KINDS, { lines });
