// The session of the page. It is kept in the sessionStorage of this origin, which pages of other ports cannot read, and sent in a
// header. A link has a one-time token in its fragment.

const KEY = "pinnace-session";
const RETRY = 1000; // milliseconds

export class Refused extends Error {}

// Exchanges the token of a link, if there is one, for a session.
export async function login() {
  const token = /[#&]token=([\w-]+)/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  const response = await fetch("/api/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
  if (!response.ok) throw new Refused(await response.text());
  sessionStorage.setItem(KEY, (await response.json()).session);
}

export function request(path, options = {}) {
  return fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` } });
}

// Saves the answer of a path as a file.
export async function download(path, name) {
  const response = await request(path);
  if (!response.ok) throw new Refused(await response.text());
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), RETRY);
}

// Calls `receive` with the name and data of each event of a stream, and `lost` when the connection is lost. Resumes after the last
// event, until the server ends the stream or refuses it; then calls `ended` with the reason.
export async function follow(path, receive, lost, ended) {
  let last = "";
  for (;;) {
    try {
      const response = await request(path, last ? { headers: { "Last-Event-ID": last } } : {});
      if (response.status === 401 || response.status === 403) return ended(await response.text());
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      for await (const fields of events(response.body)) {
        const data = JSON.parse(fields.data);
        if (fields.event === "end") return ended(data.reason);
        last = fields.id;
        receive(fields.event, data);
      }
    } catch (error) {
      console.warn(`the stream was lost: ${error.message}`);
    }
    lost();
    await new Promise((resolve) => setTimeout(resolve, RETRY));
  }
}

// The fields of each event. https://html.spec.whatwg.org/multipage/server-sent-events.html
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of an event that is not complete
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    let rest = value;
    if (parts.at(-1)?.endsWith("\n") && rest.startsWith("\n")) rest = parts.pop() + rest; // the end of an event in two chunks
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      parts.push(rest.slice(0, end));
      yield Object.fromEntries(parts.join("").split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
      parts = [];
      rest = rest.slice(end + 2);
    }
    if (rest) parts.push(rest);
  }
}
