"use strict";
// Inflates plotly.js, which is in the page as compressed text, and draws the page.

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  document.head.append(element("script", await inflated(document.getElementById("plotly").textContent)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (page.runs) render(); });
  if (page.follow) follow(); else render();
}

start();
