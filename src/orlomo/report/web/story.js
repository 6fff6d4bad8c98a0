"use strict";
// What is said first: sentences on the runs, and one row per method. The reader may choose another target (curves.js).

const goal = { value: null }; // the target that the reader has chosen; null: that of the page
const targetValue = () => goal.value ?? page.target?.value ?? null;
const targetText = (value) => `${Number(value.toPrecision(10))}${page.target.percent ? "%" : ""}`;

function told() {
  const body = card("story", "told", { wide: true });
  const marked = (text) => text.split(/(\b\d+(?:\.\d+)?x\b)/).map((part, i) => (i % 2 ? element("b", part) : part));
  body.replaceChildren(...page.story.map((text) => element("p", marked(text), { className: text.startsWith("Warning: ") ? "alert" : "" })));
}

// The same rules as in speed.py.

function reached(record, value) { // the seconds at the first evaluation that reaches the target
  const room = 1e-9 * Math.abs(value), higher = page.target.higher;
  const place = record.value.findIndex((one) => (higher ? one >= value - room : one <= value + room));
  return place < 0 ? Infinity : record.seconds[place];
}

function median(values) {
  const ordered = [...values].sort((a, b) => a - b), middle = (ordered.length - 1) / 2;
  return (ordered[Math.floor(middle)] + ordered[Math.ceil(middle)]) / 2;
}

function rounded(seconds) {
  if (!Number.isFinite(seconds) || seconds === 0) return seconds;
  return Number(seconds.toFixed(Math.min(100, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(seconds)))))));
}

function timeText(seconds) {
  if (!Number.isFinite(seconds)) return "not reached";
  const value = rounded(seconds);
  return Math.abs(value) >= 100 ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : String(Number(value.toPrecision(3)));
}

const ratioText = (value) => (value < 10 ? `${value.toFixed(2)}x` : value < 100 ? `${value.toFixed(1)}x` : `${Math.round(value).toLocaleString("en")}x`);

function timesTo(value) { // per method: how many of its seeds reached the target, and the median of their times
  return page.methods.map((row) => {
    const times = row.runs.map((place) => reached(page.target.records[place], value));
    times.push(...Array(row.seeds - row.runs.length).fill(Infinity)); // runs that diverged
    return { count: times.filter(Number.isFinite).length, seconds: median(times) };
  });
}

function targetCells(value) {
  const times = timesTo(value), place = page.target.reference, base = place === null ? null : times[place];
  return times.map(({ count, seconds }, i) => {
    const { seeds } = page.methods[i];
    if (count < seeds) return count ? `${count} of ${seeds} seeds` : "not reached";
    const below = rounded(seconds), compared = base && base.count === page.methods[place].seeds && below > 0;
    return compared ? `${timeText(seconds)} (${ratioText(rounded(base.seconds) / below)})` : timeText(seconds);
  });
}

function methods() {
  const rows = page.methods, value = page.target ? targetValue() : null;
  const cells = value === null ? rows.map((row) => row.to_target) : targetCells(value);
  const finals = [...new Set(rows.flatMap((row) => Object.keys(row.final)))];
  const faults = rows.some((row) => row.faults !== "-"), seeds = rows.some((row) => row.seeds > 1);
  const headings = ["method", ...(seeds ? ["seeds"] : []), ...(value === null ? [] : [`time to ${targetText(value)}`]), ...(rows.length > 1 ? ["time for equal work"] : []), ...finals, "computing", "delay 50% / 95% / max", ...(faults ? ["faults"] : [])];
  const body = card("methods", "methods", { title: rows.length > 1 ? "One row per method" : "In numbers", note: page.times, wide: true });
  retitle("methods", rows.length > 1 ? "One row per method" : "In numbers", page.times);
  const strong = (text) => element("span", text.split(/(\([^)]*x\))/).map((part, i) => (i % 2 ? element("b", part) : part)));
  table(body, headings, rows.map((row, i) => [
    element("span", [swatch({ method: row.name }), row.method]), ...(seeds ? [row.seeds] : []), ...(value === null ? [] : [strong(cells[i])]), ...(rows.length > 1 ? [strong(row.equal_work)] : []),
    ...finals.map((name) => row.final[name] ?? "–"), percent(row.computing, 0), row.delays, ...(faults ? [row.faults] : []),
  ]), "Methods");
}

parts.push(told, methods);
