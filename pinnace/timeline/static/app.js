// The page: reads the stream, keeps the model, and draws lanes, nodes and panels.

import { html, render, useEffect, useRef, useState } from "/static/vendor.js";
import { Model, clock, duration } from "/static/model.js";
import * as lanes from "/static/lanes.js";
import * as grid from "/static/nodes.js";
import { Curves } from "/static/curves.js";
import { Decision, Events, Keys, Pods, Verdicts } from "/static/panels.js";
import { Refused, download, follow as followStream, login, request } from "/static/session.js";

const SPANS = [0.05, 0.2, 1, 5, 15, 60, 300, 900, 3600];
const TABS = ["pods", "curves", "decision", "etcd", "events", "verdicts"];
const STALE = 5; // seconds without an event after which the connection counts as lost
const LEASE_TTL = 2;

const model = new Model();
const screen = { span: 60, at: 0, paused: false, position: null, speed: 0, tab: "events", coloring: "state", node: null, pod: null, clock: 0, heard: 0, connected: false };
let session = { title: "", live: false, user: "", actions: [] };
let refresh = () => {};

function now() {
  return session.live ? Date.now() / 1000 - screen.clock : model.last;
}

function connect() {
  const receive = (name, data) => {
    screen.clock = Date.now() / 1000 - data.now;
    screen.heard = Date.now();
    screen.connected = true;
    if (name === "reset") model.reset(data.base, data.items);
    else model.extend(data.items);
    refresh();
  };
  const lost = () => {
    screen.connected = false;
    refresh();
  };
  const ended = (reason) => {
    screen.message = reason;
    lost();
  };
  followStream("/api/stream", receive, lost, ended);
}

async function save(path, name) {
  try {
    await download(path, name);
  } catch (error) {
    screen.message = error instanceof Refused ? error.message : "the server did not answer";
    refresh();
  }
}

function jump(time) {
  screen.paused = true;
  screen.position = null;
  screen.speed = 0;
  screen.at = time;
  location.hash = `t=${time.toFixed(4)}`;
  refresh();
}

function step(direction) {
  const position = model.step(direction);
  if (position === undefined) return;
  jump(model.times[position - 1]);
  screen.position = position;
}

function follow() {
  screen.paused = false;
  screen.speed = 0;
  history.replaceState(null, "", location.pathname);
  refresh();
}

function zoom(direction) {
  const found = SPANS.findIndex((span) => span >= screen.span);
  const index = found < 0 ? SPANS.length : found;
  screen.span = SPANS[Math.min(SPANS.length - 1, Math.max(0, index + direction))];
  refresh();
}

async function act(name, target) {
  if (!confirm(`${name} ${target}?`)) return;
  const response = await request("/api/action", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ name, target }) });
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  screen.message = answer.result ?? answer.error;
  refresh();
}

function view() {
  const shown = screen.at;
  const lead = screen.paused ? 0.5 : 0.02;
  return { from: shown - screen.span * (1 - lead), to: shown + screen.span * lead, at: shown };
}

