// Two runs problem by problem.
import { ask, compare as rank, copy, here, make, note, percent, place, plural, points, sortable } from "./dom.js";

const KINDS = { "": "all problems", gained: "gained: B alone is right", lost: "lost: A alone is right", both: "right in both", neither: "right in neither" };

export async function compare(box, parts, signal) {
  const a = parts.get("a"), b = parts.get("b");
  const data = await ask("compare", { a, b }, signal);
  if (signal.aborted) return;
  const runs = make("p", { class: "lead" }, "A ", make("a", { href: place("run", { run: a }) }, a), "   B ", make("a", { href: place("run", { run: b }) }, b));
  const kind = (one) => (one.a <= 0.5 && one.b > 0.5 ? "gained" : one.b <= 0.5 && one.a > 0.5 ? "lost" : one.a > 0.5 ? "both" : "neither");
  const count = (one, what) => Object.values(one.problems).filter((p) => kind(p) === what).length;
  const list = make("ul", { class: "pairs" }), said = make("p", { class: "quiet", role: "status" });
  const words = make("input", { type: "search", placeholder: "Search problems", "aria-label": "Search problems" });
  const filter = make("select", { "aria-label": "Filter" }, Object.entries(KINDS).map(([key, text]) => make("option", { value: key }, text)));
  const choose = make("select", { "aria-label": "Configuration" }, data.configurations.map((one) => make("option", { value: one.name }, one.name)));
  const sentence = (one) => {
    const d = one.difference;
    const least = d.detectable === null ? "these problems could show none of any size" : `smallest detectable difference ${(100 * d.detectable).toFixed(1)} points`;
    const sure = one.shown ? "" : `, not shown to differ (${least})`;
    return `${one.name}: ${percent(one.a)} in A, ${percent(one.b)} in B, ${points(d.estimate)} points${d.low === null ? "" : ` (95% interval ${points(d.low)} to ${points(d.high)})`}${sure}.`;
  };

  function fill() {
    const one = data.configurations.find((other) => other.name === choose.value) || data.configurations[0];
    const wanted = words.value.trim().toLowerCase();
    const rows = Object.entries(one.problems).filter(([id, p]) => (!filter.value || kind(p) === filter.value) && (!wanted || id.toLowerCase().includes(wanted)))
      .sort(([i, p], [j, q]) => rank(Math.abs(p.b - p.a), Math.abs(q.b - q.a), true) || rank(i, j));
    said.textContent = `${sentence(one)} ${plural(rows.length, "problem")}.`;
    const bar = (value, name) => {
      const inside = make("i", { class: value > 0.5 ? "yes" : "no" });
      inside.style.width = `${100 * value}%`;
      return make("span", { class: "half", title: `${name}: ${percent(value)}` }, inside, make("small", {}, percent(value)));
    };
    list.replaceChildren(...rows.slice(0, 500).map(([id, p]) => make("li", { class: kind(p), tabindex: "-1", "data-row": true }, make("span", { class: "name" }, id),
      bar(p.a, "A"), bar(p.b, "B"), make("span", { class: "delta" }, points(p.b - p.a)),
      make("span", {}, make("a", { href: place("problem", { run: a, problem: id, configuration: one.name.split(" → ")[0] }) }, "A"), " ",
        make("a", { href: place("problem", { run: b, problem: id, configuration: one.name.split(" → ").pop() }) }, "B")))));
    if (rows.length > 500) list.append(make("li", { class: "quiet" }, `${rows.length - 500} more: narrow the search`));
  }
  const pick = (name) => { choose.value = name; note({ configuration: name }); fill(); list.scrollIntoView({ block: "start" }); };
  const small = data.problems;
  box.replaceChildren(make("h1", {}, `${plural(data.configurations.filter((one) => one.shown).length, "configuration")} of ${data.configurations.length} shown to differ`), runs,
    make("p", {}, `${plural(small.both, "problem")} in both (of ${small.a} in A and ${small.b} in B). p: exact paired randomisation test, corrected by Holm.`,
      " ", make("button", { type: "button", class: "small", click: () => copy(location.href, "the link") }, "copy link")),
    sortable([
      ["configuration", (one) => one.name, (one) => make("button", { type: "button", class: "link", click: () => pick(one.name) }, one.name + (one.oracle ? " (oracle)" : ""))],
      ["A", (one) => one.a, (one) => percent(one.a), true], ["B", (one) => one.b, (one) => percent(one.b), true],
      ["B − A", (one) => one.difference.estimate, (one) => make("span", { class: one.shown ? (one.difference.estimate > 0 ? "right" : "wrong") : null }, points(one.difference.estimate)), true],
      ["95%, alone", (one) => one.difference.low, (one) => (one.difference.low === null ? "–" : `${points(one.difference.low)} … ${points(one.difference.high)}`), true],
      ["p (Holm)", (one) => one.p_holm, (one) => (one.p_holm === null ? "–" : one.p_holm.toPrecision(2)), true],
      ["gained", (one) => count(one, "gained"), (one) => String(count(one, "gained")), true],
      ["lost", (one) => count(one, "lost"), (one) => String(count(one, "lost")), true],
    ], data.configurations, { label: "Configurations compared" }),
    make("h2", {}, "Problem by problem"), make("p", { class: "tools" }, choose, filter, words), said, list);
  choose.value = data.configurations.some((one) => one.name === parts.get("configuration")) ? parts.get("configuration") : data.configurations[0].name;
  filter.value = KINDS[here().parts.get("filter")] ? here().parts.get("filter") : "";
  choose.addEventListener("change", () => { note({ configuration: choose.value }); fill(); });
  filter.addEventListener("change", () => { note({ filter: filter.value }); fill(); });
  words.addEventListener("input", fill);
  fill();
}
