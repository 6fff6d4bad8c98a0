"use strict";
// What each worker did, and when: one row per worker, drawn on canvases. Runs are drawn below one another on one time axis.

const IN_A_ROUND = ["computing", "transfer", "waiting"];
const ROUND_PIXELS = 4; // a row whose rounds are at least so wide is drawn round by round, else in cells
const decoded = new WeakMap(); // columns of a timeline, by its object in `page`

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const floats = (text) => new Float32Array(bytes(text).buffer);

const counts = ({ bytes: size, text }) => Float64Array.from(new { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array }[size](bytes(text).buffer), Number);

function columns(t) {
  if (!decoded.has(t)) {
    const shares = Object.fromEntries(Object.entries(t.shares).map(([state, text]) => [state, bytes(text)]));
    decoded.set(t, { shares, done: counts(t.done), each: t.each ? rounds(t.each, t.workers.length) : null });
  }
  return decoded.get(t);
}

function rounds(each, rows) { // columns of rounds sorted by row, and where each row begins
  const row = new Uint16Array(bytes(each.row).buffer), first = new Uint32Array(rows + 1);
  for (const one of row) first[one + 1] += 1;
  for (let i = 0; i < rows; i++) first[i + 1] += first[i];
  return { first, before: floats(each.before), start: floats(each.start), work: floats(each.work), finish: floats(each.finish), from: each.from ?? -Infinity, to: each.to ?? Infinity };
}

function look(run) { // how each state is drawn, for this run on this theme
  const { states } = palette(), idle = variable("--back");
  return {
    computing: colour(run), transfer: states.transfer, waiting: hatch(states.waiting, idle, "lines"),
    "lost work": hatch(states["lost work"], idle, "crosses"), absent: hatch(states.absent, idle, "dots"),
  };
}

const hatches = new Map();
function hatch(fore, back, kind) {
  const key = fore + back + kind, scale = devicePixelRatio || 1;
  if (hatches.has(key)) return hatches.get(key);
  const size = 6 * Math.round(scale), tile = element("canvas", "", { width: size, height: size }), to = tile.getContext("2d");
  to.fillStyle = back;
  to.fillRect(0, 0, size, size);
  to.strokeStyle = to.fillStyle = fore;
  to.lineWidth = scale;
  to.beginPath();
  if (kind === "dots") to.arc(size / 2, size / 2, scale * 0.9, 0, 7), to.fill();
  else for (const shift of [-size, 0, size]) { to.moveTo(shift, size); to.lineTo(shift + size, 0); }
  if (kind === "crosses") { to.moveTo(0, 0); to.lineTo(size, size); }
  if (kind !== "dots") to.stroke();
  const pattern = to.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  hatches.set(key, pattern);
  return pattern;
}

function rowHeight(rows) {
  return rows <= 8 ? 24 : rows <= 16 ? 16 : rows <= 32 ? 11 : Math.max(2, Math.min(8, Math.floor(512 / rows)));
}

// `view`: where a run is drawn: { left, width, top, height of a row, from, to (the time that is shown) }
const at = (view, time) => view.left + ((time - view.from) / (view.to - view.from)) * view.width;

function drawRow(to, run, view, row, looks) {
  const t = run.charts.timeline, data = columns(t), top = view.top + row * view.height, tall = view.height - (view.height >= 6 ? 2 : view.height >= 4 ? 1 : 0);
  const each = roundsOf(run, view, row), detail = each && roundPixels(run, view, row) >= ROUND_PIXELS;
  if (detail) drawRounds(to, each, view, row, looks, top, tall);
  else drawCells(to, t, data, view, row, looks, top, tall);
  return detail;
}

function roundPixels(run, view, row) { // of this worker's mean round
  const t = run.charts.timeline, done = columns(t).done.subarray(row * t.cells, (row + 1) * t.cells);
  const span = (t.last[row] ?? t.end) - (t.first[row] ?? 0), count = done.reduce((sum, one) => sum + one, 0);
  return count ? (span / count / (view.to - view.from)) * view.width : 0;
}

