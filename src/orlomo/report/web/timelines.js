"use strict";
// The timelines on the page: which runs are shown, zooming, and what a point says.

const shownRuns = new Map(); // by name: whether the user wants to see its timeline, where that is not as at first
const windows = new Map(); // by run: the rounds of a stretch of time, as `orlomo watch` has answered
const TIMES = 1.6; // one step of zooming

const hasTimeline = (run) => typeof run.charts.timeline === "object";

function timelineRuns() { // at first: the chosen run and one of the other kind; synchronous ones above
  const run = page.runs[chosen], others = page.runs.filter((one) => hasTimeline(one) && one.clock === run.clock);
  const opposite = others.filter((one) => one.synchronous !== run.synchronous);
  const first = [run, opposite.find((one) => one.method === "orlomo") || opposite[0]];
  const shown = others.filter((one) => shownRuns.get(one.name) ?? first.includes(one));
  return [...shown.filter((one) => one.synchronous), ...shown.filter((one) => !one.synchronous)];
}

function wholeRange() { // of all runs that could be shown: choosing one does not move the others
  return [0, Math.max(...timelineRuns().map((run) => run.charts.timeline.end), 1e-9)];
}

function timelines() {
  if (!page.runs.some(hasTimeline)) return;
  const note = "One row per worker. Drag, or Ctrl and the wheel, to zoom in; double-click to see all. Other charts over time follow.";
  const target = card("timelines", "timeline", { title: "Timelines", note, wide: true });
  retitle("timeline", shownInWords(timelineRuns()), note);
  cardOf("timeline").hidden = !timelineRuns().length;
  if (!target.querySelector(".timelines")) buildTimeline(target);
  runButtons(target.querySelector(".runs"));
  const place = target.querySelector(".timelines"), runs = timelineRuns();
  if (place.children.length !== runs.length) place.replaceChildren(...runs.map(() => element("div", [element("h4"), element("div", element("canvas", "", { className: "strip" }))])));
  runs.forEach((run, i) => { // kept where they are: a user may be zooming while a run continues
    const [title, canvas] = [place.children[i].querySelector("h4"), place.children[i].querySelector("canvas")];
    title.replaceChildren(swatch(run), `${run.name}: `, element("span", timelineFacts(run)));
    canvas.run = run;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Timeline of ${run.name}: ${timelineFacts(run)}. The same numbers are in the table of workers.`);
  });
  keys(target.querySelector(".key"), runs);
  paint(); // at once: also before printing
}

function shownInWords(runs) {
  const first = runs.find((run) => run.synchronous), second = runs.find((run) => !run.synchronous), share = (run) => percent(computingShare(run), 0);
  const name = (run) => (page.runs.filter((one) => one.method === run.method).length > 1 ? run.name : run.method); // of several seeds: this one's
  if (first && second) return `${name(second)}'s workers computed ${share(second)} of the time, ${name(first)}'s ${share(first)}`;
  return runs.length ? `Workers computed ${share(runs[0])} of the time` : "Timelines";
}

function timelineFacts(run) {
  const t = run.charts.timeline;
  return `${run.synchronous ? "synchronous" : "asynchronous"}, ${run.membership}; ${plural(t.rounds, "round")}; workers computed ${percent(computingShare(run), 0)} of the time${t.workers.length < t.all_workers ? `. Drawn are the ${number(t.workers.length / 2)} slowest workers and ${number(t.workers.length / 2)} others` : ""}`;
}

function computingShare(run) { // the mean over the workers
  const shares = run.uses.map((use) => use.computing).filter((one) => one !== null);
  return shares.length ? shares.reduce((sum, one) => sum + one, 0) / shares.length : null;
}

function buildTimeline(target) {
  const button = (text, title, action) => element("button", text, { type: "button", className: "quiet", title, ariaLabel: title, onclick: action });
  cardOf(target.id).querySelector(".tools").append(
    button("−", "Zoom out", () => zoomTime(TIMES)), button("+", "Zoom in", () => zoomTime(1 / TIMES)),
    button("←", "Earlier", () => moveTime(-0.4)), button("→", "Later", () => moveTime(0.4)), button("All", "Show all", () => setSpan(null)));
  const place = element("div", "", { className: "timelines", tabIndex: 0 });
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "Timelines: plus and minus zoom, arrow keys move, 0 shows everything");
  const axis = element("div", element("canvas", "", { className: "axis" }));
  const scale = element("p", "", { className: "scale", role: "status" });
  target.replaceChildren(element("div", "", { className: "runs" }), element("div", "", { className: "key" }), place, axis, scale, element("div", "", { className: "tip", hidden: true }));
  place.onkeydown = (event) => {
    const action = { "+": () => zoomTime(1 / TIMES), "=": () => zoomTime(1 / TIMES), "-": () => zoomTime(TIMES), ArrowLeft: () => moveTime(-0.2), ArrowRight: () => moveTime(0.2), 0: () => setSpan(null), Escape: () => setSpan(null) }[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  };
  pointers(place, target.querySelector(".tip"));
  new ResizeObserver(() => redraw()).observe(target);
}

function runButtons(target) { // one button per run, where there is more than one
  const possible = page.runs.filter((run) => hasTimeline(run) && run.clock === page.runs[chosen].clock), shown = timelineRuns();
  if (possible.length < 2) return target.replaceChildren();
  target.replaceChildren(element("span", "Shown: "), ...possible.map((run) => {
    const one = element("button", run.name, { type: "button", onclick: () => { shownRuns.set(run.name, !shown.includes(run)); render(); } });
    one.setAttribute("aria-pressed", String(shown.includes(run)));
    return one;
  }));
}

function keys(target, runs) { // what the patterns mean
  const used = new Set(runs.flatMap((run) => [...Object.keys(run.charts.timeline.shares), ...run.charts.timeline.away.state.map((code) => run.charts.timeline.states[code])]));
  const texts = { computing: "computing", transfer: "transfer", waiting: runs.some((run) => run.synchronous) ? "waiting for other workers" : "waiting", "lost work": "work lost in a crash", absent: "absent" };
  target.replaceChildren(...Object.entries(texts).filter(([state]) => used.has(state)).map(([state, text]) => {
    const canvas = element("canvas", "", { width: 36, height: 24 }), to = canvas.getContext("2d");
    to.scale(2, 2);
    to.fillStyle = state === "computing" ? (runs.length === 1 ? colour(runs[0]) : variable("--fore")) : look(runs[0])[state];
    to.fillRect(0, 0, 18, 12);
    return element("span", [canvas, text]);
  }));
}

let pending = 0;
function redraw() { // at most once per frame
  if (!pending) pending = requestAnimationFrame(() => { pending = 0; paint(); });
}

function paint() {
  const target = document.getElementById("timeline"), runs = timelineRuns();
  if (!target || !target.querySelector(".timelines") || !runs.length) return;
  const whole = wholeRange(), range = span || whole;
  let view = null, every = 0, rows = 0;
  for (const canvas of target.querySelectorAll(".strip")) {
    const drawn = drawRun(canvas.run, canvas, range);
    canvas.view = view = drawn.view;
    every += drawn.every;
    rows += drawn.rows;
    askForRounds(canvas.run, view);
  }
  if (view) drawAxis(target.querySelector(".axis"), view, clock(runs));
  target.querySelector(".scale").textContent = scaleText(runs, view, every, rows);
  target.dataset.painted = String(Number(target.dataset.painted || 0) + 1);
  target.dataset.every = `${every} of ${rows}`;
}

function scaleText(runs, view, every, rows) {
  if (every === rows) return "Every round is drawn.";
  const texts = runs.map((run) => {
    const t = run.charts.timeline, done = [...columns(t).done].filter((one) => one > 0).sort((a, b) => a - b);
    const merged = Math.max(1, Math.ceil((view.to - view.from) / view.width / t.width)), middle = (done[Math.floor(done.length / 2)] || 0) * merged;
    const each = middle >= 1.5 ? `about ${number(Math.round(middle))} rounds` : "a round or less";
    return `1 cell = ${number(t.width * merged)} ${run.clock === "seconds" ? "s" : t.width * merged === 1 ? "virtual second" : run.clock}, ${each}`;
  }), same = new Set(texts).size === 1, named = same ? texts.slice(0, 1) : texts.map((text, i) => `${runs[i].name}: ${text}`);
  const some = every ? `; ${every} of ${rows} workers are drawn round by round` : "";
  const without = runs.some((run) => !run.charts.timeline.each);
  const more = without && !page.follow ? "; this page has too many rounds to hold each of them: orlomo watch shows them" : "; zoom in to see every round";
  return named.join("; ") + some + more + ".";
}

function zoomTime(times, middle = null) {
  const whole = wholeRange(), [from, to] = span || whole, centre = middle ?? (from + to) / 2;
  limited(centre - (centre - from) * times, centre + (to - centre) * times, whole);
}

function moveTime(share) {
  const whole = wholeRange(), [from, to] = span || whole, by = share * (to - from);
  const shift = Math.max(whole[0] - from, Math.min(whole[1] - to, by));
  limited(from + shift, to + shift, whole);
}

function limited(from, to, whole) {
  const left = Math.max(from, whole[0]), right = Math.min(to, whole[1]);
  if (right - left < 1e-7 * (whole[1] - whole[0])) return;
  setSpan(right - left > 0.999 * (whole[1] - whole[0]) ? null : [left, right]);
}

function pointers(place, tip) { // drag to zoom in, double-click for all, two fingers or Ctrl and the wheel to zoom
  const down = new Map();
  let begin = null, pinch = null;
  const band = element("div", "", { className: "band", hidden: true });
  place.parentElement.append(band);
  const time = (canvas, x) => {
    const view = canvas.view, box = canvas.getBoundingClientRect();
    return view.from + ((x - box.left - view.left) / view.width) * (view.to - view.from);
  };
  place.addEventListener("pointerdown", (event) => {
    if (!event.target.view) return;
    down.set(event.pointerId, event.clientX);
    if (event.pointerType !== "mouse") showTip(tip, event, time(event.target, event.clientX));
    if (event.pointerType === "mouse" && event.button === 0) { begin = { canvas: event.target, x: event.clientX }; event.target.setPointerCapture(event.pointerId); }
    if (down.size === 2) pinch = { canvas: event.target, range: span || wholeRange(), xs: [...down.values()] };
  });
  place.addEventListener("pointermove", (event) => {
    if (down.has(event.pointerId)) down.set(event.pointerId, event.clientX);
    if (pinch && down.size === 2) {
      const [a, b] = [...down.values()], [c, d] = pinch.xs, times = Math.abs(c - d) / Math.max(20, Math.abs(a - b));
      const [from, to] = pinch.range, centre = time(pinch.canvas, (c + d) / 2);
      return limited(centre - (centre - from) * times, centre + (to - centre) * times, wholeRange());
    }
    if (begin) {
      const outer = place.parentElement.getBoundingClientRect(), inner = place.getBoundingClientRect();
      Object.assign(band.style, { left: `${Math.min(begin.x, event.clientX) - outer.left}px`, width: `${Math.abs(event.clientX - begin.x)}px`, top: `${inner.top - outer.top}px`, height: `${inner.height}px` });
      band.hidden = Math.abs(event.clientX - begin.x) < 4;
    }
    if (event.target.view && event.pointerType === "mouse") showTip(tip, event, time(event.target, event.clientX));
  });
  const end = (event) => {
    down.delete(event.pointerId);
    if (down.size < 2) pinch = null;
    if (begin && event.type === "pointerup" && Math.abs(event.clientX - begin.x) >= 4) limited(...[begin.x, event.clientX].map((x) => time(begin.canvas, x)).sort((a, b) => a - b), span || wholeRange());
    begin = null;
    band.hidden = true;
  };
  place.addEventListener("pointerup", end);
  place.addEventListener("pointercancel", end);
  place.addEventListener("pointerleave", () => { tip.hidden = true; });
  place.addEventListener("dblclick", () => setSpan(null));
  place.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !event.target.view) return;
    event.preventDefault();
    zoomTime(event.deltaY > 0 ? 1.25 : 0.8, time(event.target, event.clientX));
  }, { passive: false });
}

function showTip(tip, event, moment) {
  const canvas = event.target, { run, view } = canvas, box = canvas.getBoundingClientRect(), y = event.clientY - box.top;
  const text = y < view.top ? eventsAt(run, view, event.clientX - box.left) : whatAt(run, view, Math.floor((y - view.top) / view.height), moment);
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const outer = tip.parentElement.getBoundingClientRect();
  tip.style.left = `${Math.max(0, Math.min(event.clientX - outer.left + 12, outer.width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${event.clientY - outer.top + 16}px`;
}

function eventsAt(run, view, x) {
  return run.events.filter((one) => one.time !== null && Math.abs(at(view, one.time) - x) < 6).slice(0, 5).map((one) => `${number(one.time, 4)}: ${one.text}`).join("\n");
}

function whatAt(run, view, row, moment) {
  const t = run.charts.timeline, data = columns(t);
  if (row < 0 || row >= t.workers.length || moment < 0 || moment > t.end) return "";
  const who = `worker ${t.workers[row]}`, gone = t.away.row.findIndex((one, i) => one === row && t.away.begin[i] <= moment && moment < t.away.end[i]);
  if (gone >= 0) return `${who}: ${t.states[t.away.state[gone]]}\n${number(t.away.begin[gone], 4)} to ${number(t.away.end[gone], 4)}`;
  if (moment > (t.last[row] ?? 0)) return t.present[row] ? `${who}: no report after ${number(t.last[row], 4)}` : `${who}: gone`;
  const each = roundsOf(run, view, row);
  if (each && roundPixels(run, view, row) >= ROUND_PIXELS) {
    for (let i = each.first[row]; i < each.first[row + 1]; i++) {
      if (moment < each.before[i] || moment >= each.finish[i]) continue;
      const [wait, send] = [each.start[i] - each.before[i], each.finish[i] - each.start[i] - each.work[i]];
      return `${who}: a round from ${number(each.start[i], 5)} to ${number(each.finish[i], 5)}\ncomputing ${number(each.work[i])}, transfer ${number(Math.max(0, send))}` + (wait > 0 ? `\nbefore it, waited ${number(wait)}` : "");
    }
  }
  const cell = Math.min(t.cells - 1, Math.floor(moment / t.width)), place = row * t.cells + cell;
  const shares = IN_A_ROUND.filter((state) => data.shares[state]?.[place]).map((state) => `${state} ${percent(data.shares[state][place] / 255, 0)}`);
  return `${who}: ${number(cell * t.width, 4)} to ${number((cell + 1) * t.width, 4)}\n${plural(data.done[place], "round")} ended; ${shares.join(", ") || "nothing recorded"}`;
}

function roundsOf(run, view, row) { // those of this row that the page has; null: none
  const each = windowOf(run, view) || columns(run.charts.timeline).each;
  return each?.first && each.first[row] < each.first[row + 1] ? each : null;
}

function windowOf(run, view) { // what `orlomo watch` has answered, if it covers what is shown
  const found = windows.get(run.name);
  return found && found.from <= view.from && found.to >= Math.min(view.to, run.charts.timeline.end) ? found : null;
}

const MOST_ASKED = 15000; // rounds that `orlomo watch` is asked for at once

async function askForRounds(run, view) { // of a run whose rounds are too many for the page
  const t = run.charts.timeline, wide = view.to - view.from, near = t.workers.some((_, row) => roundPixels(run, view, row) >= ROUND_PIXELS);
  if (!page.follow || t.each || !near || windowOf(run, view) || (2 * wide * t.rounds) / t.end > MOST_ASKED || askForRounds.asking) return;
  askForRounds.asking = true;
  const from = view.from - wide / 2, to = view.to + wide / 2;
  const answer = await fetch(`rounds?from=${from}&to=${to}&workers=${t.workers.join(",")}`).then((found) => (found.ok ? found.json() : null)).catch(() => null);
  windows.set(run.name, answer ? rounds({ ...answer, from, to }, t.workers.length) : { from, to });
  askForRounds.asking = false;
  redraw();
}

document.addEventListener("span", redraw);
parts.push(timelines);
