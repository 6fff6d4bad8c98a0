"use strict";
// Zoom: by mouse (plotly), by buttons and keys, by two fingers; one finger scrolls. Charts over the run's time share it.

const zoomed = {}; // by chart: the x range that was chosen, where one was
const linked = new Set(); // charts whose x axis is the run's time
let span = null; // the stretch of time that they show; null: all. A `span` event on document tells of a change.

function linkRange(id) { // call it after `draw`, at every drawing
  linked.add(id);
  if (span && String(zoomed[id]) !== String(span)) show(id, span);
}

function show(id, range) { // null: all
  const target = document.getElementById(id), { x, y } = drawings[id]?.first || {};
  if (!x || !target.classList.contains("js-plotly-plot")) return;
  if (range) zoomed[id] = range; else delete zoomed[id];
  const all = (name, axis) => (axis.range ? { [`${name}.range`]: [...axis.range] } : { [`${name}.autorange`]: axis.autorange ?? true });
  Plotly.relayout(target, range ? { "xaxis.range": [...range] } : { ...all("xaxis", x), ...all("yaxis", y) });
}

function setSpan(range) {
  if (String(range) === String(span)) return;
  span = range;
  for (const id of linked) if (String(zoomed[id] ?? null) !== String(range)) show(id, range);
  document.dispatchEvent(new CustomEvent("span", { detail: range }));
}

function choose(id, range) { // what a user has asked for
  if (linked.has(id)) setSpan(range);
  if (String(zoomed[id] ?? null) !== String(range)) show(id, range);
}

function keepZoom(id, layout) { // in `draw`: new data leave the range as it was chosen
  if (zoomed[id]) layout.xaxis = { ...layout.xaxis, range: [...zoomed[id]], autorange: false };
}

function watchZoom(id) { // in `draw`
  const target = document.getElementById(id);
  if (target.dataset.watched && target.onZoom === target._ev) return;
  target.dataset.watched = "yes";
  target.onZoom = target._ev; // plotly makes a new one after a purge
  target.on("plotly_relayout", (change) => {
    const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
    if (from === undefined) return;
    zoomed[id] = [from, to];
    if (linked.has(id)) setSpan([from, to]);
  });
  target.on("plotly_doubleclick", () => choose(id, null));
}

function zoom(id, factor, move = 0) {
  const range = document.getElementById(id)._fullLayout?.xaxis.range.map(Number);
  if (!range || range.some(Number.isNaN)) return;
  const half = (range[1] - range[0]) / 2, middle = range[0] + half + 2 * half * move;
  choose(id, [middle - half * factor, middle + half * factor]);
}

const ACTIONS = { "+": [0.5], "=": [0.5], "-": [2], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25], 0: null };

function zoomable(target, tools) {
  const act = (key) => (ACTIONS[key] ? zoom(target.id, ...ACTIONS[key]) : choose(target.id, null));
  const button = (text, title, key) => {
    const made = element("button", text, { type: "button", className: "quiet", title, onclick: () => act(key) });
    made.setAttribute("aria-label", title);
    return made;
  };
  tools.append(element("span", [button("−", "Zoom out", "-"), button("+", "Zoom in", "+"), button("All", "Show all", "0")], { className: "zoom" }));
  target.addEventListener("keydown", (event) => {
    if (event.target !== target || !(event.key in ACTIONS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(event.key);
  });
  // Plotly would take every touch for a zoom. It sees none of them: one finger scrolls, two zoom here.
  let pinch = null;
  const apart = (touches) => Math.max(20, Math.abs(touches[0].clientX - touches[1].clientX));
  target.addEventListener("touchstart", (event) => {
    event.stopPropagation();
    const range = target._fullLayout?.xaxis.range.map(Number);
    pinch = event.touches.length === 2 && range ? { apart: apart(event.touches), range } : null;
  }, { capture: true, passive: true });
  target.addEventListener("touchmove", (event) => {
    if (!pinch || event.touches.length !== 2 || !event.cancelable) return; // not to be cancelled: it scrolls
    event.preventDefault();
    const half = (pinch.range[1] - pinch.range[0]) / 2, middle = pinch.range[0] + half, factor = pinch.apart / apart(event.touches);
    choose(target.id, [middle - half * factor, middle + half * factor]);
  }, { capture: true, passive: false });
  target.addEventListener("touchend", () => { pinch = null; }, { capture: true, passive: true });
}
