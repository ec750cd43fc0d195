"""The timeline in a real browser: failovers, frozen leaders, dead nodes and decisions, live and from recordings."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pinnace.history.records import (
    ElectionFacts,
    FaultRecord,
    NodeFacts,
    PodFacts,
    RunInfo,
    StoredChange,
    TermFacts,
    encode_record,
)
from tests.browser.conftest import Pinnace, screenshot

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

NODES, PODS = 5000, 50_000
MAX_MEMORY = 300 << 20
MIN_FRAMES = 30
KILLS, SEEN_WITHIN, SEEN_WITHIN_IF_BUSY = 5, 0.1, 0.5
"""Failovers, and the seconds after which the page shows them: the median, and each of them on a busy machine."""
HOSTILE = "<script>globalThis.hacked=1</script>"
PENDING = """
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  containers: [{name: a, image: x, resources: {requests: {cpu: "500"}}}]
"""


WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 20
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: a, image: x, resources: {requests: {cpu: 100m}}}]
"""
LATER = "((term) => term[4] > {0} && term[6] === null)(timeline.model.state.terms.get('scheduler'))"
"""A later term has begun."""
PAINTED = """() => {
  globalThis.painted = { ended: {}, begun: {} };
  const note = (now) => {
    for (const [, , , election, token, , ended] of timeline.model.terms.values())
      if (election === "scheduler") {
        painted.begun[token] ??= now;
        if (ended !== null) painted.ended[token] ??= now;
      }
  };
  note(0);
  const channel = new MessageChannel();
  channel.port1.onmessage = () => note(Date.now() / 1000);
  new MutationObserver(() => requestAnimationFrame(() => channel.port2.postMessage(0)))
    .observe(document.querySelector(".leaders"), { subtree: true, childList: true, characterData: true, attributes: true });
}"""
"""Notes when the header changed and the frame with the change was painted, by token."""
FRAMES = """() => new Promise((resolve) => {
  let frames = 0;
  const began = performance.now();
  const tick = () => {
    frames++;
    Object.assign(timeline.screen, { span: 20 + (frames % 40), at: timeline.screen.at - 0.05, paused: true });
    document.querySelector(".lanes").scrollTop = frames % 100;
    performance.now() - began < 3000 ? requestAnimationFrame(tick) : resolve(frames / 3);
  };
  requestAnimationFrame(tick);
})"""
AXE = """axe.run().then((result) => result.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => each.id + ": " + each.nodes.map((node) => node.html).slice(0, 3).join(" | ")))"""


def leader(page: Any) -> str:
    return str(page.locator(".leader", has_text="scheduler").first.locator("> b").inner_text())


def token(page: Any) -> int:
    return int(page.evaluate("timeline.model.state.terms.get('scheduler')[4]"))


def open_tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def wait_for(page: Any, expression: str) -> None:
    """Waits in the page: the Content-Security-Policy forbids Playwright's own way, which evaluates strings."""
    page.evaluate(
        f"""() => new Promise((resolve, reject) => {{
            const check = () => (globalThis.timeline && ({expression}) ? resolve() : setTimeout(check, 20));
            check();
            setTimeout(() => reject(new Error("still false")), 60000);
        }})"""
    )


def test_killed_leader_leaves_a_gap_and_another_term(timeline: Any, pinnace: Pinnace) -> None:
    before, holder = token(timeline), leader(timeline)
    pinnace("kill", "leader")
    wait_for(timeline, LATER.format(before))
    assert leader_changes(timeline, holder)
    wait_for(timeline, "timeline.model.termsOf('scheduler').at(-1).outage !== null")
    shown = timeline.evaluate("(({ gap, outage }) => [gap, outage])(timeline.model.termsOf('scheduler').at(-1))")
    recorded = json.loads(pinnace("leader", "history", "-o", "json"))["items"][-2]
    assert shown == pytest.approx([recorded["gapSeconds"] * 1000, recorded["outageSeconds"] * 1000], abs=0.01)
    assert 0 < shown[0] <= shown[1] < 5000
    assert re.search(r"outage [\d.]+ m?s", timeline.locator(".leaders").inner_text().replace("\n", " "))
    wait_for(timeline, f"timeline.model.processAt({json.dumps(holder)}, Infinity) === 'down'")
    open_tab(timeline, "events")
    timeline.wait_for_selector(f"text={holder} is down")
    screenshot(timeline, "kill-leader")
    pinnace("start")