function drawRounds(to, each, view, row, looks, top, tall) {
  for (let i = each.first[row]; i < each.first[row + 1]; i++) {
    if (each.finish[i] < view.from || each.before[i] > view.to) continue;
    const x = [each.before[i], each.start[i], each.start[i] + each.work[i], each.finish[i]].map((time) => at(view, time));
    const gap = x[3] - x[1] > 5 ? 1 : 0; // between rounds, where there is space for it
    const fill = (state, left, right) => { if (right > left) { to.fillStyle = looks[state]; to.fillRect(left, top, right - left, tall); } };
    fill("waiting", x[0], x[1]);
    fill("transfer", Math.min(x[1] + gap, x[3]), x[3]);
    fill("computing", x[1] + gap, x[2]);
  }
}

function drawCells(to, t, data, view, row, looks, top, tall) { // each state as one shape, from the bottom of the row upwards
  const from = Math.max(t.first[row] ?? 0, view.from), until = Math.min(t.last[row] ?? t.end, view.to);
  if (until <= from) return;
  const merged = Math.max(1, Math.ceil((view.to - view.from) / view.width / t.width)); // cells per pixel
  const first = Math.floor(from / t.width / merged) * merged, last = Math.min(t.cells - 1, Math.floor(until / t.width));
  const steps = Math.floor((last - first) / merged) + 1, below = new Float64Array(steps), offset = row * t.cells;
  for (const state of IN_A_ROUND) {
    const shares = data.shares[state];
    if (!shares) continue;
    const edges = []; // x, bottom, top
    for (let step = 0; step < steps; step++) {
      const begin = first + step * merged, end = Math.min(begin + merged, t.cells);
      let sum = 0, weight = 0;
      for (let cell = begin; cell < end; cell++) {
        const total = IN_A_ROUND.reduce((all, one) => all + (data.shares[one]?.[offset + cell] || 0), 0);
        if (total) { sum += shares[offset + cell] / total; weight += 1; }
      }
      const share = weight ? sum / weight : 0;
      edges.push([Math.max(begin * t.width, from), Math.min(end * t.width, until), below[step], below[step] + share]);
      below[step] += share;
    }
    to.fillStyle = looks[state];
    to.beginPath();
    let open = -1; // where the shape began that is being drawn
    for (let step = 0; step <= steps; step++) {
      const empty = step === steps || edges[step][3] <= edges[step][2];
      if (!empty && open < 0) open = step;
      if (empty && open >= 0) {
        for (let i = open; i < step; i++) { const y = top + tall * (1 - edges[i][3]); to.lineTo(at(view, edges[i][0]), y); to.lineTo(at(view, edges[i][1]), y); }
        for (let i = step - 1; i >= open; i--) { const y = top + tall * (1 - edges[i][2]); to.lineTo(at(view, edges[i][1]), y); to.lineTo(at(view, edges[i][0]), y); }
        to.closePath();
        open = -1;
        to.fill();
        to.beginPath();
      }
    }
  }
}

function drawAway(to, run, view, looks) { // lost work and absence exactly; after the last report: nothing is known
  const t = run.charts.timeline, gone = t.away, tall = view.height - (view.height >= 6 ? 2 : 0);
  const bar = (row, begin, end) => {
    const left = Math.max(at(view, begin), view.left), right = Math.min(at(view, end), view.left + view.width);
    return [left, view.top + row * view.height, Math.max(right - left, right > left ? 1 : 0), tall];
  };
  gone.row.forEach((row, i) => {
    const where = bar(row, gone.begin[i], gone.end[i]);
    if (where[2] <= 0) return;
    to.fillStyle = looks[t.states[gone.state[i]]];
    to.fillRect(...where);
  });
  if (run.synchronous) return;
  to.strokeStyle = looks.computing;
  to.setLineDash([2, 2]);
  t.last.forEach((last, row) => {
    const [x, y, wide, high] = bar(row, last ?? t.end, t.end);
    if (t.present[row] && wide > 3 && view.height >= 10) to.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
  });
  to.setLineDash([]);
}

