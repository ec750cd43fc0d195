// The state of a cluster at any moment of the timeline. Items are described in pinnace/timeline/items.py.
//
// Items are immutable and have the whole state of their subject. A moment is a position in the list of items: moving forward
// applies items, moving back begins at the last checkpoint before the moment.

const CHECKPOINT = 20000;
export const PHASES = ["pending", "bound", "running", "terminating", "succeeded", "failed"];

class State {
  constructor() {
    this.nodes = new Map();
    this.pods = new Map();
    this.usage = new Map(); // node id -> [pods, cpu, memory]
    this.counts = Object.fromEntries(PHASES.map((phase) => [phase, 0]));
    this.terms = new Map(); // election -> the item of its last term
    this.candidates = new Map();
    this.processes = new Map();
    this.queue = null;
    this.revision = 0;
    this.time = 0;
  }

  copy() {
    const made = new State();
    for (const name of ["nodes", "pods", "terms", "candidates", "processes"]) made[name] = new Map(this[name]);
    for (const [id, used] of this.usage) made.usage.set(id, [...used]);
    made.counts = { ...this.counts };
    made.queue = this.queue;
    made.revision = this.revision;
    made.time = this.time;
    return made;
  }

  apply(item) {
    const [kind, time, revision, id] = item;
    if (time > this.time) this.time = time;
    if (revision > this.revision) this.revision = revision;
    if (kind === "p") this.pod(item);
    else if (kind === "n") {
      if (item[5] === "gone" && !this.usage.get(id)?.[0]) this.nodes.delete(id);
      else this.nodes.set(id, item);
    } else if (kind === "t") {
      const before = this.terms.get(id);
      if (!before || item[4] >= before[4]) this.terms.set(id, item);
    } else if (kind === "c") {
      if (item[5]) this.candidates.set(`${id}/${item[4]}`, item);
      else this.candidates.delete(`${id}/${item[4]}`);
    } else if (kind === "s") this.processes.set(id, item);
    else if (kind === "q") this.queue = item;
  }

  pod(item) {
    const id = item[3];
    const before = this.pods.get(id);
    if (before) this.account(before, -1);
    if (item[5] === "deleted") {
      this.pods.delete(id);
      const node = this.nodes.get(item[6]);
      if (node && node[5] === "gone" && !this.usage.get(item[6])?.[0]) this.nodes.delete(item[6]);
    } else {
      this.pods.set(id, item);
      this.account(item, 1);
    }
  }

  account(item, sign) {
    this.counts[item[5]] += sign;
    if (item[6] < 0 || item[5] === "succeeded" || item[5] === "failed") return;
    let used = this.usage.get(item[6]);
    if (!used) this.usage.set(item[6], (used = [0, 0, 0]));
    used[0] += sign;
    used[1] += sign * item[7];
    used[2] += sign * item[8];
  }
}

export class Model {
  constructor() {
    this.reset([], []);
  }

  reset(base, items) {
    this.items = [];
    this.times = []; // from when on each item holds: the time of a term that has ended is that of its begin
    this.checkpoints = [];
    this.state = new State();
    this.position = 0;
    this.terms = new Map(); // "election/token" -> item
    this.marks = new Map();
    this.processes = new Map(); // name -> [[time, state], ...]
    this.verdicts = new Map();
    this.lanes = new Map();
    this.busy = new Set(); // lanes with terms, marks or processes that were down or frozen
    this.ready = new Map(); // node id -> whether it was ready at last
    this.binds = new Map(); // Unix second -> pods that were bound in it
    this.placed = new Map(); // pod id -> whether it is bound
    this.queues = []; // [time, active, backoff, unschedulable, gated]
    this.failing = null; // the last mark of nodes that became ready, or not
    this.first = this.last = 0;
    for (const item of base) {
      this.state.apply(item);
      this.index(item);
    }
    this.start = this.state.copy();
    this.first = items.length ? items[0][1] : this.state.time;
    this.extend(items);
  }

  extend(items) {
    for (const item of items) {
      this.items.push(item);
      const known = item[0] === "t" && item[6] !== null ? item[6] : item[1];
      this.times.push(Math.max(this.times.at(-1) ?? this.start.time, known));
      this.index(item);
    }
  }

  index(item) {
    const [kind, time, , id] = item;
    if (time > this.last) this.last = time;
    if (kind === "t") {
      if (item[6] > this.last) this.last = item[6];
      this.terms.set(`${id}/${item[4]}`, item);
      this.lane(item[5], true);
    } else if (kind === "c" && item[5]) this.lane(item[5]);
    else if (kind === "m") {
      this.marks.set(id, item);
      this.lane(item[4], true);
    } else if (kind === "s") {
      this.lane(id, item[4] !== "up");
      const states = this.processes.get(id);
      if (states) states.push([time, item[4]]);
      else this.processes.set(id, [[time, item[4]]]);
    } else if (kind === "v") this.verdicts.set(id, item);
    else if (kind === "n") this.node(item);
    else if (kind === "p") this.place(item);
    else if (kind === "q") this.queues.push([time, ...item.slice(3, 7)]);
  }

  place([, time, , id, , phase, node]) {
    if (phase === "deleted") return this.placed.delete(id);
    if (node >= 0 && this.placed.get(id) === false) this.binds.set(Math.floor(time), (this.binds.get(Math.floor(time)) ?? 0) + 1);
    this.placed.set(id, node >= 0);
  }

