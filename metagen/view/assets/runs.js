// All runs: state, progress, what the best of them solves; two of them to compare.
import { amount, ask, duration, make, percent, place, sortable } from "./dom.js";
import { every } from "./live.js";

export async function runs(box, parts, signal) {
  const words = make("input", { type: "search", placeholder: "Search runs", "aria-label": "Search runs" });
  const list = make("div"), chosen = new Set();
  const pair = make("button", { type: "button", disabled: true, title: "Tick two runs", click: () => {
    const [a, b] = chosen;
    location.hash = place("compare", { a, b });
  } }, "Compare two");
  let found = [], last = "";

  function fill() {
    const wanted = words.value.trim().toLowerCase();
    const rows = found.filter((one) => !wanted || `${one.id} ${one.state} ${one.best || ""}`.toLowerCase().includes(wanted));
    if (!rows.length) {
      list.replaceChildren(make("p", { class: "quiet" }, found.length ? "No run is called so." : "There are no runs here yet. Make one with: metagen run FILE"));
      return;
    }
    list.replaceChildren(sortable([
      ["run", (one) => one.id, (one) => make("a", { href: place("run", { run: one.id }), "data-row": true }, one.id)],
      ["state", (one) => one.state || "", (one) => (one.error ? make("span", { class: "wrong" }, one.error) : chip(one))],
      ["problems", (one) => one.problems, (one) => count(one.problems), true],
      ["samples", (one) => one.samples, (one) => count(one.samples), true],
      ["tokens", (one) => one.generated, (one) => spent(one, "generated"), true],
      ["FLOPs", (one) => one.flops, (one) => spent(one, "flops"), true],
      ["best configuration", (one) => one.best || null, (one) => one.best || "–"],
      ["solves", (one) => one.accuracy, (one) => percent(one.accuracy), true],
      ["written", (one) => one.age, (one) => (one.age === null ? "" : one.age < 1 ? "now" : `${duration(Math.round(one.age))} ago`), true],
      ["", null, (one) => (one.error ? "" : make("input", { type: "checkbox", "aria-label": `Compare ${one.id}`, checked: chosen.has(one.id), change: (event) => {
        if (event.target.checked) chosen.add(one.id); else chosen.delete(one.id);
        pair.disabled = chosen.size !== 2;
      } }))],
    ], rows, { label: "Runs", key: (one) => one.id }));
  }

  async function load() {
    const now = await ask("runs", {}, signal);
    const text = JSON.stringify(now.map((one) => [one.id, one.state, one.samples, one.begun, one.accuracy, one.generated, one.flops]));
    found = now;
    if (text === last) return;
    last = text;
    const held = document.activeElement?.closest("[data-key]")?.dataset.key;
    fill();
    if (held) list.querySelector(`[data-key="${CSS.escape(held)}"] a`)?.focus();
  }
  await load();
  if (signal.aborted) return;
  words.addEventListener("input", fill);
  box.replaceChildren(make("h1", {}, "Runs"), make("p", { class: "tools" }, words, pair), list);
  every(3, signal, load);
}

// Records of long runs are counted over several looks; what no record knows is a question mark.
const spent = (one, what) => (one.error ? "–" : one.begun === null ? make("span", { class: "quiet", title: "being counted" }, "…") : amount(one[what]));
const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function chip(one) {
  const running = one.state === "running" && one.begun && one.problems
    ? ` ${amount(one.begun)} of ${amount(one.problems)} problems begun` : null;
  return make("span", {}, make("span", { class: `chip ${one.state}` }, one.state), running);
}
