// Texts line by line, steps coloured by their scores; scores and votes.
import { drawn, make, mark, plural } from "./dom.js";

// Blue is good and orange is bad. Without colours: the number says it, and doubtful steps are bold, their edge dotted.
export function colour(node, value) {
  const away = Math.abs(2 * value - 1), hue = value >= 0.5 ? "var(--cool)" : "var(--hot)";
  node.style.background = `rgb(${hue} / ${(0.05 + 0.25 * away).toFixed(2)})`;
  node.style.borderLeftColor = `rgb(${hue} / ${(0.25 + 0.75 * away).toFixed(2)})`;
  if (value < 0.5) node.classList.add("low");
}

export function score(value) {
  if (value === null || value === undefined) return make("span", { class: "score none", title: "no score" }, "–");
  const node = make("span", { class: "score", title: `score ${value}` }, value.toFixed(2));
  colour(node, value);
  return node;
}

export function steps(text, values) {
  const lines = text.split("\n");
  if (lines.length > 1 && lines[lines.length - 1] === "") lines.pop();
  const matched = values && values.length === lines.length && !values.includes(null);
  return make("ol", { class: "steps" }, lines.map((line, i) => {
    const item = make("li", {}, make("span", { class: "line" }, line || " "));
    if (matched) {
      colour(item, values[i]);
      item.prepend(make("span", { class: "value" }, values[i].toFixed(2)));
    }
    return item;
  }));
}

export function votes(pool) {
  const width = (count) => ({ width: `${(100 * count) / pool.size}%` });
  const row = (name, kind, count, totals) => make("tr", {}, make("th", { scope: "row" }, name),
    make("td", { class: "votebar" }, make("div", { class: kind, style: width(count), "aria-hidden": "true" })),
    make("td", { class: "n" }, String(count)), totals.map((total) => make("td", { class: "n" }, total)));
  const rows = pool.votes.map(([key, right, count, totals]) =>
    row([make("code", {}, key), " ", mark(right)], right ? "yes" : "no", count, totals.map((total) => total.toFixed(2))));
  if (pool.silent) rows.push(row("no vote", "none", pool.silent, pool.verifiers.map(() => "")));
  const heads = ["answer", "share", "votes", ...pool.verifiers.map((name) => `Σ ${name}`)];
  return make("div", { class: "wide" }, make("table", { class: "votes", "aria-label": `Votes of ${pool.name}` },
    make("thead", {}, make("tr", {}, heads.map((name, i) => make("th", { scope: "col", class: i > 1 ? "n" : null }, name)))),
    make("tbody", {}, rows)));
}

export function candidate([text, values, samples, answer, right, flaw, tokens, scores, thought, thinking], pool) {
  const few = samples.slice(0, 6).join(", ") + (samples.length > 6 ? ", …" : "");
  const by = pool.choices.filter(([, sample]) => samples.includes(sample)).map(([label]) => label);
  const title = "Thought" + (thinking === null ? "" : `, ${plural(thinking, "token")}`) + (thought === null ? ", not shown" : "");
  return make("li", {},
    make("p", { class: "head" }, make("strong", {}, answer === null ? "no answer" : answer), mark(right),
      pool.verifiers.map((name, i) => make("span", {}, `${name} `, score(scores[i]))),
      tokens === null ? null : make("span", {}, plural(tokens, "token")),
      make("span", {}, samples.length > 1 ? `×${samples.length} (samples ${few})` : `sample ${few}`)),
    thought === null && thinking === null ? null : make("details", {}, make("summary", {}, title), thought === null ? null : steps(thought, null)),
    steps(text, values),
    flaw ? make("p", { class: "quiet" }, flaw) : null,
    by.length ? make("p", { class: "chosen" }, `chosen by ${by.join(", ")}`) : null);
}

export function share(right, size, title) {
  return drawn("svg", { class: "share", viewBox: "0 0 40 10", role: "img", "aria-label": title },
    drawn("title", {}, title), drawn("rect", { class: "all", width: 40, height: 10 }),
    drawn("rect", { class: "part", width: size ? (40 * right) / size : 0, height: 10 }));
}
