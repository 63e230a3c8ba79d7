// One run: how far it is, what its configurations solve and cost, its problems, and what was spent.
import { amount, ask, beside, between, copy, duration, here, make, note, percent, place, plural, sortable } from "./dom.js";
import { curves } from "./chart.js";
import { every } from "./live.js";
import { chip } from "./runs.js";
import { share } from "./steps.js";

const COSTS = [["n", "candidates"], ["generated", "tokens generated a problem"], ["tokens", "tokens a problem"], ["flops", "FLOPs a problem"],
  ["seconds", "seconds of calls a problem"], ["money", "money a problem"]];
const PAGE = 100;

export async function run(box, parts, signal) {
  const name = parts.get("run");
  let state = await ask("run", { run: name }, signal);
  const head = make("section", { class: "head" }), accuracy = make("section", { "aria-label": "Accuracy" });
  const list = make("section", { "aria-label": "Problems" }), spent = make("section", { "aria-label": "Spent" });
  const file = make("section", { "aria-label": "Experiment" });
  box.replaceChildren(head, accuracy, list, spent, file);
  let results = null;

  function top() {
    const going = state.going;
    const spends = state.ledger.spent || [];
    const all = (what) => spends.reduce((sum, one) => (sum === null || one[what] === null ? null : sum + one[what]), 0);
    const done = going ? (results ? results.delivered : null) : state.delivered;
    const facts = [
      state.problems === null ? "problems not known yet" : plural(state.problems, "problem"),
      going ? `${state.ledger.problems ?? "?"} begun` : null,
      state.samples === null ? null : `${amount(state.samples)} samples${going ? " recorded so far" : ""}`,
      `${amount(all("generated"))} tokens`, `${amount(all("flops"))} FLOPs`,
      all("money") ? `money ${amount(all("money"))}` : null,
      state.seconds && !going ? duration(state.seconds) : null,
      state.seed === null ? null : `seed ${state.seed}`,
    ].filter((one) => one !== null);
    const bar = make("progress", { max: state.expected || 1, value: done ?? 0, "aria-label": "Samples and solutions delivered" });
    head.replaceChildren(...[
      make("p", { class: "kicker" }, make("span", {}, state.id), " ", chip(state)),
      make("h1", {}, results && results.headline.length ? results.headline[0] : state.id),
      ...(results ? results.headline.slice(1).map((line) => make("p", { class: "lead" }, line)) : []),
      make("p", { class: "facts" }, facts.join(" · ")),
      going && state.expected ? make("p", { class: "progress" }, bar,
        done === null ? " counting what is finished…" : ` ${amount(done)} of ${amount(state.expected)} samples and solutions are finished`) : null,
      results && results.so_far && !results.why ? make("p", { class: "notice soft" }, `The run has no end yet: all figures are of what it has finished so far, and each configuration may have finished other problems. ${state.state === "interrupted" ? state.resume || "" : ""}`) : null,
      results && results.left ? make("p", { class: "quiet" }, `${plural(results.counted, "problem")} are counted here, ${results.left.toLocaleString("en")} more are being counted.`) : null,
      results && results.why ? make("p", { class: "notice soft" }, results.why) : null,
      state.note ? make("p", { class: "notice soft" }, state.note) : null,
      ...state.notes.map((one) => make("p", { class: "quiet" }, one)),
      state.ledger.attempts ? make("p", { class: "quiet" }, `${plural(state.ledger.attempts, "attempt")} began and the journal holds no end of them.`) : null,
      state.failures.length ? failures(state.failures) : null,
      make("p", { class: "tools" },
        state.report ? make("a", { href: `/report?run=${encodeURIComponent(name)}`, target: "_blank", rel: "noopener" }, "the report, one file") : null,
        make("button", { type: "button", click: () => copy(location.href, "the link") }, "copy link")),
    ].filter(Boolean));
  }

  top();
  spending(spent, state);
  experiment(file, name, signal);
  accuracy.replaceChildren(make("p", { class: "quiet" }, "Measuring…"));
  results = await ask("results", { run: name }, signal);
  if (signal.aborted) return;
  top();
  let show = measured(accuracy, name, results, signal);
  const browse = await problems(list, name, () => results.filters, signal);
  if (signal.aborted) return;
  let busy = false, ticks = 0, ended = !state.going;
  every(2, signal, async () => {
    if (busy || (ended && state.ledger.whole !== false)) return;
    busy = true;
    try {
      state = await ask("run", { run: name }, signal);
      if (!ended && (++ticks % 3 === 0 || results.left || !state.going)) {
        const now = await ask("results", { run: name }, signal);
        if (JSON.stringify(now) !== JSON.stringify(results)) {
          results = now;
          show = measured(accuracy, name, results, signal, show);
          await browse.load();
        }
        ended = !state.going;
      }
      top();
      spending(spent, state);
    } finally { busy = false; }
  });
  box.addEventListener("parts", (event) => browse.follow(event.detail), { signal });
}

