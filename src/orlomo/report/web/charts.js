"use strict";
// The charts of one run.

function logarithmic(columns) {
  const values = columns.flat().filter((value) => value > 0);
  if (columns.flat().some((value) => value !== null && value <= 0)) return {};
  const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
  return { type: "log", exponentformat: "power", dtick: decades > 1.5 ? 1 : "D2" };
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
  const scale = { color: c[chart.colour], colorscale: "Cividis", reversescale: root.dataset.theme !== "dark", size: 7, showscale: true, colorbar: { title: { text: chart.colour, side: "right" }, thickness: 10 }, line: { width: 0.5, color: variable("--dim") } };
  const range = (name, edge) => (shown ? { range: [shown[name][0] - edge, shown[name][1] + edge] } : {});
  draw(chart.name, [{
    type: "scatter", mode: "markers", x, y, marker: chart.colour ? scale : { color: colour(run), size: 4, opacity: 0.6 }, cliponaxis: Boolean(shown),
    text: x.map((_, i) => named.map((name) => `${label(name)} ${number(c[name][i])}`).join("<br>")), hovertemplate: "%{text}<extra></extra>",
  }], { xaxis: { title: { text: plain(chart.x_label || run.clock) }, ...range(chart.x, 1) }, yaxis: { title: { text: plain(chart.y_label) }, ...(chart.log ? logarithmic([y]) : { rangemode: "tozero" }), ...range(chart.y, 0.7) } });
}

Object.assign(KINDS, { bars, dots });
