// What a visit that was launched from an EHR has above it: the patient's banner if the EHR wants one, who is signed in,
// until when, and the ways to read the record again and to sign out.
const key = location.pathname.split("/").pop();

async function ask(method, path) {
  const session = await (await fetch("/api/session")).json();
  const headers = {"Content-Type": "application/json", "X-Whatelse-CSRF": session.csrf ?? ""};
  return fetch(path, {method, headers, body: method === "POST" ? "{}" : undefined});
}

function line(text) {
  const span = document.createElement("span");
  span.textContent = text;
  return span;
}

function button(text, work) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", work);
  return made;
}

async function show() {
  const answer = await fetch(`/smart/visit/${key}`);
  const bar = document.querySelector("#smart") ?? document.body.insertBefore(document.createElement("section"), document.body.firstChild);
  bar.id = "smart";
  bar.setAttribute("aria-label", "Launched from the EHR");
  if (!answer.ok) {
    bar.replaceChildren(line("Access to the record has ended. Launch the app again from the EHR."));
    return;
  }
  const said = await answer.json();
  const ends = new Date(said.ends * 1000);
  const parts = [];
  if (said.patient) {
    const name = document.createElement("strong");
    name.textContent = said.patient.name;
    parts.push(name, line(` born ${said.patient.born ?? "?"}, ${said.patient.sex ?? "?"} · `));
  }
  parts.push(line(`${said.user} · access until ${ends.toLocaleTimeString([], {hour: "2-digit", minute: "2-digit"})} `));
  if (said.unseen.length) parts.push(line(`· not seen: ${said.unseen.join(", ")} `));
  parts.push(
    button("Read again", async () => {
      const done = await ask("POST", `/smart/visit/${key}`);
      if (done.ok) location.reload();
      else bar.append(line((await done.json()).detail));
    }),
    button("Sign out", async () => {
      await ask("DELETE", "/smart/session");
      location.assign("/smart/ended");
    }),
  );
  bar.replaceChildren(...parts);
}

if (new URLSearchParams(location.search).get("smart") === "1") show();