function App() {
  const [, redraw] = useState(0);
  const lanesCanvas = useRef(null);
  const nodesCanvas = useRef(null);
  const shapes = useRef([]);
  const ids = useRef([]);
  const [tip, setTip] = useState(null);
  const dirty = useRef(true);

  useEffect(() => {
    refresh = () => (dirty.current = true);
    let last = 0;
    let panels = 0;
    let frame;
    const tick = (moment) => {
      frame = requestAnimationFrame(tick);
      const moving = (session.live && !screen.paused) || screen.speed;
      if (!dirty.current && !(moving && moment - last > 30)) return;
      const passed = last ? (moment - last) / 1000 : 0;
      last = moment;
      if (screen.speed) {
        screen.at = Math.min(screen.at + passed * screen.speed, now());
        if (screen.at >= now()) screen.speed = 0;
      } else if (!screen.paused) screen.at = now();
      const held = screen.paused && !screen.speed && screen.position !== null;
      const state = held ? model.to(screen.position) : model.seek(screen.paused || screen.speed ? screen.at : Infinity);
      if (lanesCanvas.current) shapes.current = lanes.draw(lanesCanvas.current, model, view());
      if (dirty.current && nodesCanvas.current) ids.current = grid.draw(nodesCanvas.current, state, screen.coloring, screen.node);
      if (moment - panels > 100 || dirty.current) {
        panels = moment;
        redraw((count) => count + 1);
      }
      dirty.current = false;
    };
    frame = requestAnimationFrame(tick);
    const resized = () => (dirty.current = true);
    addEventListener("resize", resized);
    const watchdog = setInterval(() => {
      if (session.live && Date.now() - screen.heard > STALE * 1000) screen.connected = false;
      dirty.current = true;
    }, 1000);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("resize", resized);
      clearInterval(watchdog);
    };
  }, []);

  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top, box.width];
  };
  const hover = (event) => {
    const [x, y] = point(event);
    const found = shapes.current.findLast(([left, top, width, height]) => x >= left && x <= left + width && y >= top && y <= top + height);
    setTip(found ? { text: found[4], x: event.clientX, y: event.clientY } : null);
  };
  const click = (event) => {
    const [x, , width] = point(event);
    const left = lanes.gutter(width);
    if (x < left) return;
    const { from, to } = view();
    jump(Math.min(now(), from + ((x - left) / (width - left)) * (to - from)));
  };
  const nodeAt = (event) => {
    const [x, y, width] = point(event);
    const { size, columns } = grid.layout(ids.current.length, width);
    const column = Math.floor(x / size);
    return column < columns ? ids.current[Math.floor(y / size) * columns + column] : undefined;
  };
  const hoverNode = (event) => {
    const node = model.state.nodes.get(nodeAt(event));
    if (!node) return setTip(null);
    const [pods, cpu, memory] = model.state.usage.get(node[3]) ?? [0, 0, 0];
    setTip({ text: `${node[4]}: ${node[5]}, ${pods} pods, cpu ${cpu}m of ${node[6]}m, memory ${Math.round(memory / 1048576)} of ${Math.round(node[7] / 1048576)} Mi${node[8] ? `, ${node[8]}` : ""}${node[9]?.length ? `, taints ${node[9].join(", ")}` : ""}`, x: event.clientX, y: event.clientY });
  };
  const pick = (pod) => {
    screen.pod = pod;
    screen.tab = "decision";
    refresh();
  };

  const state = model.state;
  const status = !session.live ? "recording" : !screen.connected ? "disconnected" : screen.paused ? "paused" : "live";
  const tabs = TABS.filter((tab) => tab !== "verdicts" || model.verdicts.size);
  const killable = [...model.lanes.keys()].filter((name) => model.processes.has(name));
  return html`
    <header>
      <h1>${session.title || "pinnace"}</h1>
      <span class=${`status ${status}`} role="status">${status}</span>
      <span class="time">${clock(screen.at, 3)}</span><span class="muted">revision ${state.revision}</span>
      <nav aria-label="Time">
        <button onClick=${() => jump(screen.at - screen.span / 4)} title="Back (←)">«</button>
        <button onClick=${() => step(-1)} title="Previous revision (,)">‹</button>
        ${screen.paused ? html`<button class="main" onClick=${follow} title="Follow (space)">${session.live ? "Go live" : "Go to the end"}</button>` : html`<button class="main" onClick=${() => jump(now())} title="Pause (space)">Pause</button>`}
        <button onClick=${() => step(1)} title="Next revision (.)">›</button>
        <button onClick=${() => { screen.paused = true; screen.speed = screen.speed ? 0 : 1; if (screen.at >= now()) screen.at = model.first; refresh(); }} title="Replay">${screen.speed ? "Stop" : "Replay"}</button>
        <select aria-label="Speed" onChange=${(event) => (screen.speed = Number(event.target.value)) && refresh()}>${[0.01, 0.1, 1, 5, 20].map((each) => html`<option value=${each} selected=${each === (screen.speed || 1)}>${each}×</option>`)}</select>
        <button onClick=${() => zoom(-1)} title="Zoom in (+)" aria-label="Zoom in">+</button>
        <span class="muted span">${duration(screen.span * 1000)}</span>
        <button onClick=${() => zoom(1)} title="Zoom out (-)" aria-label="Zoom out">−</button>
        ${session.live && html`<button onClick=${() => save("/api/export", "pinnace-timeline.html")} title="This page with its data in one file">Export</button><button onClick=${() => save("/api/trace", "pinnace-trace.json")} title="A trace for ui.perfetto.dev">Trace</button>`}
      </nav>
    </header>
    <${Leaders} />
    <section class="lanes" aria-label="Components over time" tabindex="0">
      <canvas ref=${lanesCanvas} role="img" aria-label="Terms, gaps and faults of each component; the events panel has the same as text"
        onMouseMove=${hover} onMouseLeave=${() => setTip(null)} onClick=${click}
        onWheel=${(event) => { event.preventDefault(); if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) jump(Math.min(now(), screen.at + ((event.deltaX || event.deltaY) / 1000) * screen.span)); else zoom(event.deltaY > 0 ? 1 : -1); }}></canvas>
    </section>
    <main>
      <section class="nodes" aria-label="Nodes">
        <div class="filters"><h2>${state.nodes.size.toLocaleString("en")} nodes · ${state.pods.size.toLocaleString("en")} ${state.pods.size === 1 ? "pod" : "pods"}</h2>
          ${grid.COLORINGS.map((each) => html`<button aria-pressed=${screen.coloring === each} onClick=${() => { screen.coloring = each; refresh(); }}>${each}</button>`)}
          ${screen.node !== null && html`<button class="main" onClick=${() => { screen.node = null; refresh(); }}>${state.nodes.get(screen.node)?.[4] ?? "node"} ✕</button>`}</div>
        <div class="scroll" tabindex="0"><canvas ref=${nodesCanvas} role="img" aria-label="One cell for each node" onMouseMove=${hoverNode} onMouseLeave=${() => setTip(null)}
          onClick=${(event) => { screen.node = nodeAt(event) ?? null; screen.tab = "pods"; refresh(); }}></canvas></div>
      </section>
      <section class="panel">
        <div role="tablist" class="tabs">${tabs.map((tab) => html`<button role="tab" aria-selected=${screen.tab === tab} onClick=${() => { screen.tab = tab; refresh(); }}>${tab}</button>`)}</div>
        <div role="tabpanel" aria-label=${screen.tab} class="body" tabindex="0">
          ${screen.tab === "pods" && html`<${Pods} state=${state} node=${screen.node} select=${pick} />`}
          ${screen.tab === "curves" && html`<${Curves} model=${model} view=${view()} />`}
          ${screen.tab === "decision" && html`<${Decision} pod=${screen.pod} live=${session.live} revision=${screen.paused ? state.revision : 0} select=${(pod) => { screen.pod = pod; refresh(); }} />`}
          ${screen.tab === "etcd" && html`<${Keys} model=${model} live=${session.live} leaseTtl=${session.leaseTtl ?? LEASE_TTL} />`}
          ${screen.tab === "events" && html`<${Events} model=${model} at=${screen.at} jump=${jump} />`}
          ${screen.tab === "verdicts" && html`<${Verdicts} model=${model} />`}
        </div>
      </section>
    </main>
    ${session.actions.length > 0 && html`<footer><b>Break something:</b>${" "}<${Actions} names=${killable} elections=${model.elections()} node=${state.nodes.get(screen.node)?.[4]} /></footer>`}
    ${screen.message && html`<p class="message" role="alert">${screen.message} <button onClick=${() => { screen.message = ""; refresh(); }}>✕</button></p>`}
    ${tip && html`<div class="tip" ref=${(element) => { if (element) { element.style.left = `${Math.min(tip.x + 14, innerWidth - element.offsetWidth - 8)}px`; element.style.top = `${tip.y + 16}px`; } }}>${tip.text}</div>`}`;
}

