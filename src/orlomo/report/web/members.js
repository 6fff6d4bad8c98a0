"use strict";
// The workers and what happened to them, as tables.

const FEW_WORKERS = 16; // up to so many are all listed; of more, the slowest, and the rest on demand
let allWorkers = false;

function workerTable(run) { // slowest first
  const own = run.uses.some((use) => use.data !== undefined), lost = run.uses.some((use) => use.lost > 0), absent = run.uses.some((use) => use.absent > 0);
  const slower = slowness(run), byTime = [...run.uses].sort((a, b) => (b.round_seconds ?? -1) - (a.round_seconds ?? -1));
  const headings = ["worker", ...(own ? ["data", "samples", "epochs of them"] : []), "a round takes", "rounds", "computing", "in transfer", "waiting", ...(lost ? ["lost work"] : []), ...(absent ? ["absent"] : []), "mean delay", "longest delay"];
  const unit = run.clock === "seconds" ? "s" : "virtual s";
  const cells = (use, name) => [
    name ?? use.worker, ...(own ? [use.data ?? "", use.samples ?? "", number(use.epochs)] : []),
    use.round_seconds === null ? "–" : `${number(use.round_seconds)} ${unit}` + (name === undefined && slower.get(use.worker) >= 1.5 ? ` (${slower.get(use.worker).toFixed(1)}x)` : ""),
    number(use.rounds), percent(use.computing), percent(use.transfer), percent(use.waiting), ...(lost ? [percent(use.lost)] : []), ...(absent ? [percent(use.absent)] : []), number(use.mean_delay), number(use.max_delay)];
  const many = byTime.length > FEW_WORKERS, slow = many ? byTime.slice(0, 8) : byTime, reported = byTime.filter((use) => use.round_seconds !== null);
  const rows = slow.map((use) => cells(use));
  if (many && reported.length) rows.push(cells(medianUse(reported), `median of ${number(reported.length)}`), cells(reported.at(-1), `${reported.at(-1).worker} (fastest)`));
  const target = card("workers", "uses", { title: "How the workers spent their time", note: "Slowest first.", wide: true });
  table(target, headings, many && allWorkers ? byTime.map((use) => cells(use)) : rows, "Workers, slowest first");
  target.querySelector(":scope > button")?.remove();
  if (many) target.append(element("button", allWorkers ? "Only the slowest" : `All ${number(byTime.length)} workers`, { type: "button", onclick: () => { allWorkers = !allWorkers; workerTable(run); } }));
}

function medianUse(uses) { // of each number on its own
  const middle = (name) => uses.map((use) => use[name] ?? 0).sort((a, b) => a - b)[Math.floor((uses.length - 1) / 2)];
  return Object.fromEntries(["round_seconds", "rounds", "computing", "transfer", "waiting", "lost", "absent", "mean_delay", "max_delay"].map((name) => [name, middle(name)]));
}

const FEW_EVENTS = 20;
let allEvents = false;

function eventTable(run) { // crashes, returns, joins, departures, changes of settings
  const target = card("events", "events", { title: "What happened", note: "Also marked above the rows of the timeline.", wide: true });
  cardOf("events").hidden = !run.events.length;
  if (!run.events.length) return;
  const shown = allEvents ? run.events : run.events.slice(0, FEW_EVENTS);
  table(target, [run.clock, "what happened"], shown.map((event) => [event.time === null ? "–" : number(event.time, 4), event.text]), "What happened");
  target.querySelector(":scope > button")?.remove();
  if (run.events.length > FEW_EVENTS) target.append(element("button", allEvents ? "Only the first" : `All ${number(run.events.length)} events`, { type: "button", onclick: () => { allEvents = !allEvents; eventTable(run); } }));
}

parts.push(workerTable, eventTable);