function failures(all) {
  const found = new Map();
  for (const one of all) found.set(one.message, [...(found.get(one.message) || []), one]);
  return make("details", { class: "notice" }, make("summary", {}, `${plural(all.length, "part")} of the work failed`),
    make("ul", {}, [...found].map(([message, ours]) => make("li", {}, message, make("span", { class: "quiet" },
      ` (${plural(ours.length, "time")}: ${ours.slice(0, 3).map((one) => `${one.problem}, ${one.part}`).join("; ")}${ours.length > 3 ? "; …" : ""})`)))));
}

// --------------------------------------------------------------------------------------------- accuracy

function measured(box, name, results, signal, before) {
  const all = results.configurations;
  if (!all.length) {
    box.replaceChildren(make("h2", {}, "Accuracy"), make("p", { class: "quiet" }, "Nothing is finished yet."));
    return {};
  }
  const costs = COSTS.filter(([cost]) => cost === "n" || all.some((one) => one[cost]));
  const kept = (before && before.cost) || here().parts.get("by");
  const by = costs.some(([cost]) => cost === kept) ? kept : costs.some(([cost]) => cost === "flops") ? "flops" : "n";
  const now = { cost: by };
  const several = new Set(all.map((one) => one.generator)).size > 1;
  const label = (one) => (several ? `${one.generator} ` : "") + one.strategy + (one.oracle ? " (oracle)" : "");
  const groups = new Map();
  for (const one of all) groups.set(label(one), [...(groups.get(label(one)) || []), one]);
  const chart = make("div", { class: "chart" }), rows = new Map();
  const choose = make("select", { "aria-label": "Against", change: () => { now.cost = choose.value; note({ by: choose.value }); draw(); } },
    costs.map(([cost, said]) => make("option", { value: cost, selected: cost === by }, said)));

  function draw() {
    const cost = now.cost, values = all.map((one) => (cost === "n" ? one.n || 1 : one[cost])).filter(Boolean);
    const log = Math.max(...values) > 8 * Math.min(...values);
    curves(chart, [...groups].map(([title, ours]) => ({ name: title, points: ours.map((one) => ({
      x: cost === "n" ? one.n || 1 : one[cost], y: one.accuracy, low: one.low, high: one.high, name: one.configuration, key: one.configuration,
      said: `${percent(one.accuracy)}${one.low === null ? "" : ` (95% interval ${between(one.low, one.high)}%)`} at ${amount(cost === "n" ? one.n || 1 : one[cost])} ${costs.find(([c]) => c === cost)[1]}`,
    })).sort((a, b) => a.x - b.x) })), {
      x: costs.find(([c]) => c === cost)[1], y: "solved", log,
      pick: (point) => { const row = rows.get(point.key); if (row) { row.scrollIntoView({ block: "center" }); row.classList.add("flash"); setTimeout(() => row.classList.remove("flash"), 1500); } },
      label: `Accuracy of ${groups.size} curves; the table below has the numbers`,
    });
  }
  const table = sortable([
    ["configuration", (one) => one.configuration, (one) => [one.configuration, one.oracle ? " (oracle)" : ""]],
    ["solved", (one) => one.accuracy, (one) => percent(one.accuracy), true],
    ["95% interval", (one) => one.low, (one) => between(one.low, one.high) || "–", true],
    ["problems", (one) => one.problems, (one) => String(one.problems), true],
    ["tokens", (one) => one.tokens, (one) => amount(one.tokens), true],
    ["FLOPs", (one) => one.flops, (one) => amount(one.flops), true],
    ["seconds", (one) => one.seconds, (one) => amount(one.seconds), true],
    ["copy as", null, (one) => recipes(name, one.configuration, signal)],
  ], all, { label: "Configurations", by: 1, down: true, row: (made, one) => rows.set(one.configuration, made) });
  const opened = before && before.open !== undefined ? before.open() : all.length <= 12;
  const details = make("details", { open: opened }, make("summary", {}, plural(all.length, "configuration")), table);
  now.open = () => details.open;
  box.replaceChildren(make("h2", {}, `Accuracy${results.so_far ? " so far" : ""}`),
    make("p", { class: "tools" }, make("label", {}, "against ", choose),
      results.few ? make("span", { class: "quiet" }, `Of fewer than ${results.few} problems there are no intervals.`) : null), chart, details);
  draw();
  return now;
}