  // A mark where a node becomes ready, or not; one for all nodes to which this happens within half a second.
  node([, time, revision, id, name, state]) {
    const ready = state !== "not-ready" && state !== "gone";
    const before = this.ready.get(id);
    if (state === "gone") this.ready.delete(id);
    else this.ready.set(id, ready);
    if (before === undefined || before === ready) return;
    const kind = ready ? "node-up" : "node-down";
    let last = this.failing;
    const recent = last && time - last.time < 0.5;
    if (recent && last.count === 1 && last.id === id) last.kind = kind; // a node that changes its mind
    else if (recent && last.kind === kind) last.count++;
    else last = this.failing = { kind, time, id, count: 1, key: `nodes/${this.marks.size}` };
    const what = last.count === 1 ? name : `${last.count} nodes`;
    this.marks.set(last.key, ["m", last.time, revision, last.key, "nodes", kind, `${what} ${ready ? "ready" : state}`, null, last.count]);
    this.lane("nodes", true);
  }

  lane(name, busy) {
    if (name && busy) this.busy.add(name);
    if (!name || this.lanes.has(name)) return;
    this.lanes.set(name, true);
    this.lanes = new Map([...this.lanes].sort(([a], [b]) => order(a) - order(b) || a.localeCompare(b, "en", { numeric: true })));
  }

  // The state after the last item at or before `time`.
  seek(time) {
    let end = this.items.length;
    if (this.items.length && this.times[end - 1] > time) {
      let low = 0;
      while (low < end) {
        const middle = (low + end) >> 1;
        if (this.times[middle] > time) end = middle;
        else low = middle + 1;
      }
    }
    return this.to(end);
  }

  to(end) {
    if (end < this.position) {
      const index = Math.floor(end / CHECKPOINT);
      this.state = index ? this.checkpoints[index - 1].copy() : this.start.copy();
      this.position = index * CHECKPOINT;
    }
    while (this.position < end) {
      this.state.apply(this.items[this.position++]);
      if (this.position % CHECKPOINT === 0) this.checkpoints[this.position / CHECKPOINT - 1] ??= this.state.copy();
    }
    return this.state;
  }

  // The position after the next (or, with -1, the previous) revision; undefined at the end. Items of one message share their
  // time, so a time does not identify a revision.
  step(direction) {
    const revision = this.state.revision;
    let index = this.position;
    if (direction > 0) {
      while (index < this.items.length && this.items[index][2] <= revision) index++;
      if (index === this.items.length) return undefined;
      const next = this.items[index][2];
      while (index < this.items.length && this.items[index][2] <= next) index++;
      return index;
    }
    while (index > 0 && (this.items[index - 1][2] === 0 || this.items[index - 1][2] >= revision)) index--;
    return index || undefined;
  }

  // The terms of an election, oldest first, each with the times before it in milliseconds (null: unknown), and the reason for
  // which the term before it ended. The server computes the times from the records of the terms.
  termsOf(election) {
    const terms = [...this.terms.values()].filter((term) => term[3] === election).sort((a, b) => a[4] - b[4]);
    const milliseconds = (seconds) => (seconds === null ? null : seconds * 1000);
    return terms.map((term, index) => ({ term, gap: milliseconds(term[8]), outage: milliseconds(term[9]), reason: index ? terms[index - 1][7] : "" }));
  }

  elections() {
    return [...new Set([...this.terms.values()].map((term) => term[3]))].sort((a, b) => (a === "scheduler" ? -1 : b === "scheduler" ? 1 : a.localeCompare(b)));
  }

  // Whether a process is a candidate that leads no election, in a state.
  waits(state, name) {
    for (const term of state.terms.values()) if (term[5] === name && term[6] === null) return false;
    for (const candidate of state.candidates.values()) if (candidate[5] === name) return true;
    return false;
  }

  // The time of the first event of the recording: a change of a leader, a mark, or a process that was down or frozen.
  firstEvent() {
    const times = [...this.marks.values()].map((mark) => mark[1]);
    for (const election of this.elections()) for (const { term, outage } of this.termsOf(election).slice(1)) times.push(term[1] - (outage ?? 0) / 1000);
    for (const states of this.processes.values()) for (const [time, state] of states) if (state !== "up") times.push(time);
    return times.reduce((first, time) => Math.min(first, Math.max(time, this.first)), this.last);
  }

  // Whether the process was down or frozen at a time.
  processAt(name, time) {
    let found = "up";
    for (const [at, state] of this.processes.get(name) ?? []) if (at <= time) found = state;
    return found;
  }
}

const ORDER = ["scheduler", "controllers", "nodes", "apiserver", "etcd", "kubelet", "proxy", "gateway", "run", "faults"];
function order(name) {
  const index = ORDER.findIndex((prefix) => name.startsWith(prefix));
  return index < 0 ? ORDER.length : index;
}

export function clock(time, digits = 0) {
  if (!time) return "–";
  const date = new Date(time * 1000);
  const text = date.toLocaleTimeString("en-GB");
  return digits ? `${text}.${String(Math.floor((time % 1) * 10 ** digits)).padStart(digits, "0")}` : text;
}

export function duration(milliseconds) {
  if (milliseconds < 1000) return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
