// The lanes: one row for each component on a common time axis, drawn on a canvas.

import { clock, duration } from "/static/model.js";

export const TOP = 26;
const QUIET = 24;
const BUSY = 46;
const STRIP = 20; // the upper part of a busy lane, with marks and their labels
const COLORS = 6;
const TINTS = { fault: "--fault", action: "--accent", fenced: "--bad", evicted: "--fault", taint: "--fault", "node-down": "--bad", "node-up": "--good" };
const NEAR = 12; // pixels within which equal marks are drawn as one

export function gutter(width) {
  return width < 600 ? 116 : 160;
}

// The lanes from top to bottom: [name, y, height]. A lane in which nothing has happened yet is low.
function layout(model) {
  let y = TOP;
  return [...model.lanes.keys()].map((name) => {
    const tall = model.busy.has(name) ? BUSY : QUIET;
    y += tall;
    return [name, y - tall, tall];
  });
}

// `view`: {from, to, at}: the visible range and the cursor (Unix seconds). Returns the drawn shapes for hit tests.
export function draw(canvas, model, view) {
  const style = getComputedStyle(canvas);
  const color = (name) => style.getPropertyValue(name).trim();
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const lanes = layout(model);
  const tall = Math.max(120, ...lanes.map(([, y, height]) => y + height + 8));
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    canvas.style.height = `${tall}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, tall);
  const left = gutter(width);
  const scale = (width - left) / (view.to - view.from);
  const x = (time) => left + (time - view.from) * scale;
  const shapes = [];
  const labels = new Map(lanes.map(([name]) => [name, []])); // lane -> [{at, texts, tint, sign}]
  const rows = new Map(lanes.map(([name, y, height]) => [name, { y, height, bar: height === BUSY ? y + STRIP : y + 3, thick: height === BUSY ? BUSY - STRIP - 4 : QUIET - 6 }]));
  const font = (size, weight = "") => (pen.font = `${weight} ${size}px ${style.fontFamily}`);
  pen.textBaseline = "middle";

  font(13);
  axis(pen, view, x, left, width, tall, color);
  const state = model.state;
  for (const [name, y, height] of lanes) {
    pen.fillStyle = color("--line");
    pen.fillRect(0, y + height - 1, width, 1);
    const now = model.processAt(name, view.at);
    const leading = leads(state, name);
    pen.fillStyle = now === "down" ? color("--bad") : now === "frozen" ? color("--frozen") : height === QUIET ? color("--muted") : color("--text");
    pen.textAlign = "left";
    font(height === BUSY && width >= 600 ? 17 : 13, leading || now !== "up" ? "bold" : "");
    const sign = now === "down" ? " ✕" : now === "frozen" ? " ❄" : leading ? " ★" : "";
    const waits = now === "up" && model.waits(state, name);
    const shown = clip(pen, name + sign, left - 8);
    const below = waits && height === BUSY;
    pen.fillText(shown, 4, y + height / 2 - (below ? 8 : 0));
    if (waits) {
      const after = below ? 4 : 12 + pen.measureText(shown).width;
      font(12);
      pen.fillStyle = color("--muted");
      pen.fillText("waiting", after, y + height / 2 + (below ? 10 : 0));
    }
  }

  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left, tall);
  pen.clip();

  for (const election of model.elections()) {
    let index = 0;
    for (const { term, gap, outage } of model.termsOf(election)) {
      const [, began, , , token, holder, ended, reason] = term;
      const end = ended ?? Math.max(model.last, view.at);
      const row = rows.get(holder);
      index++;
      if (row === undefined) continue;
      if (outage !== null && outage >= 1 && began >= view.from && began - outage / 1000 <= view.to) {
        const from = x(began - outage / 1000);
        pen.fillStyle = color("--gap");
        pen.fillRect(from, row.bar, Math.max(2, x(began) - from), row.thick);
        const text = `${election} had no working leader for ${duration(outage)}, from the last heartbeat until ${holder} was elected; no leader was elected for ${duration(gap)}`;
        shapes.push([from, row.y, Math.max(30, x(began) - from), row.height, text]);
        labels.get(holder).push({ at: from, texts: [`${duration(outage)} without a working leader`, duration(outage)], tint: color("--bad"), sign: "pill" });
      }
      if (end < view.from || began > view.to) continue;
      const from = x(began);
      const length = Math.max(3, x(end) - from);
      pen.fillStyle = color(`--term${index % COLORS}`);
      round(pen, from, row.bar, length, row.thick, 4);
      const visible = Math.max(from, left);
      font(14);
      pen.fillStyle = color("--on-term");
      const room = from + length - visible - 12;
      const shown = [`${election} · token ${token}`, `token ${token}`, String(token)].find((each) => pen.measureText(each).width <= room);
      if (shown) pen.fillText(shown, visible + 7, row.bar + row.thick / 2 + 1);
      const told = `${holder} led ${election} with token ${token} from ${clock(began, 3)}`;
      shapes.push([from, row.bar, length, row.thick, `${told}${ended ? ` for ${duration((ended - began) * 1000)}: ${reason || "ended"}` : ""}`]);
    }
  }

  for (const [name, states] of model.processes) {
    const row = rows.get(name);
    for (let index = 0; index < states.length; index++) {
      const [begun, kind] = states[index];
      if (kind === "up") continue;
      const ended = states[index + 1]?.[0] ?? Math.max(model.last, view.at);
      if (ended < view.from || begun > view.to) continue;
      const tint = kind === "down" ? color("--bad") : color("--frozen");
      const length = Math.max(3, x(ended) - x(begun));
      hatch(pen, x(begun), row.bar, length, row.thick, tint, color("--surface"));
      const told = `${name} is ${kind} since ${clock(begun, 3)}, for ${duration((ended - begun) * 1000)}`;
      shapes.push([x(begun), row.bar, Math.max(6, length), row.thick, told]);
      font(13, "bold");
      if (length > pen.measureText(kind).width + 16) {
        const middle = Math.max(left, x(begun)) / 2 + Math.min(width, x(ended)) / 2;
        const wide = pen.measureText(kind).width + 10;
        pen.fillStyle = color("--surface");
        round(pen, middle - wide / 2, row.bar + 2, wide, row.thick - 4, 4);
        pen.fillStyle = tint;
        pen.fillText(kind, middle - wide / 2 + 5, row.bar + row.thick / 2 + 1);
      }
    }
  }

  for (const group of grouped(model.marks.values(), view, x)) {
    const { lane, kind, at, end, marks } = group;
    const row = rows.get(lane);
    if (row === undefined) continue;
    const tint = color(TINTS[kind] ?? "--muted");
    pen.fillStyle = tint;
    if (kind === "fault" || kind === "action") {
      pen.globalAlpha = 0.5;
      for (let y = TOP; y < tall; y += 9) pen.fillRect(at, y, 1, 5);
      pen.globalAlpha = 1;
    }
    if (end - at > 4) {
      pen.globalAlpha = 0.35;
      pen.fillRect(at, row.y + STRIP - 5, end - at, 4);
      pen.globalAlpha = 1;
    }
    labels.get(lane).push({ at, texts: texts(kind, marks), tint, sign: kind });
    const told = marks.slice(0, 5).map((mark) => `${clock(mark[1], 3)}  ${mark[6]}`);
    if (marks.length > 5) told.push(`and ${marks.length - 5} more`);
    shapes.push([at - 8, row.y, Math.max(16, end - at), STRIP, told.join("\n")]);
  }

  for (const [name, found] of labels) drawLabels(pen, found, rows.get(name).y + STRIP / 2, left, width, x(view.at), font, color);

  pen.fillStyle = color("--accent");
  pen.fillRect(x(view.at) - 1, 0, 2, tall);
  pen.restore();
  return shapes;
}

// The visible marks. Equal ones of a lane that are close to each other become one.
function grouped(marks, view, x) {
  const found = [];
  const last = new Map();
  for (const mark of [...marks].sort((a, b) => a[1] - b[1])) {
    const [, time, , , lane, kind, , ended] = mark;
    if ((ended ?? time) < view.from || time > view.to) continue;
    const key = `${kind}/${lane}`;
    const before = last.get(key);
    if (before && x(time) - before.at < NEAR && kind !== "phase") {
      before.marks.push(mark);
      before.end = Math.max(before.end, x(ended ?? time));
    } else {
      const group = { lane, kind, at: x(time), end: x(ended ?? time), marks: [mark] };
      last.set(key, group);
      found.push(group);
    }
  }
  return found;
}

// The label of marks, the longest text first.
function texts(kind, marks) {
  if (kind === "fenced") {
    const count = marks.reduce((sum, mark) => sum + mark[8], 0);
    const writes = count === 1 ? "1 write" : `${count} writes`;
    return [...(marks.length === 1 ? [marks[0][6]] : []), `${writes} refused by the fence`, `fence: ${count}`, String(count)];
  }
  if (kind === "event") return [];
  const text = marks[0][6];
  return kind === "fault" ? [text, text.split(" ")[0]] : kind === "evicted" ? [text, text.split(":")[0]] : [text];
}

// Draws the marks and labels of a lane. A label takes the longest of its texts that fits before the next mark, or else one that
// fits after the last label. No label crosses the line of the cursor.
function drawLabels(pen, labels, y, left, width, cursor, font, color) {
  labels.sort((a, b) => a.at - b.at);
  font(13, "bold");
  let end = left;
  labels.forEach(({ at, texts, tint, sign }, index) => {
    const bound = at < cursor ? Math.min(cursor - 2, width) : width;
    const next = Math.min(labels[index + 1]?.at ?? width + 10, bound + 10);
    const fits = (room) => texts.find((each) => pen.measureText(each).width <= room);
    pen.fillStyle = tint;
    if (sign === "pill") {
      const text = fits(next - at - 22) ?? texts.at(-1);
      const wide = pen.measureText(text).width + 12;
      const start = Math.max(left, Math.min(at, bound - wide));
      round(pen, start, y - 8, wide, 16, 4);
      pen.fillStyle = color("--on-gap");
      pen.fillText(text, start + 6, y + 1);
      end = start + wide;
      return;
    }
    marker(pen, at, y, sign);
    const after = fits(next - at - 21);
    const before = after ? undefined : fits(at - 21 - end);
    if (after) pen.fillText(after, at + 11, y + 1);
    else if (before) pen.fillText(before, at - 11 - pen.measureText(before).width, y + 1);
    end = at + 11 + (after ? pen.measureText(after).width : 0);
  });
}

function leads(state, name) {
  for (const term of state.terms.values()) if (term[5] === name && term[6] === null) return true;
  return false;
}

function axis(pen, view, x, left, width, tall, color) {
  const span = view.to - view.from;
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
  const step = steps.find((each) => (each / span) * (width - left) > 90) ?? 7200;
  const digits = step < 0.01 ? 3 : step < 1 ? 2 : 0;
  pen.textAlign = "center";
  for (let time = Math.ceil(view.from / step) * step; time < view.to; time += step) {
    pen.fillStyle = color("--line");
    pen.fillRect(x(time), TOP - 6, 1, tall);
    pen.fillStyle = color("--muted");
    if (x(time) > left + 30) pen.fillText(clock(time + 1e-6, digits), x(time), TOP / 2);
  }
}

function marker(pen, x, y, kind) {
  pen.beginPath();
  if (kind === "fenced" || kind === "node-down") {
    pen.lineWidth = 3;
    pen.strokeStyle = pen.fillStyle;
    pen.moveTo(x - 6, y - 6);
    pen.lineTo(x + 6, y + 6);
    pen.moveTo(x + 6, y - 6);
    pen.lineTo(x - 6, y + 6);
    pen.stroke();
  } else if (kind === "fault" || kind === "action") {
    pen.moveTo(x, y + 8);
    pen.lineTo(x + 7, y - 6);
    pen.lineTo(x - 7, y - 6);
    pen.fill();
  } else {
    pen.arc(x, y, 4, 0, 7);
    pen.fill();
  }
}

function hatch(pen, x, y, width, height, color, ground) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.globalAlpha = 0.5;
  pen.fillStyle = ground;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 0.18;
  pen.fillStyle = color;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 0.8;
  pen.strokeStyle = color;
  pen.lineWidth = 1.5;
  const from = Math.max(x, -height);
  const to = Math.min(x + width, 8000);
  for (let each = from - height - (from % 8); each < to; each += 8) {
    pen.beginPath();
    pen.moveTo(each, y + height);
    pen.lineTo(each + height, y);
    pen.stroke();
  }
  pen.restore();
}

function round(pen, x, y, width, height, radius) {
  pen.beginPath();
  pen.roundRect(x, y, width, height, Math.min(radius, width / 2));
  pen.fill();
}

export function clip(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  while (text.length > 1 && pen.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return text.length > 1 ? `${text}…` : "";
}