def leader_changes(page: Any, holder: str) -> bool:
    wait_for(page, f"document.querySelector('.leader > b').innerText !== {json.dumps(holder)}")
    return leader(page) != holder


def test_failover_is_on_the_page_within_a_tenth_of_a_second(timeline: Any, pinnace: Pinnace) -> None:
    """Measured from the times of the leader history (the end of one term, the begin of the next) until the page has painted
    them."""
    timeline.evaluate(PAINTED)
    ends, begins = [], []
    for _ in range(KILLS):
        before, holder = token(timeline), leader(timeline)
        pinnace("kill", "leader")
        assert leader_changes(timeline, holder)
        wait_for(timeline, LATER.format(before))
        terms = json.loads(pinnace("leader", "history", "-o", "json"))["items"]
        ended = next(term for term in terms if term["token"] == before)
        begun = terms[-1]
        painted = timeline.evaluate("painted")
        ends.append(painted["ended"][str(before)] - unix(ended["ended"]))
        begins.append(painted["begun"][str(begun["token"])] - unix(begun["began"]))
        pinnace("start")
    print("painted after, in ms:", *(f"{end * 1000:.0f}/{begin * 1000:.0f}" for end, begin in zip(ends, begins, strict=True)))
    assert median(ends) < SEEN_WITHIN and median(begins) < SEEN_WITHIN
    assert max(*ends, *begins) < SEEN_WITHIN_IF_BUSY


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_frozen_leader_is_shown_and_resumes(timeline: Any, pinnace: Pinnace) -> None:
    holder, before = leader(timeline), token(timeline)
    pinnace("kill", "leader", "--signal", "STOP")
    wait_for(timeline, f"timeline.model.processAt({json.dumps(holder)}, Infinity) === 'frozen'")
    wait_for(timeline, f"timeline.model.state.terms.get('scheduler')[4] > {before}")
    open_tab(timeline, "events")
    timeline.wait_for_selector(f"text={holder} is frozen")
    wait_for(timeline, "timeline.model.termsOf('scheduler').at(-1).outage >= 900")
    asked: list[str] = []
    timeline.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    timeline.get_by_label("Target").select_option("leader")
    timeline.get_by_role("button", name="resume").click()
    wait_for(timeline, f"timeline.model.processAt({json.dumps(holder)}, Infinity) === 'up'")
    assert asked == ["resume leader?"], "the frozen leader is resumed, not the present one"
    wait_for(timeline, f"timeline.model.waits(timeline.model.state, {json.dumps(holder)})")
    assert not timeline.evaluate("timeline.model.lanes.has('leader')")
    screenshot(timeline, "freeze-leader")


def test_dead_node_stays_visible_with_its_state(timeline: Any, pinnace: Pinnace) -> None:
    pinnace("node", "fail", "node-3")
    wait_for(timeline, "[...timeline.model.marks.values()].some((mark) => mark[6] === 'node-3 not-ready')")
    wait_for(
        timeline, "[...timeline.model.state.nodes.values()].some((node) => node[4] === 'node-3' && node[5] === 'not-ready')"
    )
    screenshot(timeline, "dead-node")
    pinnace("node", "recover", "node-3")
    wait_for(timeline, "[...timeline.model.state.nodes.values()].every((node) => node[5] === 'ready')")