export function recipes(run, configuration, signal) {
  const get = (kind, said) => make("button", { type: "button", class: "small", "aria-label": `Copy ${configuration} as ${said}`,
    click: () => beside(ask("recipe", { run, configuration }, signal).then((made) => copy(made[kind], `${configuration} as ${said}`))) }, said);
  return make("span", { class: "recipes" }, get("yaml", "YAML"), " ", get("python", "Python"));
}

// --------------------------------------------------------------------------------------------- problems

const SORTS = { order: "in their order", level: "by level", right: "hardest first", left: "easiest first", generated: "most tokens first" };
const WISH = ["q", "filter", "level", "generator", "sort"];
// Of an address, what narrows and sorts the list of problems.
export const wish = (parts) => Object.fromEntries(WISH.map((key) => [key, parts.get(key) || ""]).filter(([, value]) => value));

// The list of problems: the server searches, filters and sorts, and gives the rows that are shown.
async function problems(box, name, filters, signal) {
  const option = (value, said) => make("option", { value }, said);
  const rows = make("ul", { class: "problems" }), said = make("p", { class: "quiet", role: "status" }), meaning = make("p", { class: "quiet" });
  const tools = make("p", { class: "tools" });
  const more = make("button", { type: "button", "data-more": true, hidden: true, click: () => beside(load(true)) }, "More");
  let field = {}, shown = PAGE, last = "", choices = "", turn = 0;

  // The choices there are; they grow with a run.
  function offer({ levels, generators, direct }) {
    const now = JSON.stringify([levels, generators, direct, filters()]);
    if (now === choices) return;
    choices = now;
    const held = document.activeElement?.closest("section") === box ? document.activeElement.getAttribute("aria-label") : null;
    const search = field.q || make("input", { type: "search", placeholder: "Search problems", "aria-label": "Search problems" });
    field = {
      q: search,
      filter: make("select", { "aria-label": "Filter" }, option("", "all problems"),
        Object.entries(filters()).map(([key, [text]]) => option(key, text)),
        direct.flatMap((one) => [option(`right:${one}`, `right: ${one}`), option(`wrong:${one}`, `wrong: ${one}`)])),
      level: levels.length > 1 ? make("select", { "aria-label": "Level" }, option("", "all levels"), levels.map((one) => option(String(one), `level ${one}`))) : null,
      generator: generators.length > 1 ? make("select", { "aria-label": "Generator" }, option("", "all generators"), generators.map((one) => option(one, one))) : null,
      sort: make("select", { "aria-label": "Sort" }, Object.entries(SORTS).map(([key, text]) => option(key === "order" ? "" : key, text))),
    };
    for (const [key, one] of Object.entries(field)) if (one && key !== "q") one.addEventListener("change", () => { note({ [key]: one.value }); beside(fresh()); });
    tools.replaceChildren(...Object.values(field).filter(Boolean));
    set(here().parts);
    if (held) tools.querySelector(`[aria-label="${CSS.escape(held)}"]`)?.focus();
  }
  function set(parts) {
    for (const [key, one] of Object.entries(field)) if (one && one !== document.activeElement) one.value = parts.get(key) || "";
  }
  // Configurations that ran by themselves: their number, and how many are right.
  function alone(one) {
    const all = Object.values(one.outcomes), right = all.filter(Boolean).length;
    if (!all.length) return null;
    const title = `${right} of ${plural(all.length, "configuration")} that ran by ${all.length > 1 ? "themselves" : "itself"} right`;
    return make("span", { class: "alone", title }, share(right, all.length, title), make("small", {}, `${right}/${all.length}`));
  }
  const row = (one, keep) => make("li", {}, make("a", { href: place("problem", { run: name, problem: one.id, ...keep }), "data-row": true },
    make("span", { class: "name" }, one.id), make("span", { class: "ask" }, one.head),
    make("span", { class: "rates" }, one.pools.length
      ? one.pools.map((pool) => make("span", {}, share(pool.right, pool.size, `${pool.name}: ${pool.right} of ${pool.size} right`), make("small", {}, `${pool.right}/${pool.size}`)))
      : null, alone(one))));

  // further: a page more; otherwise the same rows anew.
  async function load(further = false) {
    const mine = ++turn, keep = wish(here().parts);
    rows.setAttribute("aria-busy", "true");
    const start = further ? rows.childElementCount : 0, count = further ? PAGE : shown;
    const found = await ask("problems", { run: name, ...keep, start, count }, signal);
    if (signal.aborted || mine !== turn) return;
    offer(found);
    said.textContent = found.total ? plural(found.total, "problem") : "No problem is like this.";
    meaning.textContent = filters()[keep.filter] ? filters()[keep.filter][1] + "." : "";
    const text = JSON.stringify([keep, found.problems]);
    if (further) rows.append(...found.problems.map((one) => row(one, keep)));
    else if (text !== last) {
      const held = document.activeElement?.closest(".problems") === rows ? document.activeElement.getAttribute("href") : null;
      rows.replaceChildren(...found.problems.map((one) => row(one, keep)));
      if (held) rows.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus();
    }
    last = further ? "" : text;
    rows.removeAttribute("aria-busy");
    shown = Math.max(PAGE, rows.childElementCount);
    rows.classList.toggle("long", shown > 3 * PAGE);
    const left = found.total - rows.childElementCount;
    more.hidden = left <= 0;
    more.textContent = `${Math.min(PAGE, left).toLocaleString("en")} more of ${left.toLocaleString("en")}`;
    box.hidden = !found.total && !Object.keys(keep).length;
  }
  function fresh() {
    shown = PAGE;
    return load();
  }
  box.replaceChildren(make("h2", {}, "Problems"), tools, meaning, said, rows, more);
  offer({ levels: [], generators: [], direct: [] });
  let typing;
  field.q.addEventListener("input", () => {
    note({ q: field.q.value });
    rows.setAttribute("aria-busy", "true");
    clearTimeout(typing);
    typing = setTimeout(() => beside(fresh()), 120);
  });
  await load();
  return { load, follow: (parts) => { set(parts); beside(fresh()); } };
}