function Leaders() {
  return html`<section class="leaders" aria-label="Elections">${model.elections().map((election) => {
    const terms = model.termsOf(election).filter(({ term }) => term[1] <= screen.at);
    const { term, gap, outage, reason } = terms.at(-1) ?? {};
    const held = term && (term[6] === null || term[6] > screen.at);
    return html`<div class=${`leader ${held ? "held" : "free"}`}>
      <span class="what">${election}</span>
      <b>${held ? term[5] : "no leader"}</b>
      <span>${held ? html`token <b>${term[4]}</b>` : term ? html`for <b>${duration((screen.at - term[6]) * 1000)}</b>` : ""}</span>
      ${held && outage !== null && html`<span class="gap" title=${`${duration(outage)} from the last heartbeat of the last leader until this one was elected; no leader was elected for ${duration(gap)}`}>${reason.startsWith("transferred") ? "transfer" : "outage"} <b>${duration(outage)}</b></span>`}</div>`;
  })}</section>`;
}

// Actions by what they concern. A button is shown for each that the viewer may run.
const PROCESS_ACTIONS = ["kill", "freeze", "resume", "start"];
const NODE_ACTIONS = ["fail", "recover"];

function Actions({ names, elections, node }) {
  const [process, setProcess] = useState("leader");
  const [election, setElection] = useState(elections[0] ?? "");
  const some = (wanted) => wanted.filter((name) => session.actions.includes(name));
  const choice = (label, value, set, values) => html`<select aria-label=${label} value=${value} onChange=${(event) => set(event.target.value)}>${values.map((each) => html`<option value=${each}>${each}</option>`)}</select>`;
  const button = (name, target, text) => html`<button class="danger" onClick=${() => act(name, target)}>${text}</button>`;
  return html`
    ${some(PROCESS_ACTIONS).length > 0 && html`<span class="group">${choice("Target", process, setProcess, ["leader", ...names])}
      ${some(PROCESS_ACTIONS).map((name) => button(name, process, name))}</span>`}
    ${some(["transfer"]).length > 0 && elections.length > 0 && html`<span class="group">${choice("Election", election || elections[0], setElection, elections)}
      ${button("transfer", election || elections[0], "transfer leadership")}</span>`}
    ${some(NODE_ACTIONS).length > 0 && html`<span class="group">${node ? some(NODE_ACTIONS).map((name) => button(name, node, `${name} ${node}`)) : html`<span class="muted">Select a node to fail it.</span>`}</span>`}`;
}