def test_taint_evicts_pods_and_shows_their_replacements(timeline: Any, pinnace: Pinnace) -> None:
    pinnace("apply", "-f", "-", stdin=WEB)
    wait_for(timeline, "timeline.model.state.counts.running >= 20")
    pinnace("taint", "nodes", "node-5", "dedicated=x:NoExecute")
    find = "[...timeline.model.state.nodes.values()].find((node) => node[4] === 'node-5')"
    wait_for(timeline, f"({find})[5] === 'tainted' && ({find})[9].includes('dedicated=x:NoExecute')")
    evicted = "[...timeline.model.marks.values()].find((mark) => mark[5] === 'evicted')"
    wait_for(timeline, f"/^node-5 \\(NoExecute taint\\): .* terminated: .*; replaced by /.test(({evicted})?.[6])")
    open_tab(timeline, "events")
    timeline.wait_for_selector("text=node-5 tainted dedicated=x:NoExecute")
    screenshot(timeline, "taint")
    pinnace("taint", "nodes", "node-5", "dedicated-")
    pinnace("delete", "deployment", "web")
    wait_for(timeline, f"({find})[5] === 'ready'")


def test_session_stays_on_its_port(timeline: Any) -> None:
    """A service on another port of this host received the cookie of the session."""
    received: list[dict[str, str]] = []

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    site, session = timeline.url, timeline.evaluate("sessionStorage.getItem('pinnace-session')")
    assert session and not timeline.context.cookies()
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        timeline.goto(f"http://127.0.0.1:{service.server_address[1]}/")
        assert timeline.evaluate("sessionStorage.length") == 0
        refused = timeline.evaluate(
            """(site) => fetch(`${site}api/session`, { headers: { Authorization: "Bearer x" }, credentials: "include" })
              .then(() => "answered", () => "refused")""",
            site,
        )
        service.shutdown()
    assert refused == "refused" and received
    assert not any(session in value for headers in received for value in headers.values())
    timeline.goto(site)
    timeline.wait_for_selector(".status.live")


def test_pending_pod_explains_itself(timeline: Any, pinnace: Pinnace) -> None:
    pinnace("apply", "-f", "-", stdin=PENDING)
    open_tab(timeline, "pods")
    timeline.get_by_role("button", name="default/huge").click()
    timeline.wait_for_selector("text=10 Insufficient cpu")
    screenshot(timeline, "pending-pod")
    pinnace("delete", "pod", "huge")


def test_election_key_is_shown_with_its_lease(timeline: Any) -> None:
    open_tab(timeline, "etcd")
    row = timeline.locator("tr", has_text="/registry/elections/scheduler").first
    row.wait_for()
    assert row.locator("meter").count() == 1 and " s old" in row.inner_text()


def test_action_asks_and_leaves_a_mark(timeline: Any, pinnace: Pinnace) -> None:
    holder, before = leader(timeline), token(timeline)
    asked: list[str] = []
    timeline.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    timeline.get_by_label("Target").select_option(holder)
    timeline.get_by_role("button", name="kill").click()
    wait_for(timeline, f"timeline.model.state.terms.get('scheduler')[4] > {before}")
    assert asked == [f"kill {holder}?"]
    wait_for(timeline, "[...timeline.model.marks.values()].some((mark) => mark[5] === 'action')")
    pinnace("start")


def test_transfer_and_the_failure_of_a_node_ask_and_leave_marks(timeline: Any) -> None:
    before = token(timeline)
    asked: list[str] = []
    timeline.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    timeline.get_by_role("button", name="transfer leadership").click()
    wait_for(timeline, LATER.format(before))
    find = "[...timeline.model.state.nodes.values()].find((node) => node[4] === 'node-4')"
    timeline.evaluate(f"timeline.screen.node = ({find})[3]")
    timeline.get_by_role("button", name="fail node-4").click()
    wait_for(timeline, f"({find})[5] === 'not-ready'")
    timeline.get_by_role("button", name="recover node-4").click()
    wait_for(timeline, f"({find})[5] === 'ready'")
    assert asked == ["transfer scheduler?", "fail node-4?", "recover node-4?"]
    marks = timeline.evaluate("[...timeline.model.marks.values()].map((mark) => mark[6])")
    assert {question.rstrip("?") for question in asked} <= {mark.partition(": ")[2] for mark in marks}


