// One problem: what was asked, what each pool voted, and each configuration as it went: tree, conversation, time.
import { amount, ask, beside, copy, here, make, mark, note, place, plural } from "./dom.js";
import { talk, timeline } from "./calls.js";
import { recipes, wish } from "./run.js";
import { candidate, steps, votes } from "./steps.js";
import { tree } from "./tree.js";

const FEW = 8;

export async function problem(box, parts, signal) {
  const run = parts.get("run"), id = parts.get("problem");
  const data = await ask("problem", { run, problem: id }, signal);
  if (signal.aborted) return;
  const names = data.lines.map((line) => line.name);
  const results = make("nav", { class: "beside", "aria-label": "Problems beside this one" });
  const outcomes = new Map(data.direct.map((row) => [row[0], row]));
  const closer = make("section", { "aria-label": "Configurations" });
  box.replaceChildren(...[
    results,
    make("h1", { class: "id" }, id),
    make("pre", { class: "ask", tabindex: "0", "aria-label": "Prompt" }, data.prompt.replace(/\n+$/, "")),
    data.level === null ? null : make("p", {}, `Level ${data.level}.`),
    data.answer.length < 200 ? make("p", {}, "Answer: ", make("strong", {}, data.answer))
      : make("details", {}, make("summary", {}, "The reference"), make("pre", {}, data.answer)),
    data.so_far ? make("p", { class: "notice soft" }, "The run has no end yet: this is what it has finished of this problem so far.") : null,
    ...data.failures.map((one) => make("p", { class: "notice" }, `${one.part} failed: ${one.message}`)),
    ...data.pools.map(pool),
    names.length ? closer : null,
    data.spans ? make("section", {}, make("details", {}, make("summary", {}, "What was spent, and where"),
      make("div", { class: "spanbox" }, make("ul", { class: "spans" }, span(data.spans))))) : null,
  ].filter(Boolean));
  beside(neighbours(results, run, id, names.length ? closer : null, signal));
  if (!names.length) return;
  await configurations(closer, { run, id, data, names, outcomes }, box, signal);
  // A link to a configuration leads to it.
  if (parts.get("configuration") && !signal.aborted) closer.scrollIntoView();
}

async function neighbours(box, run, id, closer, signal) {
  const keep = wish(here().parts), list = await ask("beside", { run, problem: id, ...keep }, signal);
  if (signal.aborted || list.at === null) return;
  // Where it leads is known when it is followed: the configuration and the view may have changed by then.
  const target = (one) => place("problem", { run, problem: one, ...keep, ...Object.fromEntries(["configuration", "show", "form"].map((key) => [key, here().parts.get(key)])) });
  const link = (one, said, name) => (one ? make("a", { href: target(one), [name]: true, title: one, click: (event) => { event.currentTarget.href = target(one); } }, said) : null);
  box.replaceChildren(make("a", { href: place("run", { run, ...keep }) }, "all problems"), ` ${(list.at + 1).toLocaleString("en")} of ${list.total.toLocaleString("en")} `,
    ...[link(list.before, "← before", "data-before"), " ", link(list.next, "next →", "data-next"), " ",
      closer ? make("button", { type: "button", class: "small", click: () => closer.scrollIntoView() }, "call by call ↓") : null].filter(Boolean));
}

function pool(one) {
  const list = make("ul", { class: "candidates" }, one.candidates.slice(0, FEW).map((c) => candidate(c, one)));
  const rest = one.candidates.slice(FEW);
  const more = rest.length ? make("button", { type: "button", click: () => { list.append(...rest.map((c) => candidate(c, one))); more.remove(); } }, `${plural(rest.length, "more candidate")}`) : null;
  return make("section", {},
    make("h2", {}, `${one.name}: ${one.right} of ${one.size} right`),
    one.size > 1 ? [make("h3", {}, "The vote"), votes(one)] : null,
    one.size > 1 && one.choices.length ? [make("h3", {}, "What each strategy chose"), make("ul", { class: "choices" }, one.choices.map(([label, sample, answer, right]) =>
      make("li", {}, make("strong", {}, label), ` ${answer === null ? "no answer" : answer} `, mark(right), make("span", { class: "quiet" }, ` sample ${sample}`))))] : null,
    make("h3", {}, plural(one.distinct, "distinct candidate") + (one.process ? `, steps scored by ${one.process}` : "")), list, more);
}

// --------------------------------------------------------------------------- a configuration, call by call

