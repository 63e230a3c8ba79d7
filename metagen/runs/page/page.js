"use strict";
// The browser of problems. Texts of models and data sets are only ever set as text, never as HTML.
(async () => {
  const PAGE = 100;
  const $ = (id) => document.getElementById(id);
  const form = $("filters"), list = $("list"), found = $("found"), more = $("more"), pane = $("problem");

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {}))
      if (value !== null && value !== false) node.setAttribute(name, value);
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  async function read() {
    const text = $("data").textContent.trim();
    if (!text) return { generators: [], problems: [] };
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  if (typeof DecompressionStream === "undefined") {
    $("browser").hidden = false;
    pane.replaceChildren(make("p", {}, "This browser cannot unpack the problems; a current one can."));
    return;
  }
  const data = await read();
  const byId = new Map(data.problems.map((problem) => [problem.id, problem]));
  let shown = PAGE;

  function amount(value) {
    if (value === null) return "?";
    for (const [size, prefix] of [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (value >= 0.9995 * size) return Number((value / size).toPrecision(3)) + prefix;
    return String(Math.round(value));
  }
  const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  const mark = (right) => make("span", { class: right ? "right" : "wrong" }, right ? "✓ right" : "✗ wrong");
  const address = (problem) => "#problem=" + encodeURIComponent(problem.id);

  // ------------------------------------------------------------------------------------------ the list

  function passes(problem, filter) {
    const generator = form.generator.value, words = form.words.value.trim().toLowerCase();
    const level = form.level ? form.level.value : "";
    if (level && String(problem.level) !== level) return false;
    if (words && !(problem.id + "\n" + problem.prompt).toLowerCase().includes(words)) return false;
    const pools = problem.pools.filter((pool) => !generator || pool.generator === generator);
    if (generator && !pools.length) return false;
    if (!filter) return true;
    if (filter === "never") return generator ? pools.every((pool) => !pool.right) : !problem.solved;
    return pools.some((pool) => pool.marks.includes(filter));
  }

  // Of the whole run, which may have more problems than this page; of what is chosen, those that are here.
  function recount() {
    const chosen = form.generator.value || (form.level && form.level.value) || form.words.value.trim();
    for (const input of form.querySelectorAll("input[name=filter]")) {
      const count = input.parentElement.querySelector(".count");
      count.dataset.all ||= count.textContent;
      count.textContent = chosen
        ? data.problems.filter((problem) => passes(problem, input.value)).length.toLocaleString("en") : count.dataset.all;
    }
  }

  function row(problem) {
    const rates = make("span", { class: "rates", "aria-hidden": "true" });
    for (const pool of problem.pools) {
      const bar = make("i");
      bar.style.height = (100 * pool.right) / pool.size + "%";
      rates.append(make("span", { title: `${pool.name}: ${pool.right} of ${pool.size} right` }, bar));
    }
    const said = problem.pools.map((pool) => `${pool.name} ${pool.right} of ${pool.size}`).join(", ");
    const link = make("a", { href: address(problem), "aria-label": `${problem.id}; right: ${said || "not pooled"}` },
      make("span", { class: "name" }, problem.id), rates);
    if (current() === problem.id) link.setAttribute("aria-current", "true");
    return make("li", {}, link);
  }

  function relist() {
    const passing = data.problems.filter((problem) => passes(problem, form.filter.value));
    found.textContent = passing.length ? `${plural(passing.length, "problem")}` : "No problem is like this.";
    list.replaceChildren(...passing.slice(0, shown).map(row));
    more.hidden = passing.length <= shown;
    return passing;
  }

  // --------------------------------------------------------------------------------------- one problem

  const heads = (...names) => make("thead", {}, make("tr", {},
    ...names.map((name, i) => make("th", { scope: "col", class: i ? "n" : null }, name))));

  function votes(pool) {
    const bar = (kind, count) => {
      const inside = make("div", { class: kind });
      inside.style.width = (100 * count) / pool.size + "%";
      inside.setAttribute("aria-hidden", "true");
      return make("td", { class: "votebar" }, inside);
    };
    const body = make("tbody");
    for (const [key, right, count, totals] of pool.votes)
      body.append(make("tr", {}, make("th", { scope: "row" }, key, " ", mark(right)), bar(right ? "yes" : "no", count),
        make("td", { class: "n" }, String(count)), ...totals.map((total) => make("td", { class: "n" }, total.toFixed(2)))));
    if (pool.silent)
      body.append(make("tr", {}, make("th", { scope: "row" }, "no vote"), bar("none", pool.silent),
        make("td", { class: "n" }, String(pool.silent)), ...pool.verifiers.map(() => make("td"))));
    const head = heads("answer", "share", "votes", ...pool.verifiers.map((name) => "Σ " + name));
    return make("div", { class: "wide" }, make("table", {}, head, body));
  }

  function choices(pool) {
    const body = make("tbody");
    for (const [label, sample, answer, right] of pool.choices)
      body.append(make("tr", {}, make("th", { scope: "row" }, label),
        make("td", {}, answer === null ? "no answer" : answer, " ", mark(right)), make("td", { class: "n" }, "sample " + sample)));
    return make("div", { class: "wide" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "strategy"), make("th", { scope: "col" }, "chooses"),
        make("th", { scope: "col", class: "n" }, "candidate"))), body));
  }

  function steps(text, values) {
    const lines = text.split("\n");
    if (lines.length > 1 && lines[lines.length - 1] === "") lines.pop();
    const matched = values !== null && values.length === lines.length;
    const box = make("ol", { class: "steps" });
    lines.forEach((line, i) => {
      const item = make("li", {}, make("span", { class: "line" }, line || " "));
      if (matched) {
        // Blue is good and orange is bad. Without colours: the number says it, and doubtful steps are bold, their edge dotted.
        const value = values[i], away = Math.abs(2 * value - 1);
        const hue = value >= 0.5 ? "var(--cool)" : "var(--hot)";
        item.style.background = `rgb(${hue} / ${(0.05 + 0.25 * away).toFixed(2)})`;
        item.style.borderLeftColor = `rgb(${hue} / ${(0.25 + 0.75 * away).toFixed(2)})`;
        if (value < 0.5) item.className = "low";
        item.prepend(make("span", { class: "value" }, value.toFixed(2)));
      }
      box.append(item);
    });
    return box;
  }

  function candidate([text, values, samples, answer, right, flaw, tokens, scores, thought, thinking], pool) {
    const head = make("p", { class: "head" }, make("strong", {}, answer === null ? "no answer" : answer), mark(right));
    pool.verifiers.forEach((name, i) => head.append(make("span", {}, `${name} ${scores[i] === null ? "–" : scores[i].toFixed(2)}`)));
    if (tokens !== null) head.append(make("span", {}, plural(tokens, "token")));
    const few = samples.slice(0, 6).join(", ") + (samples.length > 6 ? ", …" : "");
    head.append(make("span", {}, samples.length > 1 ? `×${samples.length} (samples ${few})` : `sample ${few}`));
    const by = pool.choices.filter(([, sample]) => samples.includes(sample)).map(([label]) => label);
    const title = "Thought" + (thinking === null ? "" : `, ${plural(thinking, "token")}`) + (thought === null ? ", not shown" : "");
    const before = thought === null && thinking === null ? null
      : make("details", {}, make("summary", {}, title), thought === null ? null : steps(thought, null));
    return make("li", {}, head, before, steps(text, values),
      flaw ? make("p", { class: "chosen" }, flaw) : null,
      by.length ? make("p", { class: "chosen" }, "chosen by " + by.join(", ")) : null);
  }

  function pool(one) {
    const parts = [make("h4", {}, `${one.name}: ${one.right} of ${one.size} right`)];
    if (one.size > 1) parts.push(make("h5", {}, "The vote"), votes(one));
    if (one.size > 1 && one.choices.length) parts.push(make("h5", {}, "What each strategy chose"), choices(one));
    const left = one.distinct - one.candidates.length;
    parts.push(make("h5", {}, plural(one.distinct, "distinct candidate") + (one.process ? `, steps scored by ${one.process}` : "")
      + (left ? `, ${one.candidates.length} of them here` : "")));
    parts.push(make("ul", { class: "candidates" }, ...one.candidates.map((c) => candidate(c, one))));
    return parts;
  }

  function direct(rows) {
    if (!rows.length) return [];
    const parts = [make("h4", {}, "Configurations that ran by themselves")];
    const box = make("ul", { class: "candidates" });
    for (const [name, answer, right, text, tokens, flops] of rows)
      box.append(make("li", {}, make("p", { class: "head" }, make("strong", {}, name),
        make("span", {}, answer === null ? "no answer" : answer), mark(right),
        make("span", {}, `${amount(tokens)} tokens`), make("span", {}, `${amount(flops)} FLOPs`)), text === null ? null : steps(text, null)));
    return [...parts, box];
  }

  function span([label, count, status, prefilled, cached, generated, flops, children]) {
    const name = count ? `${count} × ${label}` : label;
    const cost = [[generated, "generated"], [prefilled, "prefilled"], [cached, "cached"], [flops, "FLOPs"]]
      .filter(([value]) => value !== 0).map(([value, what]) => `${amount(value)} ${what}`).join(", ");
    return make("li", {}, make(count ? "span" : "strong", {}, name), status === "complete" ? null : ` (${status})`, " ",
      make("span", { class: "cost" }, cost), children.length ? make("ul", { class: "spans" }, ...children.map(span)) : null);
  }

  function open(problem) {
    const level = problem.level === null ? "" : `Level ${problem.level}. `;
    pane.setAttribute("aria-label", "Problem " + problem.id);
    pane.replaceChildren(
      make("h3", {}, problem.id), make("pre", { tabindex: "0", "aria-label": "Prompt" }, problem.prompt.replace(/\n+$/, "")),
      make("p", {}, `${level}Answer: `, make("strong", {}, problem.answer)),
      ...problem.pools.flatMap(pool), ...direct(problem.direct));
    if (problem.spans)
      pane.append(make("h4", {}, "What was spent, and where"), make("div", { class: "treebox" },
        make("ul", { class: "spans" }, span(problem.spans))));
  }

  // ------------------------------------------------------------------------------------------- wiring

  function current() {
    const named = /^#problem=(.*)$/.exec(location.hash);
    try { return named ? decodeURIComponent(named[1]) : null; } catch { return null; }
  }

  function follow(moved) {
    const id = current();
    if (id === null) return;
    const problem = byId.get(id);
    if (problem) open(problem);
    else pane.replaceChildren(make("p", {}, "This page has no problem ", make("code", {}, id), "."));
    for (const link of list.querySelectorAll("a"))
      if (link.getAttribute("href") === "#problem=" + encodeURIComponent(id)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    if (moved) {
      pane.focus({ preventScroll: true });
      const top = pane.getBoundingClientRect().top;
      if (top < 0 || top > innerHeight * 0.7) pane.scrollIntoView();
    }
  }

  form.addEventListener("input", () => { shown = PAGE; recount(); relist(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => { shown += PAGE; relist(); });
  addEventListener("hashchange", () => follow(true));
  form.hidden = false;
  $("browser").hidden = false;
  relist();
  if (current() === null && data.problems.length) open(data.problems[0]);
  follow(false);
  if (current() !== null) pane.scrollIntoView();
  document.documentElement.dataset.ready = "yes";
})();
