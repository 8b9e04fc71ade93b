"use strict";
// Reads #data, which graphtheory/lab/report/page.py writes; arrays are base64, little-endian.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const MOST_ROWS = 100;

function array(Kind, text) {
  if (text === null) return null;
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return new Kind(bytes.buffer);
}

const count = data.nodes;
const places = array(Float32Array, data.places); // x, y of each node within -1..1
const group = array(Uint16Array, data.group);
const lines = array(Uint32Array, data.lines); // both ends of each line that is drawn
const graphs = data.graphs.map((graph) => ({
  indptr: array(Uint32Array, graph.indptr),
  indices: array(Uint32Array, graph.indices),
  distance: array(Uint8Array, graph.distance),
}));
const layers = data.layers.map((layer) => ({
  graph: graphs[layer.graph],
  heads: layer.heads,
  weights: array(Uint16Array, layer.weights), // [heads, edges], 65535 is 1
}));
const chosen = { node: null, layer: 0, head: -1, side: "out", found: [] };

// Attention ----------------------------------------------------------------------------------------

/** The edges of each sending node: receivers and numbers of the edges; made once for a graph. */
function reversed(graph) {
  if (graph.reversed) return graph.reversed;
  const edges = graph.indices.length;
  const start = new Uint32Array(count + 1);
  for (const sender of graph.indices) start[sender + 1]++;
  for (let i = 0; i < count; i++) start[i + 1] += start[i];
  const next = start.slice(), receiver = new Uint32Array(edges), edge = new Uint32Array(edges);
  for (let row = 0; row < count; row++) {
    for (let e = graph.indptr[row]; e < graph.indptr[row + 1]; e++) {
      const at = next[graph.indices[e]]++;
      receiver[at] = row;
      edge[at] = e;
    }
  }
  return (graph.reversed = { start, receiver, edge });
}

function weightOf(layer, head, edge) {
  const edges = layer.graph.indices.length;
  if (head >= 0) return layer.weights[head * edges + edge] / 65535;
  let sum = 0;
  for (let h = 0; h < layer.heads; h++) sum += layer.weights[h * edges + edge];
  return sum / 65535 / layer.heads;
}

/** Nodes at the other end with their weights, the largest first. */
function attention(node, layer, head, side) {
  const graph = layer.graph, found = [];
  const add = (other, edge) => found.push({
    node: other,
    weight: weightOf(layer, head, edge),
    hops: graph.distance && graph.distance[edge],
  });
  if (side === "out") {
    for (let e = graph.indptr[node]; e < graph.indptr[node + 1]; e++) add(graph.indices[e], e);
  } else {
    const { start, receiver, edge } = reversed(graph);
    for (let i = start[node]; i < start[node + 1]; i++) add(receiver[i], edge[i]);
  }
  return found.sort((a, b) => b.weight - a.weight || a.node - b.node);
}

// Text ---------------------------------------------------------------------------------------------

const percent = (weight) => (100 * weight).toFixed(2) + " %";

function tell() {
  const { node, layer, head, side, found } = chosen;
  const table = document.querySelector("table"), body = table.querySelector("tbody");
  table.hidden = !found.length;
  body.replaceChildren();
  const what = `layer ${layer + 1}, ${head < 0 ? "mean of the heads" : "head " + (head + 1)}`;
  const label = group ? `, label ${data.groups[group[node]]}` : "";
  const who = `Node ${node}${label}, ${what}: `;
  const nodes = found.length === 1 ? "1 node" : `${found.length.toLocaleString("en")} nodes`;
  let text;
  if (!found.length) text = side === "out" ? "it attends to no node." : "no node attends to it.";
  else if (side === "in") text = `${nodes} attend${found.length === 1 ? "s" : ""} to it.`;
  else text = `it attends to ${nodes}; uniform attention would give each ${percent(1 / found.length)}.`;
  find("said").textContent = who + text;
  find("hops").hidden = !found.length || found[0].hops === null;
  find("labeled").hidden = !group;
  for (const row of found.slice(0, MOST_ROWS)) {
    const line = body.insertRow();
    const button = document.createElement("button");
    button.textContent = row.node + (row.node === node ? " (itself)" : "");
    button.addEventListener("click", () => choose(row.node));
    line.insertCell().append(button);
    if (group) {
      const cell = line.insertCell();
      cell.className = "word";
      cell.textContent = data.groups[group[row.node]];
    }
    if (row.hops !== null) line.insertCell().textContent = row.hops;
    line.insertCell().textContent = percent(row.weight);
    const bar = document.createElement("span");
    bar.className = "bar";
    bar.style.width = (100 * row.weight) / Math.max(found[0].weight, 1e-9) + "%";
    line.insertCell().append(bar);
  }
  const rest = found.slice(MOST_ROWS), sum = rest.reduce((all, row) => all + row.weight, 0);
  find("rest").textContent = rest.length
    ? `And ${rest.length.toLocaleString("en")} more with ${percent(sum)} together.` : "";
}

