"use strict";
// What each worker did, and when.

function timeline(chart, run) {
  const id = chart.name, t = run.charts[id];
  const workers = [...new Set(t.worker)].sort((a, b) => a - b), row = new Map(workers.map((worker, i) => [worker, i]));
  const roomy = t.worker.length / workers.length < document.getElementById(id).clientWidth / 12;
  const edge = roomy ? 0.7 : 0; // a gap between rounds, where there is space for it
  const states = palette().states, gone = states.absent;
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
  linkRange(id);
}

Object.assign(KINDS, { timeline });

parts.push((run) => {
  const own = run.uses.some((u) => u.data !== undefined); // workers with data of their own
  table(card("workers", "uses", { title: "How the workers spent their time", wide: true }), ["worker", ...(own ? ["data", "samples", "epochs of them"] : []), "rounds", "computing", "in transfer", "waiting", "absent", "mean delay", "longest delay"],
    run.uses.map((u) => [u.worker, ...(own ? [u.data, u.samples, number(u.epochs)] : []), u.rounds, percent(u.computing), percent(u.transfer), percent(u.waiting), percent(u.absent), number(u.mean_delay), u.max_delay]));
});
