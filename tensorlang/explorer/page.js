"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const offline = data.answers !== null;
const at = (id) => document.getElementById(id);
const rules = data.colours.map((rule) => [new RegExp(rule.pattern, "my"), rule.token]);
const PAUSE = 80, LONG_PAUSE = 700;
const state = { operator: null, asked: 0, form: "loops", forms: {}, candidates: [], timers: [] };
window.explorer = { verdicts: 0, codes: 0, milliseconds: 0, problem: null };
window.addEventListener("error", (event) => { window.explorer.problem = String(event.message); });

function element(name, text, properties) {
  const made = Object.assign(document.createElement(name), properties || {});
  if (text) made.textContent = text;
  return made;
}

/* The lexer of the language: the rules are those of its editors. */
function coloured(text, fault) {
  const pieces = [];
  let position = 0;
  while (position < text.length) {
    let end = position + 1, token = "";
    const space = /[ \t\r\n]+/y;
    space.lastIndex = position;
    if (space.test(text)) end = space.lastIndex;
    else for (const [pattern, name] of rules) {
      pattern.lastIndex = position;
      if (pattern.test(text) && pattern.lastIndex > position) { end = pattern.lastIndex; token = name; break; }
    }
    const wrong = fault && position < fault.end && end > fault.start;
    pieces.push(element("span", text.slice(position, end), { className: wrong ? `${token} fault` : token }));
    position = end;
  }
  return pieces;
}