// ------------------------------------------------------------------------------------------------ spent

function spending(box, state) {
  const rows = state.ledger.spent || [];
  if (!rows.length) {
    box.replaceChildren();
    return;
  }
  const total = (what) => Math.max(...rows.map((one) => one[what] || 0)) || 1;
  const bar = (one, what) => {
    const inside = make("div", { class: "part", "aria-hidden": "true" });
    inside.style.width = `${(100 * (one[what] || 0)) / total(what)}%`;
    return make("span", { class: "bar" }, inside, make("span", {}, amount(one[what])));
  };
  const table = sortable([
    ["who", (one) => one.name, (one) => one.name],
    ["does", (one) => one.kind, (one) => one.kind],
    ["records", (one) => one.records, (one) => one.records.toLocaleString("en"), true],
    ["generated", (one) => one.generated, (one) => bar(one, "generated"), true],
    ["prefilled", (one) => one.prefilled, (one) => bar(one, "prefilled"), true],
    ["cached", (one) => one.cached, (one) => amount(one.cached), true],
    ["FLOPs", (one) => one.flops, (one) => bar(one, "flops"), true],
    ["seconds of calls", (one) => one.seconds, (one) => amount(one.seconds), true],
  ], rows, { label: "What was spent" });
  const growth = state.ledger.time || [];
  const chart = make("div", { class: "chart" });
  box.replaceChildren(...[make("h2", {}, `Spent${state.going ? " so far" : ""}`),
    state.ledger.whole ? null : make("p", { class: "quiet" }, "The journal is long: its records are still being counted."),
    table, growth.length > 2 ? [make("h3", {}, "Samples recorded, by seconds since the first"), chart] : null].flat().filter(Boolean));
  if (growth.length > 2)
    curves(chart, [{ name: "samples", points: growth.map(([second, samples, tokens]) => ({ x: second, y: samples,
      said: `${amount(samples)} samples, ${amount(tokens)} tokens after ${duration(second)}` })) }],
      { x: "seconds", y: "samples", share: false, height: 180, label: "Samples recorded over time" });
}

function experiment(box, name, signal) {
  const shown = make("pre", {}, "Reading…");
  const text = async () => (await ask("experiment", { run: name }, signal)).text;
  const details = make("details", { toggle: () => {
    if (details.open && shown.textContent === "Reading…") beside(text().then((found) => { shown.textContent = found; }));
  } }, make("summary", {}, "The experiment, resolved"),
    make("p", {}, make("button", { type: "button", click: () => beside(text().then((found) => copy(found, "the experiment as YAML"))) }, "copy as YAML")), shown);
  box.replaceChildren(details);
}
