"use strict";
// What is said first, and the curves of all runs together.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];

function line(run, number) { // `number`: of this curve among those of its method
  return { color: colour(run), dash: DASHES[number % DASHES.length], width: 2 + 1.5 * Math.floor(number / DASHES.length) };
}

function lines(chart) {
  const id = chart.name, by = against[id] || chart.x;
  const drawn = page.runs.filter((run) => typeof run.charts[id] === "object");
  choices(id, LABELS, by, (value) => { against[id] = value; choose(id, null); lines(chart); });
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

Object.assign(KINDS, { lines });