addEventListener("keydown", (event) => {
  if (/^(INPUT|SELECT|TEXTAREA|BUTTON)$/.test(event.target.tagName) && event.key === " ") return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === " ") {
    event.preventDefault();
    if (screen.paused) follow();
    else jump(now());
  } else if (event.key === "ArrowLeft") jump(screen.at - screen.span / 10);
  else if (event.key === "ArrowRight") jump(Math.min(now(), screen.at + screen.span / 10));
  else if (event.key === "+") zoom(-1);
  else if (event.key === "-") zoom(1);
  else if (event.key === ".") step(1);
  else if (event.key === ",") step(-1);
});

function moment() {
  const found = /t=([\d.]+)/.exec(location.hash);
  if (!found) return;
  screen.paused = true;
  screen.at = Number(found[1]);
}

// A new link that is opened in this tab only changes the fragment.
addEventListener("hashchange", () => {
  if (/[#&]token=/.test(location.hash)) location.reload();
});

const recording = document.getElementById("recording");
if (recording) {
  const data = JSON.parse(recording.textContent);
  session = { title: data.title, live: false, user: "", actions: [] };
  model.reset(data.base, data.items);
  open();
} else {
  try {
    await login();
    const response = await request("/api/session");
    if (!response.ok) throw new Refused(await response.text());
    session = await response.json();
    connect();
    open();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    document.getElementById("app").innerText = error.message;
  }
}

function open() {
  if (!session.live) {
    const settle = () => {
      if (!model.items.length && !recording) return setTimeout(settle, 50);
      const first = model.firstEvent();
      screen.span = Math.max(SPANS[0], (model.last - (first < model.last ? first : model.first)) * 1.1);
      screen.at = model.last;
      moment();
      screen.tab = model.verdicts.size ? "verdicts" : "events";
      refresh();
    };
    settle();
  }
  moment();
  document.getElementById("app").replaceChildren();
  render(html`<${App} />`, document.getElementById("app"));
  globalThis.timeline = { model, screen, get session() { return session; } };
}