def test_pausing_shows_the_past_and_going_live_the_present(timeline: Any, pinnace: Pinnace) -> None:
    timeline.keyboard.press("Space")
    timeline.wait_for_selector(".status.paused")
    before = token(timeline)
    pinnace("leader", "transfer")
    wait_for(timeline, "timeline.model.termsOf('scheduler').length > 1")
    assert token(timeline) == before, "paused before the transfer"
    timeline.keyboard.press("Space")
    wait_for(timeline, f"timeline.model.state.terms.get('scheduler')[4] > {before}")
    timeline.keyboard.press("Space")
    timeline.wait_for_selector(".status.paused")
    revision = timeline.evaluate("timeline.model.state.revision")
    timeline.keyboard.press(",")
    wait_for(timeline, f"timeline.model.state.revision < {revision}")
    assert "#t=" in timeline.url, "a link to the moment"


def test_past_has_no_effects_of_a_later_term(timeline: Any, pinnace: Pinnace) -> None:
    """The end of a term is known later than its begin, which is the time of its item."""
    before = token(timeline)
    pinnace("leader", "transfer")
    wait_for(timeline, LATER.format(before))
    shown = timeline.evaluate(
        """(token) => {
          const ended = timeline.model.terms.get(`scheduler/${token}`)[6];
          return [ended - 0.001, ended + 1e6].map((time) => timeline.model.seek(time).terms.get("scheduler").slice(4, 7));
        }""",
        before,
    )
    assert shown[0][0] == before and shown[0][2] is None and shown[1][0] > before


def test_page_resumes_when_the_gateway_is_back(timeline: Any, pinnace: Pinnace) -> None:
    """The gateway's sessions end with it, so the page says that it is disconnected, and a new link works."""
    pinnace("kill", "gateway-0")
    timeline.wait_for_selector(".status.disconnected")
    pinnace("start")
    timeline.goto(pinnace("ui", "--no-open"))
    timeline.wait_for_selector(".status.live")