const SIGNS = { crash: ["▼", "--alert"], return: ["▲", "--fore"], join: ["▲", "--fore"], leave: ["▽", "--fore"], change: ["◆", "--fore"], stop: ["■", "--alert"] };

function drawMarks(to, run, view, y) { // the line of events above the rows
  to.font = "11px system-ui, sans-serif";
  to.textAlign = "center";
  let last = -Infinity;
  for (const event of run.events) {
    const x = at(view, event.time), [mark, fill] = SIGNS[event.kind];
    if (event.time === null || x < view.left - 1 || x > view.left + view.width + 1 || x - last < 1.5) continue;
    to.fillStyle = variable(fill);
    to.fillText(mark, x, y);
    last = x;
  }
}

function drawAxis(canvas, view, unit) {
  const [to] = ready(canvas, 34), span = view.to - view.from;
  const rough = span / Math.max(2, view.width / 90), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough), digits = Math.max(0, -Math.floor(Math.log10(step)));
  to.fillStyle = variable("--dim");
  to.strokeStyle = variable("--line");
  to.font = "12px system-ui, sans-serif";
  to.textAlign = "center";
  for (let i = Math.ceil(view.from / step); i * step <= view.to * (1 + 1e-9); i++) {
    const x = at(view, i * step);
    to.beginPath(); to.moveTo(x, 0); to.lineTo(x, 5); to.stroke();
    to.fillText((i * step).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }), x, 17);
  }
  to.fillText(unit, view.left + view.width / 2, 32);
}

function ready(canvas, height) { // an empty canvas of this height, as wide as there is room
  const scale = devicePixelRatio || 1, width = canvas.parentElement.clientWidth;
  canvas.style.width = "100%";
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const to = canvas.getContext("2d");
  to.scale(scale, scale);
  return [to, width];
}

function drawRun(run, canvas, range) { // returns how it was drawn: the rows that show every round
  const t = run.charts.timeline, rows = t.workers.length, height = rowHeight(rows), lane = run.events.length ? 16 : 4;
  const [to, width] = ready(canvas, lane + rows * height + 2), left = gutter(width);
  const view = { left, width: width - left - 8, top: lane, height, from: range[0], to: range[1] };
  const looks = look(run);
  to.save();
  to.beginPath(); to.rect(view.left, 0, view.width, lane + rows * height + 2); to.clip();
  to.fillStyle = variable("--panel");
  to.fillRect(view.left, lane, view.width, rows * height - (height >= 6 ? 2 : 0));
  let every = 0;
  for (let row = 0; row < rows; row++) every += drawRow(to, run, view, row, looks) ? 1 : 0;
  drawAway(to, run, view, looks);
  to.restore();
  drawMarks(to, run, view, 12);
  rowLabels(to, run, view);
  return { every, rows, view };
}

const gutter = (width) => (width < 500 ? 40 : 104);

function rowLabels(to, run, view) {
  const t = run.charts.timeline, step = Math.ceil(11 / view.height), wide = view.left > 60;
  const slower = slowness(run);
  to.fillStyle = variable("--dim");
  to.font = `${view.height >= 14 ? 12 : 10}px system-ui, sans-serif`;
  to.textAlign = "right";
  to.textBaseline = "middle";
  t.workers.forEach((worker, row) => {
    if (row % step) return;
    const times = slower.get(worker), late = times >= 1.5;
    to.fillStyle = variable(late ? "--fore" : "--dim");
    to.fillText(wide && late ? `${worker} (${times.toFixed(1)}x slower)` : String(worker), view.left - 6, view.top + (row + 0.5) * view.height - 1);
  });
  to.textBaseline = "alphabetic";
}

function slowness(run) { // by worker: how many times longer its rounds take than those of the median worker
  const times = run.uses.map((use) => use.round_seconds).filter((one) => one !== null).sort((a, b) => a - b);
  const middle = times[Math.floor((times.length - 1) / 2)] || 1;
  return new Map(run.uses.map((use) => [use.worker, use.round_seconds === null ? 1 : use.round_seconds / middle]));
}
