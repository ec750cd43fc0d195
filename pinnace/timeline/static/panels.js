// The panels beside the lanes: pods and queue, a decision, the keys of etcd, a log of events, verdicts.

import { html, useEffect, useState } from "/static/vendor.js";
import { PHASES, clock, duration } from "/static/model.js";
import { request } from "/static/session.js";

const ROWS = 100;

export function Pods({ state, node, select }) {
  const [query, setQuery] = useState("");
  const [phase, setPhase] = useState("");
  const queue = state.queue;
  const found = [];
  let more = 0;
  const wanted = query.toLowerCase();
  for (const pod of state.pods.values()) {
    if (phase && pod[5] !== phase) continue;
    if (node !== null && pod[6] !== node) continue;
    if (wanted && !pod[4].toLowerCase().includes(wanted)) continue;
    if (found.length < ROWS) found.push(pod);
    else more++;
  }
  return html`
    ${queue && html`<p class="queue">Scheduling queue:${" "}
      ${["active", "backoff", "unschedulable", "gated"].map((name, index) => html`<span class="chip"><b>${queue[3 + index]}</b> ${name}</span>`)}</p>`}
    <div class="filters">
      <input type="search" placeholder="Filter pods by name" aria-label="Filter pods by name" value=${query} onInput=${(event) => setQuery(event.target.value)} />
      ${PHASES.map((each) => html`<button class=${`chip ${each}`} aria-pressed=${phase === each} onClick=${() => setPhase(phase === each ? "" : each)}>
        <b>${state.counts[each]}</b> ${each}</button>`)}
    </div>
    <div class="scroll"><table>
      <thead><tr><th>Pod</th><th>Phase</th><th>Node</th><th class="number extra">Changed</th></tr></thead>
      <tbody>${found.map((pod) => html`<tr key=${pod[3]}>
        <td><button class="link" onClick=${() => select(pod)}>${pod[4]}</button></td>
        <td class="name"><span class=${`dot ${pod[5]}`}></span> ${pod[5]}</td>
        <td class="name">${state.nodes.get(pod[6])?.[4] ?? (pod[6] < 0 ? "–" : "gone")}</td>
        <td class="number extra">${clock(pod[9], 2)}</td></tr>`)}</tbody>
    </table>
    ${more > 0 && html`<p class="muted">${more.toLocaleString("en")} more pods; use the filter.</p>`}
    ${!found.length && html`<p class="muted">No pods${query || phase || node !== null ? " match" : " at this moment"}.</p>`}</div>`;
}

export function Decision({ pod, revision, live, select }) {
  const [answer, setAnswer] = useState(null);
  const [asked, setAsked] = useState(0);
  const name = pod?.[4];
  useEffect(() => {
    if (!name || !live) return;
    let current = true;
    setAnswer({ waiting: true });
    request(`/api/decision?pod=${encodeURIComponent(name)}&revision=${revision}`)
      .then((response) => response.json())
      .then((found) => current && setAnswer(found))
      .catch(() => current && setAnswer({ error: "the server did not answer" }));
    return () => (current = false);
  }, [name, revision, asked]);
  if (!pod) return html`<p class="muted">Select a pod to see how the scheduler decides about it at this moment.</p>`;
  const head = html`<h3>${name}</h3><p class="muted">as of revision ${revision || "now"} · ${pod[5]}
    ${" "}<button onClick=${() => setAsked(asked + 1)} disabled=${!live}>Explain again</button> <button onClick=${() => select(null)}>Close</button></p>`;
  if (!live) return html`${head}<p class="muted">Decisions are computed from the objects in etcd. This recording has none.</p>`;
  if (!answer || answer.waiting) return html`${head}<p class="muted">The scheduler's code explains the pod…</p>`;
  if (answer.error) return html`${head}<p class="problem">${answer.error}</p>`;
  if (answer.unknown) return html`${head}
    <p>${answer.bound ? html`The pod is on <b>${answer.bound}</b>. ` : ""}Further information is not available: ${answer.unknown}.</p>`;
  return html`${head}
    <p>${answer.feasible ?? 0} of ${answer.nodes ?? 0} nodes are feasible${answer.bound ? html`; the pod is bound to <b>${answer.bound}</b>` : ""}.</p>
    ${answer.problem && html`<p class="problem">${answer.problem}</p>`}
    ${answer.message && html`<p class="problem">${answer.message}</p>`}
    ${answer.refusals?.length > 0 && html`<h4>Filters: nodes that are ruled out</h4><ul>${answer.refusals.map((each) => html`<li>${refusal(each)}</li>`)}</ul>`}
    ${answer.remedies?.length > 0 && html`<h4>Changes that would help</h4><ul>${answer.remedies.map((each) => html`<li>${text(each)}</li>`)}</ul>`}
    ${answer.preemption && html`<p>${answer.preemption}</p>`}
    ${answer.ranking?.length > 0 && html`<${Ranking} answer=${answer} />`}
    <p class="muted">Configuration: ${answer.configuration}${answer.unconfirmed ? ` (${answer.unconfirmed})` : ""}</p>`;
}