// Drawing ------------------------------------------------------------------------------------------

// Okabe and Ito's palette with a shape for each color, since color alone is not seen by everyone.
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#777777"];
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "bar"];
const base = find("graph"), front = find("chosen"), stage = find("stage");
const view = { zoom: 1, x: 0, y: 0, width: 1, height: 1 };
let moving = false, waiting = false;

const color = (g) => COLORS[g % COLORS.length];
const shape = (g) => SHAPES[g % SHAPES.length];
const scale = () => 0.47 * Math.min(view.width, view.height) * view.zoom;
const screenX = (node) => view.width / 2 + view.x + scale() * places[2 * node];
const screenY = (node) => view.height / 2 + view.y - scale() * places[2 * node + 1];

function outline(path, kind, x, y, r) {
  if (kind === "circle") { path.moveTo(x + r, y); path.arc(x, y, r, 0, 2 * Math.PI); return; }
  const corners = {
    square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
    triangle: [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
    diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
    down: [[0, 1.2], [1.1, -0.8], [-1.1, -0.8]],
    bar: [[-1.4, -0.55], [1.4, -0.55], [1.4, 0.55], [-1.4, 0.55]],
  }[kind];
  corners.forEach(([dx, dy], i) => path[i ? "lineTo" : "moveTo"](x + r * dx, y + r * dy));
  path.closePath();
}

function cleared(canvas) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

function drawGraph() {
  const pen = cleared(base), style = getComputedStyle(document.documentElement);
  const r = Math.min(9, Math.max(1.6, (90 / Math.sqrt(count)) * Math.sqrt(view.zoom)));
  if (!moving || lines.length < 40000) {
    pen.strokeStyle = style.getPropertyValue("--edge");
    pen.globalAlpha = Math.min(0.6, Math.max(0.08, 2000 / lines.length));
    pen.lineWidth = 0.7;
    pen.beginPath();
    for (let i = 0; i < lines.length; i += 2) {
      pen.moveTo(screenX(lines[i]), screenY(lines[i]));
      pen.lineTo(screenX(lines[i + 1]), screenY(lines[i + 1]));
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;
  const paths = data.groups.map(() => new Path2D());
  for (let node = 0; node < count; node++) {
    const g = group ? group[node] : 0;
    outline(paths[g], shape(g), screenX(node), screenY(node), r);
  }
  paths.forEach((path, g) => { pen.fillStyle = color(g); pen.fill(path); });
}

function drawChosen() {
  const pen = cleared(front), { node, found } = chosen;
  base.classList.toggle("back", node !== null);
  if (node === null) return;
  const style = getComputedStyle(document.documentElement);
  const most = Math.max(found.length ? found[0].weight : 0, 1e-9);
  const x = screenX(node), y = screenY(node);
  pen.strokeStyle = style.getPropertyValue("--accent");
  for (const row of [...found].reverse()) {
    const share = row.weight / most;
    pen.globalAlpha = 0.25 + 0.75 * share;
    pen.lineWidth = 0.5 + 4.5 * share;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(screenX(row.node), screenY(row.node));
    pen.stroke();
  }
  pen.globalAlpha = 1;
  const mark = (other, r, line) => {
    const g = group ? group[other] : 0, path = new Path2D();
    outline(path, shape(g), screenX(other), screenY(other), r);
    pen.fillStyle = color(g);
    pen.fill(path);
    pen.lineWidth = line;
    pen.strokeStyle = style.getPropertyValue(line > 1 ? "--ink" : "--paper");
    pen.stroke(path);
  };
  for (const row of [...found].reverse()) mark(row.node, 3 + 5 * Math.sqrt(row.weight / most), 1);
  mark(node, 8, 3);
}

function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawGraph(); drawChosen(); });
}

function legend() {
  if (!group) return;
  find("legend").append(...data.groups.map((name, g) => {
    const row = document.createElement("div");
    const path = { words: [], moveTo(x, y) { this.words.push(`M${x} ${y}`); },
      lineTo(x, y) { this.words.push(`L${x} ${y}`); }, closePath() { this.words.push("Z"); },
      arc(x, y, r) { this.words.push(`A${r} ${r} 0 1 1 ${x - r} ${y}A${r} ${r} 0 1 1 ${x + r} ${y}Z`); } };
    outline(path, shape(g), 8, 7, 5);
    row.innerHTML = `<svg width="16" height="14" aria-hidden="true"><path fill="${color(g)}"/></svg>`;
    row.querySelector("path").setAttribute("d", path.words.join(""));
    row.append(name);
    return row;
  }));
}

