// Curves over the shown time: pods bound per second, and the lengths of the scheduling queue.

import { html, useEffect, useRef } from "/static/vendor.js";
import uPlot from "/static/uplot.js";
import { clock } from "/static/model.js";

const QUEUES = ["active", "backoff", "unschedulable", "gated"];
const TALL = 150;

export function Curves({ model, view }) {
  const from = Math.floor(view.from);
  const known = Math.min(view.to, Math.max(model.last, view.at));
  const to = Math.ceil(known);
  const seconds = [];
  const binds = [];
  for (let second = from; second <= to; second++) {
    seconds.push(second);
    binds.push(model.binds.get(second) ?? 0);
  }
  const queues = model.queues.filter((each) => each[0] <= view.to);
  const columns = [0, 1, 2, 3, 4].map((index) => queues.map((each) => each[index]));
  if (queues.length) columns.forEach((column, index) => column.push(index ? column.at(-1) : Math.max(column.at(-1), known))); // it lasts
  return html`
    <h4>Pods bound per second</h4>
    <${Curve} label=${`Pods bound per second, at most ${Math.max(0, ...binds)}`} view=${view} data=${[seconds, binds]} names=${["bound"]} stepped=${1} />
    ${queues.length > 0 && html`<h4>Scheduling queue</h4>
      <${Curve} label="Pods in the scheduling queue" view=${view} data=${columns} names=${QUEUES} stepped=${1} />`}`;
}

function Curve({ label, view, data, names, stepped }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const style = getComputedStyle(place.current);
    const color = (name) => style.getPropertyValue(name).trim();
    const font = `13px ${style.fontFamily}`;
    const axis = { stroke: color("--muted"), font, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const series = names.map((name, index) => ({ label: name, stroke: color(`--term${index}`), width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: stepped }), ...(names.length === 1 ? { fill: `${color("--term0")}33` } : {}) }));
    const options = {
      width: place.current.clientWidth,
      height: TALL,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { auto: false }, y: { range: (self, low, high) => [0, Math.max(5, (high ?? 0) * 1.1)] } },
      axes: [{ ...axis, values: (self, splits) => splits.map((each) => clock(each)) }, { ...axis, size: 48 }],
      series: [{}, ...series],
    };
    plot.current = new uPlot(options, data, place.current);
    return () => plot.current.destroy();
  }, []);
  useEffect(() => {
    const shown = plot.current;
    if (shown.width !== place.current.clientWidth && place.current.clientWidth) shown.setSize({ width: place.current.clientWidth, height: TALL });
    shown.batch(() => {
      shown.setData(data, false);
      shown.setScale("x", { min: view.from, max: view.to });
    });
  });
  return html`<div class="curve" role="img" aria-label=${label} ref=${place}></div>
    ${names.length > 1 && html`<p class="legend">${names.map((name, index) => html`<span class=${`series series${index}`}>${name} <b>${data[index + 1].at(-1) ?? 0}</b></span>`)}</p>`}`;
}