function refusal(each) {
  const nodes = each.nodes ?? each.count ?? "";
  const names = Array.isArray(nodes) ? `${nodes.length} nodes (${nodes.slice(0, 3).join(", ")}${nodes.length > 3 ? ", …" : ""})` : nodes;
  return [each.plugin, each.reason ?? each.message, names].filter((part) => part !== undefined && part !== "").join(" · ");
}

function text(each) {
  return typeof each === "string" ? each : Object.values(each).filter((part) => typeof part === "string" || typeof part === "number").join(" · ");
}

function Ranking({ answer }) {
  const plugins = Object.keys(answer.weights ?? {});
  return html`<h4>Scores: the best nodes</h4><div class="scroll"><table>
    <thead><tr><th>Node</th><th class="number">Total</th>${plugins.map((each) => html`<th class="number" title=${`weight ${answer.weights[each]}`}>${each}</th>`)}</tr></thead>
    <tbody>${answer.ranking.map((each) => html`<tr class=${each.node === answer.bound ? "chosen" : ""}><td>${each.node}</td>
      <td class="number"><b>${score(each.total ?? each.score)}</b></td>${plugins.map((plugin) => html`<td class="number">${score((each.scores ?? {})[plugin])}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function score(value) {
  return value === undefined || value === null ? "" : Number(value).toFixed(0);
}

const PREFIXES = ["/registry/elections/", "/registry/candidates/", "/registry/terms/", "/registry/pods/", "/registry/nodes/", "/registry/"];

export function Keys({ model, live, leaseTtl }) {
  const [prefix, setPrefix] = useState(PREFIXES[0]);
  const [page, setPage] = useState(null);
  useEffect(() => {
    if (!live) return;
    let timer;
    const read = () =>
      request(`/api/keys?prefix=${encodeURIComponent(prefix)}`)
        .then((response) => response.json())
        .then(setPage)
        .catch(() => setPage({ error: "the server did not answer" }))
        .finally(() => (timer = setTimeout(read, 1000)));
    read();
    return () => clearTimeout(timer);
  }, [prefix, live]);
  const last = [];
  for (let index = model.position - 1; index >= 0 && last.length < 20; index--) {
    const item = model.items[index];
    if (item[2]) last.push([item[2], item[1], keyOf(item), item[0] === "k" ? item[4] : item[5] === "deleted" || item[5] === "gone" ? "delete" : "put"]);
  }
  return html`
    ${live && html`<div class="filters">${PREFIXES.map((each) => html`<button aria-pressed=${prefix === each} onClick=${() => setPrefix(each)}>${each}</button>`)}</div>
    ${page?.error && html`<p class="problem">${page.error}</p>`}
    ${page?.items && html`<p class="muted">Revision ${page.revision}. ${page.items.length ? "" : "No key has this prefix: the lock exists, or it does not."}</p>
    <div class="scroll"><table><thead><tr><th>Key</th><th class="number">Created</th><th class="number">Modified</th><th class="number">Bytes</th><th>Lease</th></tr></thead>
      <tbody>${page.items.map((each) => html`<tr key=${each.key}><td class="code">${each.key}</td><td class="number">${each.create}</td><td class="number">${each.mod}</td><td class="number">${each.size}</td>
        <td>${each.lease && html`<span class="code">${each.lease.slice(-6)}</span> ${each.age !== null && html`<meter min="0" max=${leaseTtl} value=${Math.max(0, leaseTtl - each.age)}></meter> ${each.age} s old`}`}</td></tr>`)}</tbody></table>
      ${page.more && html`<p class="muted">More keys follow.</p>`}</div>`}`}
    <h4>Last transactions</h4>
    <div class="scroll"><table><thead><tr><th class="number">Revision</th><th>Time</th><th>Key</th><th></th></tr></thead>
      <tbody>${last.map(([revision, time, key, op]) => html`<tr key=${`${revision}${key}`}><td class="number">${revision}</td><td>${clock(time, 3)}</td><td class="code">${key}</td><td>${op}</td></tr>`)}</tbody></table></div>`;
}

function keyOf(item) {
  if (item[0] === "p") return `/registry/pods/${item[4]}`;
  if (item[0] === "n") return `/registry/nodes/${item[4]}`;
  if (item[0] === "t") return `/registry/elections/${item[3]}`;
  if (item[0] === "c") return `/registry/candidates/${item[3]}/${item[4]}`;
  return item[0] === "k" ? item[3] : `${item[4]}`;
}

export function Events({ model, at, jump }) {
  const rows = [];
  for (const election of model.elections())
    for (const { term, gap, outage } of model.termsOf(election)) {
      const times = outage === null ? "" : `, ${duration(gap)} after the end of the last term, ${duration(outage)} after the last heartbeat of its leader`;
      rows.push([term[1], `${term[5]} was elected in "${election}" with token ${term[4]}${times}`, "good"]);
      if (term[6] !== null) rows.push([term[6], `the term ${term[4]} of ${term[5]} ended${term[7] ? `: ${term[7]}` : ""}`, "bad"]);
    }
  for (const mark of model.marks.values()) rows.push([mark[1], `${mark[4]}: ${mark[6]}`, mark[5]]);
  for (const [name, states] of model.processes)
    states.forEach(([time, kind], index) => (index || kind !== "up") && rows.push([time, `${name} is ${kind}`, kind === "up" ? "good" : "bad"]));
  rows.sort((a, b) => b[0] - a[0]);
  return html`<div class="scroll" role="log"><table><tbody>${rows.slice(0, 300).map(([time, said, kind]) => html`<tr class=${time > at ? "later" : ""}>
    <td class="number"><button class="link" onClick=${() => jump(time)}>${clock(time, 3)}</button></td><td><span class=${`dot ${kind}`}></span> ${said}</td></tr>`)}</tbody></table>
    ${!rows.length && html`<p class="muted">Nothing has happened yet. Kill the leader: <code>pinnace kill leader</code></p>`}</div>`;
}

export function Verdicts({ model }) {
  const rows = [...model.verdicts.values()].sort((a, b) => (b[4] === "violated") - (a[4] === "violated"));
  return html`<div class="scroll"><table><tbody>${rows.map(([, , , name, status, statement, violations]) => html`<tr>
    <td class="name"><b>${name}</b></td><td class="name"><span class=${`dot ${status === "holds" ? "good" : status === "violated" ? "bad" : "muted"}`}></span> ${status}${violations ? ` (${violations})` : ""}</td><td>${statement}</td></tr>`)}</tbody></table></div>`;
}