async function configurations(box, { run, id, data, names, outcomes }, main, signal) {
  const pane = make("div", { class: "pane" });
  const option = (line) => {
    const row = outcomes.get(line.name);
    return make("option", { value: line.name }, line.name + (row ? (row[2] ? " ✓" : " ✗") : line.pooled ? " (shares the pool)" : ""));
  };
  const choose = make("select", { "aria-label": "Configuration" }, data.lines.map(option));
  const named = new Map(data.lines.map((line) => [line.name, line]));
  let asked = 0, turn = () => {};

  async function show() {
    const name = choose.value, mine = ++asked;
    pane.replaceChildren(make("p", { class: "quiet" }, "Reading its calls…"));
    let seen;
    try {
      seen = await ask("replay", { run, problem: id, configuration: name }, signal);
    } catch (error) {
      if (!signal.aborted && mine === asked) pane.replaceChildren(make("p", { class: "notice soft" }, `Its calls cannot be shown: ${error.message}`));
      return;
    }
    if (signal.aborted || mine !== asked) return;
    const views = {};
    if (seen.trees.length) views.tree = () => make("div", {}, seen.trees.map((one) => [seen.trees.length > 1 ? make("h4", {}, `tree of ${one.path}`) : null, tree(one, `Search tree of ${name}`)]));
    views.talk = () => talk(seen, data.prompt);
    views.time = () => timeline(seen);
    const words = { tree: "tree", talk: "conversation", time: "who waited for whom" };
    const wanted = here().parts.get("show");
    let now = views[wanted] ? wanted : seen.trees.length ? "tree" : seen.calls.length <= 40 ? "talk" : "time";
    const body = make("div", { class: "body", role: "tabpanel" });
    const tabs = make("div", { class: "choose", role: "tablist" }, Object.keys(views).map((key) =>
      make("button", { type: "button", role: "tab", "data-view": key, click: () => { now = key; note({ show: key }); fill(); } }, words[key])));
    function fill() {
      for (const tab of tabs.children) tab.setAttribute("aria-selected", tab.dataset.view === now);
      body.replaceChildren(views[now]());
    }
    turn = (key) => { if (views[key] && key !== now) { now = key; fill(); } };
    const row = outcomes.get(name), line = named.get(name);
    pane.replaceChildren(...[
      make("p", { class: "tools" },
        row ? [make("strong", {}, row[1] === null ? "no answer" : row[1]), " ", mark(row[2])] : null,
        seen.usage ? make("span", {}, `${amount(seen.usage.generated)} tokens, ${amount(seen.usage.flops)} FLOPs, ${plural(seen.calls.length, "call")}`) : null,
        seen.exhausted ? make("span", { class: "chip" }, "best effort") : null,
        recipes(run, name, signal),
        make("button", { type: "button", class: "small", click: () => copy(location.href, "the link") }, "copy link")),
      seen.note ? make("p", { class: "notice soft" }, seen.note) : null,
      seen.left_out ? make("p", { class: "quiet" }, `${plural(seen.left_out, "later call")} are left out here.`) : null,
      line.pooled ? make("p", { class: "quiet" }, "Its samples are those of the pool: this is what it would have asked by itself.") : null,
      tabs, body,
      seen.text === null ? null : make("details", {}, make("summary", {}, "What it returned"), steps(seen.text, null)),
    ].filter(Boolean));
    fill();
  }
  choose.addEventListener("change", () => { note({ configuration: choose.value, node: null }); beside(show()); });
  main.addEventListener("parts", (event) => {
    const name = event.detail.get("configuration");
    if (names.includes(name) && name !== choose.value) { choose.value = name; beside(show()); } else turn(event.detail.get("show"));
  }, { signal });
  box.replaceChildren(make("h2", {}, "Configurations, call by call"), make("p", { class: "tools" }, choose), pane);
  const first = here().parts.get("configuration");
  // Searches first: what they did is seen nowhere else.
  choose.value = names.includes(first) ? first : (data.lines.find((line) => !line.pooled && outcomes.has(line.name) && line.n > 1) || data.lines.find((line) => outcomes.has(line.name)) || data.lines[0]).name;
  await show();
}

function span([label, count, status, prefilled, cached, generated, flops, children]) {
  const name = count ? `${count} × ${label}` : label;
  const cost = [[generated, "generated"], [prefilled, "prefilled"], [cached, "cached"], [flops, "FLOPs"]]
    .filter(([value]) => value !== 0).map(([value, what]) => `${amount(value)} ${what}`).join(", ");
  const said = [make(count ? "span" : "strong", {}, name), status === "complete" ? null : ` (${status})`, " ", make("span", { class: "cost" }, cost)];
  if (!children.length) return make("li", {}, said);
  return make("li", {}, make("details", { open: children.length < 4 }, make("summary", {}, said), make("ul", { class: "spans" }, children.map(span))));
}
