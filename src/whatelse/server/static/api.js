// Talking to the service: JSON in and out, the session's CSRF token with every change, to the sign-in page on 401.

let csrf = null;
const asked = new URLSearchParams(location.search);
export const embedded = asked.get("embed") === "1";
const launched = asked.get("smart") === "1";

export class Refused extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the service answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

export async function call(method, path, body) {
  const headers = method === "GET" ? {} : { "Content-Type": "application/json" };
  if (csrf !== null && method !== "GET") headers["X-Whatelse-CSRF"] = csrf;
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  const parsed = text ? JSON.parse(text) : null;
  if (answer.status === 401 && location.pathname !== "/signin") {
    // where to come back to: a path on this site, and an opaque key at most
    sessionStorage.setItem("whatelse-back", location.pathname + location.search);
    location.assign(launched ? "/smart/ended" : here("/signin")); // who came by a launch has nothing to sign in with here
    await new Promise(() => {});
  }
  if (!answer.ok) throw new Refused(answer.status, parsed);
  return parsed;
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);

// An address within the site that stays embedded if we are.
export const here = (path) => (embedded ? `${path}?embed=1` : path);

// A key for one decision: the service records it once, however often it is sent.
export function requestKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// What every page begins with: who is here, and which conditions the model was taught.
export async function begin() {
  document.documentElement.classList.toggle("embed", embedded);
  if (embedded) for (const link of document.querySelectorAll("a[data-nav]")) link.setAttribute("href", here(link.getAttribute("href")));
  const [session, model] = await Promise.all([get("/api/session"), get("/api/model")]);
  csrf = session.csrf;
  const titles = Object.fromEntries(model.conditions.map((condition) => [condition.name, condition.title]));
  const who = document.getElementById("who");
  who.textContent = session.auth === "none" ? "this computer" : `${session.name} (${session.role})`;
  if (session.auth !== "none") {
    const out = document.createElement("button");
    out.type = "button";
    out.className = "plain";
    out.textContent = "Sign out";
    out.addEventListener("click", async () => {
      await call("DELETE", "/api/session");
      location.assign(here("/signin"));
    });
    who.append(" ", out);
  }
  document.getElementById("to-workbench").hidden = !session.workbench;
  const caveat = document.getElementById("caveat");
  caveat.hidden = !model.caveat;
  caveat.textContent = model.caveat && `${model.caveat[0].toUpperCase()}${model.caveat.slice(1)}. Trust the order more than the percentages.`;
  const taught = document.getElementById("taught");
  const list = document.createElement("details");
  const line = document.createElement("summary");
  line.textContent = `It knows ${model.conditions.length.toLocaleString()} conditions and suggests nothing else.`;
  const names = document.createElement("span");
  names.textContent = `${Object.values(titles).join(", ")}. Model ${model.model.slice(0, 12)}.`;
  list.append(line, names);
  taught.replaceChildren(list);
  return { session, titles, mayDecide: session.role !== "viewer" };
}