// Choosing -----------------------------------------------------------------------------------------

function choose(node) {
  chosen.node = node;
  find("node").value = node;
  chosen.found = attention(node, layers[chosen.layer], chosen.head, chosen.side);
  tell();
  const x = screenX(node), y = screenY(node);
  if (x < 0 || y < 0 || x > view.width || y > view.height) {
    view.x += view.width / 2 - x;
    view.y += view.height / 2 - y;
    draw();
  } else drawChosen();
}

const again = () => { if (chosen.node !== null) choose(chosen.node); };

function typed() {
  const text = find("node").value.trim();
  const node = Number(text);
  if (text !== "" && Number.isInteger(node) && node >= 0 && node < count) return choose(node);
  find("said").textContent = `Node: got "${text}", expected 0 to ${count - 1}.`;
}

function nearest(event) {
  const box = stage.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  let best = null, least = 20 * 20;
  for (let node = 0; node < count; node++) {
    const off = (screenX(node) - x) ** 2 + (screenY(node) - y) ** 2;
    if (off < least) { least = off; best = node; }
  }
  return best;
}

function zoom(factor, x = view.width / 2, y = view.height / 2) {
  const bounded = Math.min(200, Math.max(0.5, view.zoom * factor)) / view.zoom;
  view.x = (x - view.width / 2) * (1 - bounded) + view.x * bounded;
  view.y = (y - view.height / 2) * (1 - bounded) + view.y * bounded;
  view.zoom *= bounded;
  draw();
}

function whole() { Object.assign(view, { zoom: 1, x: 0, y: 0 }); draw(); }

function pointers() {
  const held = new Map();
  let moved = 0;
  front.addEventListener("pointerdown", (event) => {
    front.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event);
    moved = held.size > 1 ? 99 : 0;
  });
  front.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) {
      const node = nearest(event);
      front.title = node === null ? "" : `node ${node}`;
      return;
    }
    const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
    moved += Math.abs(dx) + Math.abs(dy);
    if (moved < 4) return;
    moving = true;
    if (held.size === 1) { view.x += dx; view.y += dy; } else {
      const other = [...held.values()].find((e) => e.pointerId !== event.pointerId);
      const apart = (e) => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY);
      const box = stage.getBoundingClientRect();
      zoom(apart(event) / Math.max(apart(before), 1), other.clientX - box.left, other.clientY - box.top);
    }
    held.set(event.pointerId, event);
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) front.addEventListener(end, (event) => {
    if (held.delete(event.pointerId) && end === "pointerup" && moved < 4) {
      const node = nearest(event);
      if (node !== null) choose(node);
    }
    moving = false;
    draw();
  });
  front.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { node, found } = chosen;
  const strongest = found.find((row) => row.node !== node);
  const act = {
    ArrowRight: () => choose(node === null ? 0 : (node + 1) % count),
    ArrowLeft: () => choose(node === null ? count - 1 : (node + count - 1) % count),
    Enter: () => strongest && choose(strongest.node),
    "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: whole,
  }[event.key];
  if (act) { event.preventDefault(); act(); }
}

function heads() {
  const number = layers[chosen.layer].heads, kept = chosen.head < number ? chosen.head : -1;
  const options = [...Array(number).keys()].map((h) => new Option(`${h + 1}`, h));
  find("head").replaceChildren(new Option("mean", -1), ...options);
  find("head").value = chosen.head = kept;
}

find("layer").append(...layers.map((_, l) => new Option(`${l + 1}`, l)));
find("layer").addEventListener("change", (event) => {
  chosen.layer = Number(event.target.value);
  heads();
  again();
});
find("head").addEventListener("change", (event) => { chosen.head = Number(event.target.value); again(); });
find("side").addEventListener("change", (event) => { chosen.side = event.target.value; again(); });
find("node").addEventListener("change", typed);
document.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); typed(); });
find("fit").addEventListener("click", whole);
stage.addEventListener("keydown", keys);
pointers();
heads();
legend();
new ResizeObserver(() => {
  const box = stage.getBoundingClientRect();
  Object.assign(view, { width: Math.max(box.width, 1), height: Math.max(box.height, 1) });
  draw();
}).observe(stage);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