@contextmanager
def opened(*files: Path) -> Iterator[str]:
    """Serves recordings, and gives the link."""
    command = [str(Path(sys.executable).with_name("pinnace")), "timeline", "open", "--no-open", *map(str, files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def history(path: Path, nodes: int, pods: int, *, pending: bool = False) -> Path:
    """A run with two terms and one fault, and a pod with a hostile name. `pending`: the pods were created before they ran."""
    revision, started = 0, time.time()
    offset = started - 10.0

    def put(key: str, facts: Any, at: float, created: int = 0) -> str:
        nonlocal revision
        revision += 1
        return encode_record(StoredChange(at, revision, key, "d", created or revision, 0, facts))

    with path.open("w") as file:
        file.write(encode_record(RunInfo(started=started, what="a recorded run")))
        for number in range(nodes):
            facts = NodeFacts(f"n{number}", (("cpu", 4000), ("memory", 8 << 30)), ready=number != 7, zone=f"zone-{number % 3}")
            file.write(put(f"/registry/nodes/node-{number}", facts, 10.0))
        file.write(put("/registry/elections/scheduler", ElectionFacts("scheduler-0", began=offset + 11.0), 11.0))
        term = revision
        names = [HOSTILE, *(f"pod-{number}" for number in range(pods - 1))]
        for number, name in enumerate(names):
            at = 12 + number / pods * 20
            facts = PodFacts(
                f"u{number}", f"node-{number % nodes}", phase="Running", requests=(("cpu", 100), ("memory", 1 << 28))
            )
            created = revision + 1 if pending else 0
            if pending:
                file.write(put(f"/registry/pods/default/{name}", PodFacts(f"u{number}"), at - 0.1))
            file.write(put(f"/registry/pods/default/{name}", facts, at, created))
        revision += 1
        file.write(encode_record(StoredChange(33.0, revision, "/registry/elections/scheduler")))
        file.write(put("/registry/elections/scheduler", ElectionFacts("scheduler-1", began=offset + 33.023), 33.03))
        ended = TermFacts("scheduler-0", offset + 11.0, offset + 33.0, "stream closed", heartbeat=offset + 32.9)
        file.write(put(f"/registry/terms/scheduler/{term}", ended, 33.3))
        file.write(encode_record(FaultRecord(1, "kill-leader", "leader", 32.99, 34.0, details="scheduler-0, 1 s")))
    return path


def test_recording_shows_its_terms_faults_and_verdicts(page: Any, tmp_path: Path) -> None:
    with opened(history(tmp_path / "run.jsonl", 10, 20)) as link:
        page.goto(link)
        page.wait_for_selector(".status.recording")
        wait_for(page, "timeline.model.terms.size === 2")
        assert abs(page.evaluate("timeline.model.termsOf('scheduler')[1].gap") - 23) < 0.5
        assert abs(page.evaluate("timeline.model.termsOf('scheduler')[1].outage") - 123) < 0.5
        page.wait_for_selector(".leader.held >> text=scheduler-1")
        assert "outage 123 ms" in page.locator(".leader").inner_text().replace("\n", " "), "opened after its failover"
        assert page.evaluate(
            "[...timeline.model.marks.values()].some((mark) => mark[4] === 'scheduler-0' && mark[5] === 'fault')"
        )
        open_tab(page, "verdicts")
        page.wait_for_selector("text=a pod UID is bound at most once")


def test_curves_count_the_binds_of_each_second(page: Any, tmp_path: Path) -> None:
    with opened(history(tmp_path / "run.jsonl", 10, 20, pending=True)) as link:
        page.goto(link)
        wait_for(page, "timeline.model.terms.size === 2")
        open_tab(page, "curves")
        page.get_by_role("img", name="Pods bound per second").wait_for()
        assert page.evaluate("[...timeline.model.binds.values()].reduce((sum, each) => sum + each, 0)") == 20
        canvas = page.locator(".curve canvas").first
        drawn = (
            """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((each) => each)"""
        )
        assert canvas.evaluate(drawn)
        screenshot(page, "curves")


def test_hostile_names_are_text(page: Any, tmp_path: Path) -> None:
    with opened(history(tmp_path / "run.jsonl", 10, 20)) as link:
        page.goto(link)
        wait_for(page, "timeline.model.items.length > 30")
        page.keyboard.press("Space")
        open_tab(page, "pods")
        page.get_by_role("button", name="default/<script>").wait_for()
        assert page.evaluate("globalThis.hacked") is None


def test_exported_file_opens_without_a_server(page: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    command = [str(Path(sys.executable).with_name("pinnace")), "timeline", "open", "--html", str(target)]
    subprocess.run([*command, str(history(tmp_path / "run.jsonl", 10, 20))], check=True, capture_output=True, timeout=60)
    page.goto(target.as_uri())
    wait_for(page, "globalThis.timeline?.model.terms.size === 2")
    assert page.evaluate("globalThis.hacked") is None


def test_five_thousand_nodes_scroll_smoothly_in_bounded_memory(page: Any, tmp_path: Path) -> None:
    with opened(history(tmp_path / "large.jsonl", NODES, PODS)) as link:
        page.goto(link)
        wait_for(page, f"timeline.model.items.length > {PODS}")
        page.keyboard.press("Space")
        wait_for(page, f"timeline.model.state.pods.size === {PODS} && timeline.model.state.nodes.size === {NODES}")
        frames = page.evaluate(FRAMES)
        memory = page.evaluate("performance.memory.usedJSHeapSize")
        print(f"{frames:.0f} frames/s, {memory / (1 << 20):.0f} MB")
        screenshot(page, "five-thousand-nodes")
        assert frames >= MIN_FRAMES and memory < MAX_MEMORY


def test_narrow_page_has_no_horizontal_scrollbar(page: Any, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    with opened(history(tmp_path / "run.jsonl", 10, 20)) as link:
        page.goto(link)
        wait_for(page, "timeline.model.terms.size === 2")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        screenshot(page, "narrow")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible(browser: Any, tmp_path: Path, scheme: str) -> None:
    """axe-core finds no serious fault."""
    axe = Path(__file__).parent / "axe.min.js"
    with opened(history(tmp_path / "run.jsonl", 10, 20)) as link:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(link)
        wait_for(page, "timeline.model.terms.size === 2")
        page.evaluate(axe.read_text())
        for tab in ("pods", "curves", "events", "verdicts"):
            open_tab(page, tab)
            result = page.evaluate(AXE)
            assert not result, f"{tab}: {result}"
        context.close()
