"use strict";
// What is said first, and the curves of all runs together.

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

function line(run, number) { // `number`: of this curve among those of its method
  return { color: colour(run), dash: DASHES[number % DASHES.length], width: 2 + 1.5 * Math.floor(number / DASHES.length) };
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
