// The nodes as a grid of cells on a canvas: one cell for each node, also for dead nodes that still have pods.

import { clip } from "/static/lanes.js";

export const COLORINGS = ["state", "cpu", "memory", "pods", "zone"];

export function layout(count, width) {
  const size = count > 2000 ? 10 : count > 500 ? 14 : count > 100 ? 22 : count > 24 ? 44 : Math.min(100, Math.floor(width / 3));
  const columns = Math.max(1, Math.floor(width / size));
  return { size, columns, height: Math.max(1, Math.ceil(count / columns)) * size };
}

const order = { sign: "", ids: [] };
const collator = new Intl.Collator("en", { numeric: true });

// The ids of the nodes, ordered by name. Computed anew only when there are other nodes.
function ordered(nodes) {
  let sum = 0;
  for (const id of nodes.keys()) sum += id;
  const sign = `${nodes.size}/${sum}`;
  if (order.sign !== sign) {
    order.sign = sign;
    order.ids = [...nodes.values()].sort((a, b) => collator.compare(a[4], b[4])).map((node) => node[3]);
  }
  return order.ids;
}

// Returns the ids of the nodes in the order of their cells.
export function draw(canvas, state, coloring, selected) {
  const style = getComputedStyle(canvas);
  const color = (name) => style.getPropertyValue(name).trim();
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const ids = ordered(state.nodes);
  const { size, columns, height } = layout(ids.length, width);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const zones = [...new Set([...state.nodes.values()].map((node) => node[8]))].sort();
  const palette = Array.from({ length: 6 }, (_, index) => color(`--term${index}`));
  const colors = { bad: color("--bad"), frozen: color("--frozen"), tainted: color("--fault"), good: color("--good"), muted: color("--muted"), empty: color("--empty"), full: color("--accent"), text: color("--text") };
  const gap = size > 12 ? 3 : 1;
  ids.forEach((id, index) => {
    const node = state.nodes.get(id);
    const used = state.usage.get(id) ?? [0, 0, 0];
    const x = (index % columns) * size;
    const y = Math.floor(index / columns) * size;
    const dead = node[5] === "not-ready" || node[5] === "gone";
    pen.globalAlpha = 1;
    if (dead) pen.fillStyle = colors.bad;
    else if (node[5] === "cordoned") pen.fillStyle = colors.frozen;
    else if (node[5] === "tainted") pen.fillStyle = colors.tainted;
    else if (coloring === "zone") pen.fillStyle = palette[zones.indexOf(node[8]) % palette.length];
    else if (coloring === "state") pen.fillStyle = colors.good;
    else {
      pen.fillStyle = colors.empty;
      pen.fillRect(x, y, size - gap, size - gap);
      pen.fillStyle = colors.full;
      pen.globalAlpha = Math.min(1, share(node, used, coloring));
    }
    pen.fillRect(x, y, size - gap, size - gap);
    pen.globalAlpha = 1;
    if (!dead && coloring === "state" && size >= 14) {
      const part = Math.min(1, share(node, used, "cpu"));
      pen.fillStyle = "rgba(0,0,0,0.28)";
      pen.fillRect(x, y + (size - gap) * (1 - part), size - gap, (size - gap) * part);
    }
    if (size >= 44) {
      const middle = x + (size - gap) / 2;
      const large = size > 44;
      pen.fillStyle = color("--on-term");
      pen.textAlign = "center";
      pen.font = `bold ${large ? 30 : 15}px ${style.fontFamily}`;
      pen.fillText(`${dead ? "✕ " : ""}${used[0]}`, middle, y + size / 2 + (large ? 6 : 4));
      if (large) {
        pen.font = `14px ${style.fontFamily}`;
        pen.fillText(clip(pen, node[4], size - gap - 8), middle, y + 20);
        pen.fillText(node[5] === "ready" ? `${used[0] === 1 ? "pod" : "pods"}` : node[5], middle, y + size - gap - 10);
      }
    }
    if (id === selected) {
      pen.strokeStyle = colors.text;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, size - gap - 2, size - gap - 2);
    }
  });
  return ids;
}

export function share(node, used, coloring) {
  if (coloring === "pods") return used[0] / 110;
  return coloring === "memory" ? used[2] / (node[7] || 1) : used[1] / (node[6] || 1);
}