async function ask(what, directives) {
  const question = { operator: state.operator.name, directives, sizes: sizes() };
  try {
    const response = await fetch(`/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Explorer-Token": data.token },
      body: JSON.stringify(question),
    });
    if (response.ok) return await response.json();
    return { error: [{ text: await response.text(), edits: [] }] };
  } catch {
    return { error: [{ text: "The explorer has ended: start `tensorlang explore` again.", edits: [] }] };
  }
}

function sizes() {
  return Object.fromEntries([...document.querySelectorAll("#sizes input")].map((input) => [input.name, Number(input.value)]));
}

function recolour(fault) {
  const text = at("directives").value;
  at("coloured").replaceChildren(...coloured(text, fault), "\n");
  at("coloured").scrollTop = at("directives").scrollTop;
  at("coloured").scrollLeft = at("directives").scrollLeft;
}

function later(action, pause) {
  state.timers.push(setTimeout(action, pause));
}

function changed(immediately) {
  const number = ++state.asked;
  state.timers.forEach(clearTimeout);
  state.timers = [];
  recolour(null);
  mark();
  at("messages").querySelectorAll("button").forEach((button) => button.remove());  /* cures of what stood there before */
  if (!offline) later(() => judge(number), immediately ? 0 : PAUSE);
}

async function judge(number) {
  const directives = at("directives").value, begun = performance.now();
  const found = await ask("verdict", directives);
  if (number !== state.asked) return;
  showVerdict(found);
  window.explorer.milliseconds = performance.now() - begun;
  window.explorer.verdicts += 1;
  if (found.outcome === "refused" || found.outcome === "unreadable") {
    const { cure } = await ask("cure", directives);
    if (number === state.asked && cure) showMessages([cure]);
  } else if (found.outcome === "proven") later(() => compile(number), LONG_PAUSE);
}

async function compile(number) {
  at("code").classList.add("waiting");
  const found = await ask("code", at("directives").value);
  if (number !== state.asked) return;
  showCode(found);
  window.explorer.codes += 1;
}

function showVerdict(found) {
  const outcome = found.error ? "unreadable" : found.outcome;
  at("outcome").className = outcome;
  at("outcome").textContent = found.error ? "not answered" : `${outcome} in ${found.milliseconds} ms`;
  showMessages(found.error || found.messages);
  if (found.tree) at("tree").textContent = found.tree;
  at("tree").classList.toggle("waiting", !found.tree);
  showPicture(found);
  if (outcome !== "proven") { at("code").classList.add("waiting"); at("time").textContent = ""; }
}

function showPicture(found) {
  if (found.picture) at("picture").src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(found.picture)}`;
  at("picture").alt = found.picture ? `iterations of ${state.operator.name}` : "";
  at("picture").classList.toggle("waiting", !found.picture);
  at("drawn").textContent = found.drawn || "";
}

function showMessages(messages) {
  at("messages").replaceChildren(...messages.flatMap((message) => {
    const text = element("pre", message.text);
    if (!message.edits.length || offline) return [text];
    const button = element("button", "apply what cures it");
    button.onclick = () => { apply(message.edits); };
    return [text, button];
  }));
  const fault = messages.find((message) => message.range);
  recolour(fault ? fault.range : null);
}

function apply(edits) {
  let text = at("directives").value;
  for (const edit of [...edits].sort((a, b) => b.start - a.start)) text = text.slice(0, edit.start) + edit.text + text.slice(edit.end);
  put(text.replace(/^ {4}/gm, ""));
}

function put(text) {
  at("directives").value = text;
  changed(true);
}

function showCode(found) {
  at("code").classList.remove("waiting");
  if (found.error) { state.forms = {}; at("forms").replaceChildren(); at("code").textContent = found.error.map((e) => e.text).join("\n\n"); return; }
  state.forms = found.forms;
  if (!(state.form in state.forms)) state.form = Object.keys(state.forms)[0];
  at("forms").replaceChildren(...Object.keys(state.forms).map((form) => {
    const tab = element("button", form);
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-selected", String(form === state.form));
    tab.onclick = () => { state.form = form; showCode(found); };
    return tab;
  }));
  at("code").textContent = state.forms[state.form] || "";
}

function mark() {
  const text = at("directives").value.trim();
  let name = "edited";
  at("candidates").querySelectorAll("button").forEach((button, number) => {
    const same = state.candidates[number].directives.trim() === text;
    button.setAttribute("aria-current", String(same));
    if (same) name = state.candidates[number].name;
  });
  at("shown").textContent = state.candidates.length ? name : "";
}

function showCandidates(found) {
  if (found.error) { at("candidates").replaceChildren(element("li", found.error.map((e) => e.title || e.text).join("; "))); return; }
  state.candidates = found.candidates;
  at("candidates").replaceChildren(...found.candidates.map((candidate) => {
    const line = element("li"), button = element("button", candidate.change ? `${candidate.name}: ${candidate.change}` : candidate.name);
    button.title = candidate.directives || "no directives";
    button.onclick = () => { if (offline) showKnown(candidate); else put(candidate.directives); };
    line.append(button);
    return line;
  }));
  mark();
}

async function enumerate() {
  at("enumerate").disabled = true;
  showCandidates(await ask("candidates", null));
  at("enumerate").disabled = false;
}

async function measure() {
  at("measure").disabled = true;
  at("time").textContent = "compiling and measuring …";
  const found = await ask("time", at("directives").value);
  at("time").textContent = found.error ? found.error.map((e) => e.text).join("\n") : `${found.told}, for ${told(found.sizes)}`;
  at("measure").disabled = false;
}

function told(values) {
  return Object.entries(values).map(([name, value]) => `${name} = ${value}`).join(", ");
}

/* A page without a server shows what was found when it was exported. */
function showKnown(candidate) {
  at("directives").value = candidate.directives;
  recolour(null);
  mark();
  showVerdict(candidate.verdict);
  showCode(candidate.code);
  at("time").textContent = candidate.time ? candidate.time.told : "not measured";
  window.explorer.verdicts += 1;
}

function choose(name) {
  state.operator = data.about.operators.find((operator) => operator.name === name);
  state.candidates = [];
  at("candidates").replaceChildren();
  at("source").replaceChildren(...coloured(state.operator.text, null));
  at("code").textContent = at("tree").textContent = at("time").textContent = "";
  at("sizes").replaceChildren(...Object.entries(state.operator.sizes).map(([size, value]) => {
    const input = element("input", "", { type: "number", min: 0, step: 1, name: size, value, disabled: offline });
    input.onchange = () => { changed(true); };
    const label = element("label", `${size} `);
    label.append(input);
    return label;
  }));
  if (offline) {
    const known = data.answers[name];
    showCandidates(known);
    if (known.candidates && known.candidates.length) showKnown(known.candidates[0]);
    else showVerdict(known);
  } else if (state.operator.error.length) showVerdict({ error: state.operator.error });
  else put(state.operator.directives);
}

function begin() {
  at("file").textContent = data.about.file;
  at("operator").replaceChildren(...data.about.operators.map((operator) => element("option", operator.name, { value: operator.name })));
  at("operator").onchange = () => { choose(at("operator").value); };
  at("directives").oninput = () => { changed(false); };
  at("directives").onscroll = () => { at("coloured").scrollTop = at("directives").scrollTop; at("coloured").scrollLeft = at("directives").scrollLeft; };
  at("directives").readOnly = offline;
  at("enumerate").onclick = enumerate;
  at("measure").onclick = measure;
  at("enumerate").hidden = at("measure").hidden = offline;
  const asked = new URLSearchParams(location.hash.slice(1));
  const named = data.about.operators.find((operator) => operator.name === asked.get("operator")) || data.about.operators[0];
  at("operator").value = named.name;
  choose(named.name);
  if (!offline && asked.has("directives")) put(asked.get("directives"));
}

begin();
