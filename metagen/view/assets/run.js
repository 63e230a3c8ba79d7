// One run: how far it is, what its configurations solve and cost, its problems, and what was spent.
import { amount, ask, beside, between, compare, copy, duration, here, make, note, percent, place, plural, sortable } from "./dom.js";
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
  let browse = problems(list, name, results);
  let busy = false, ticks = 0;
  if (state.going) every(2, signal, async () => {
    if (busy || !state.going) return;
    busy = true;
    try {
      state = await ask("run", { run: name }, signal);
      if (++ticks % 3 === 0 || !state.going) {
        const now = await ask("results", { run: name }, signal);
        if (JSON.stringify(now) !== JSON.stringify(results)) {
          results = now;
          show = measured(accuracy, name, results, signal, show);
          browse = problems(list, name, results, browse);
        }
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

export function order(results, parts) {
  const rate = (one) => {
    const size = one.pools.reduce((sum, pool) => sum + pool.size, 0), right = one.pools.reduce((sum, pool) => sum + pool.right, 0);
    if (size) return right / size;
    const outcomes = Object.values(one.outcomes);
    return outcomes.length ? outcomes.filter(Boolean).length / outcomes.length : null;
  };
  const words = (parts.get("q") || "").trim().toLowerCase(), filter = parts.get("filter") || "";
  const level = parts.get("level") || "", generator = parts.get("generator") || "", sort = parts.get("sort") || "order";
  const passing = results.problems.filter((one) => {
    if (level && String(one.level) !== level) return false;
    if (words && !`${one.id}\n${one.head}`.toLowerCase().includes(words)) return false;
    const pools = one.pools.filter((pool) => !generator || pool.generator === generator);
    if (generator && !pools.length) return false;
    if (!filter) return true;
    if (filter.startsWith("right:")) return one.outcomes[filter.slice(6)] === true;
    if (filter.startsWith("wrong:")) return one.outcomes[filter.slice(6)] === false;
    if (filter === "never") return generator ? pools.every((pool) => !pool.right) : !one.solved;
    return pools.some((pool) => pool.marks.includes(filter));
  });
  const value = { level: (one) => one.level, right: rate, left: rate, generated: (one) => one.generated }[sort];
  return value ? passing.map((one, i) => [one, i]).sort(([a, i], [b, j]) => compare(value(a), value(b), sort === "generated" || sort === "left") || i - j).map(([one]) => one) : passing;
}

function problems(box, name, results, before) {
  const all = results.problems;
  if (!all.length) {
    box.replaceChildren();
    return { follow() {} };
  }
  const levels = [...new Set(all.map((one) => one.level))].filter((level) => level !== null).sort((a, b) => a - b);
  const generators = [...new Set(all.flatMap((one) => one.pools.map((pool) => pool.generator)))];
  const direct = [...new Set(all.flatMap((one) => Object.keys(one.outcomes)))];
  let shown = before ? before.shown() : PAGE;
  const option = (value, said) => make("option", { value }, said);
  const field = {
    q: make("input", { type: "search", placeholder: "Search problems", "aria-label": "Search problems" }),
    filter: make("select", { "aria-label": "Filter" }, option("", "all problems"),
      Object.entries(results.filters).map(([key, [said]]) => option(key, said)),
      direct.flatMap((one) => [option(`right:${one}`, `right: ${one}`), option(`wrong:${one}`, `wrong: ${one}`)])),
    level: levels.length > 1 ? make("select", { "aria-label": "Level" }, option("", "all levels"), levels.map((one) => option(String(one), `level ${one}`))) : null,
    generator: generators.length > 1 ? make("select", { "aria-label": "Generator" }, option("", "all generators"), generators.map((one) => option(one, one))) : null,
    sort: make("select", { "aria-label": "Sort" }, Object.entries(SORTS).map(([key, said]) => option(key === "order" ? "" : key, said))),
  };
  const rows = make("ul", { class: "problems" }), said = make("p", { class: "quiet", role: "status" });
  const meaning = make("p", { class: "quiet" });
  const more = make("button", { type: "button", click: () => { shown += PAGE; fill(); } }, "More");

  function fill() {
    const parts = here().parts, passing = order(results, parts);
    said.textContent = passing.length ? plural(passing.length, "problem") : "No problem is like this.";
    meaning.textContent = results.filters[parts.get("filter")] ? results.filters[parts.get("filter")][1] + "." : "";
    const keep = Object.fromEntries(["q", "filter", "level", "generator", "sort"].map((key) => [key, parts.get(key)]));
    rows.replaceChildren(...passing.slice(0, shown).map((one) => make("li", {},
      make("a", { href: place("problem", { run: name, problem: one.id, ...keep }), "data-row": true },
        make("span", { class: "name" }, one.id), make("span", { class: "ask" }, one.head),
        make("span", { class: "rates" }, one.pools.length
          ? one.pools.map((pool) => make("span", {}, share(pool.right, pool.size, `${pool.name}: ${pool.right} of ${pool.size} right`), make("small", {}, `${pool.right}/${pool.size}`)))
          : `${Object.values(one.outcomes).filter(Boolean).length} of ${plural(Object.keys(one.outcomes).length, "configuration")} right`)))));
    more.hidden = passing.length <= shown;
  }
  function follow(parts) {
    for (const [key, input] of Object.entries(field)) if (input) input.value = parts.get(key) || "";
    fill();
  }
  for (const [key, input] of Object.entries(field))
    if (input) input.addEventListener("input", () => { shown = PAGE; note({ [key]: input.value }); fill(); });
  const held = document.activeElement && box.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  box.replaceChildren(make("h2", {}, `Problems${results.so_far ? " so far" : ""}`),
    make("p", { class: "tools" }, Object.values(field).filter(Boolean)), meaning, said, rows, more);
  follow(here().parts);
  if (held) box.querySelector(`[aria-label="${CSS.escape(held)}"]`)?.focus();
  return { follow, shown: () => shown };
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
