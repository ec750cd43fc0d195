// The lanes: one row for each component on a common time axis, drawn on a canvas.

import { clock, duration } from "/static/model.js";

export const ROW = 30;
export const TOP = 26;
const COLORS = 6;

export function gutter(width) {
  return width < 600 ? 96 : 150;
}

export function height(model) {
  return TOP + Math.max(3, model.lanes.size) * ROW + 8;
}

// `view`: {from, to, at}: the visible range and the cursor (Unix seconds). Returns the drawn shapes for hit tests.
export function draw(canvas, model, view, selected) {
  const style = getComputedStyle(canvas);
  const color = (name) => style.getPropertyValue(name).trim();
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const tall = height(model);
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
  const names = [...model.lanes.keys()];
  const rows = new Map(names.map((name, index) => [name, TOP + index * ROW]));
  pen.font = `13px ${style.fontFamily}`;
  pen.textBaseline = "middle";

  axis(pen, view, x, left, width, tall, color);
  const state = model.state;
  for (const [name, y] of rows) {
    pen.fillStyle = color("--line");
    pen.fillRect(left, y + ROW - 1, width - left, 1);
    const now = model.processAt(name, view.at);
    pen.fillStyle = now === "down" ? color("--bad") : now === "frozen" ? color("--frozen") : color("--text");
    pen.textAlign = "left";
    const sign = now === "down" ? " ✕" : now === "frozen" ? " ❄" : leads(state, name) ? " ★" : "";
    pen.fillText(clip(pen, name + sign, left - 12), 4, y + ROW / 2);
  }

  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left, tall);
  pen.clip();

  for (const [name, states] of model.processes) {
    const y = rows.get(name);
    for (let index = 0; index < states.length; index++) {
      const [begun, kind] = states[index];
      if (kind === "up") continue;
      const ended = states[index + 1]?.[0] ?? Math.max(model.last, view.at);
      if (ended < view.from || begun > view.to) continue;
      hatch(pen, x(begun), y + 4, Math.max(3, x(ended) - x(begun)), ROW - 9, kind === "down" ? color("--bad") : color("--frozen"));
      shapes.push([x(begun), y, Math.max(6, x(ended) - x(begun)), ROW, `${name} is ${kind} since ${clock(begun, 3)}, for ${duration((ended - begun) * 1000)}`]);
    }
  }

  for (const election of model.elections()) {
    let index = 0;
    for (const { term, gap } of model.termsOf(election)) {
      const [, began, , , token, holder, ended, reason] = term;
      const end = ended ?? Math.max(model.last, view.at);
      const y = rows.get(holder);
      index++;
      if (gap !== null && gap < 3600000) drawGap(pen, x(began - gap / 1000), x(began), gap, y, ROW, color, shapes, election, holder);
      if (end < view.from || began > view.to || y === undefined) continue;
      const from = x(began);
      const length = Math.max(3, x(end) - from);
      pen.fillStyle = color(`--term${index % COLORS}`);
      round(pen, from, y + 4, length, ROW - 9, 4);
      const text = `${election} · term ${token}`;
      const visible = Math.max(from, left);
      if (from + length - visible > pen.measureText(String(token)).width + 14) {
        pen.fillStyle = color("--on-term");
        pen.textAlign = "left";
        pen.fillText(clip(pen, text, from + length - visible - 12), visible + 7, y + ROW / 2);
      }
      shapes.push([from, y, length, ROW, `${holder} led ${election} with token ${token} from ${clock(began, 3)}${ended ? ` for ${duration((ended - began) * 1000)}: ${reason || "ended"}` : ""}`]);
    }
  }

  for (const mark of model.marks.values()) {
    const [, time, , id, lane, kind, text, ended] = mark;
    const end = ended ?? time;
    const y = rows.get(lane);
    if (y === undefined || end < view.from || time > view.to) continue;
    const tint = kind === "fault" ? color("--fault") : kind === "fenced" ? color("--bad") : kind === "action" ? color("--accent") : color("--muted");
    pen.fillStyle = tint;
    if (ended && x(ended) - x(time) > 4) {
      pen.globalAlpha = 0.35;
      pen.fillRect(x(time), y + ROW - 7, x(ended) - x(time), 5);
      pen.globalAlpha = 1;
    }
    marker(pen, x(time), y + ROW / 2, kind);
    shapes.push([x(time) - 8, y, Math.max(16, x(end) - x(time)), ROW, `${clock(time, 3)}  ${text}`]);
    if (id === selected) pen.strokeRect(x(time) - 8, y + 3, 16, ROW - 7);
  }

  pen.fillStyle = color("--accent");
  pen.fillRect(x(view.at) - 1, 0, 2, tall);
  pen.restore();
  return shapes;
}

function leads(state, name) {
  for (const term of state.terms.values()) if (term[5] === name && term[6] === null) return true;
  return false;
}

function drawGap(pen, from, to, gap, y, row, color, shapes, election, holder) {
  if (y === undefined || to < 0) return;
  const label = duration(gap);
  pen.font = pen.font.replace(/^(bold )?/, "bold ");
  const width = pen.measureText(label).width + 12;
  const right = Math.max(from + 2, to) - 2;
  pen.fillStyle = color("--gap");
  pen.fillRect(from, y + 1, Math.max(2, to - from), row - 3);
  pen.fillStyle = color("--bad");
  round(pen, right - width, y + 6, width, row - 13, 4);
  pen.fillStyle = color("--on-gap");
  pen.textAlign = "left";
  pen.fillText(label, right - width + 6, y + row / 2);
  pen.font = pen.font.replace("bold ", "");
  shapes.push([right - width, y, width, row, `${election} had no leader for ${gap.toFixed(1)} ms; then ${holder} was elected`]);
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
  if (kind === "fenced") {
    pen.lineWidth = 3;
    pen.strokeStyle = pen.fillStyle;
    pen.moveTo(x - 6, y - 6);
    pen.lineTo(x + 6, y + 6);
    pen.moveTo(x + 6, y - 6);
    pen.lineTo(x - 6, y + 6);
    pen.stroke();
  } else if (kind === "fault" || kind === "action") {
    pen.moveTo(x, y - 8);
    pen.lineTo(x + 7, y + 5);
    pen.lineTo(x - 7, y + 5);
    pen.fill();
  } else {
    pen.arc(x, y, 4, 0, 7);
    pen.fill();
  }
}

function hatch(pen, x, y, width, height, color) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
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

function clip(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  while (text.length > 1 && pen.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return text.length > 1 ? `${text}…` : "";
}
