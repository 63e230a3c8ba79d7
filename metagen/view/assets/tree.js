// A search tree as a tree: nodes open and close, with their score, what drawing their children cost, and the way to what was chosen.
import { amount, make, plural } from "./dom.js";
import { score } from "./steps.js";

// Nodes up to which a tree is open from the start.
const FEW = 60;

export function tree(data, title) {
  const below = new Map(data.nodes.map((node) => [node.name, []]));
  for (const node of data.nodes) if (node.parent !== null && below.has(node.parent)) below.get(node.parent).push(node);
  const items = new Map();
  const all = data.nodes.length <= FEW;
  // Of each node, what lies below it.
  const sizes = new Map();
  for (const node of [...data.nodes].reverse())
    sizes.set(node.name, below.get(node.name).reduce((sum, child) => sum + 1 + sizes.get(child.name), 0));

  function facts(node) {
    const said = [];
    if (node.multiplicity > 1) said.push(make("span", { class: "fact", title: "draws that said the same" }, `×${node.multiplicity}`));
    if (node.visits) said.push(make("span", { class: "fact", title: "visits" }, plural(node.visits, "visit")));
    if (below.get(node.name).length) {
      const cost = [[node.generated, "tokens"], [node.flops, "FLOPs"]].filter(([value]) => value !== 0)
        .map(([value, what]) => `${amount(value)} ${what}`).join(", ");
      said.push(make("span", { class: "fact", title: "what drawing and scoring its children cost" }, cost));
    }
    const state = node.cut ? "cut by its length" : node.state === "finished" ? `finished (${node.finish})` : node.state === "expanded" ? null : node.state;
    if (state) said.push(make("span", { class: `fact state ${node.state}` }, state));
    if (node.chosen && !below.get(node.name).some((child) => child.chosen)) said.push(make("span", { class: "fact pick" }, "★ chosen"));
    return said;
  }

  // Children are made when a node first opens: a tree may have thousands.
  function item(node, level) {
    const children = below.get(node.name);
    const toggle = make("span", { class: "toggle", "aria-hidden": "true" });
    const step = node.parent === null ? make("span", { class: "step quiet" }, "the problem")
      : make("span", { class: "step" }, node.step.replace(/\n$/, "") || "(nothing)");
    const row = make("div", { class: "node", title: `node ${node.name}` }, toggle,
      node.parent === null ? null : score(node.value), step, make("span", { class: "facts" }, facts(node)));
    const made = make("li", { role: "treeitem", tabindex: "-1", "aria-level": level, class: node.chosen ? "way" : null, "data-node": node.name }, row);
    made.node = node;
    items.set(node.name, made);
    if (children.length) {
      const group = make("ul", { role: "group" });
      made.append(group);
      made.open = (on) => {
        if (on && !group.childElementCount) group.append(...children.map((child) => item(child, level + 1)));
        group.hidden = !on;
        toggle.textContent = on ? "▾" : "▸";
        made.setAttribute("aria-expanded", on);
        const more = row.querySelector(".more");
        if (more) more.remove();
        if (!on) row.append(make("span", { class: "fact more" }, plural(sizes.get(node.name), "node") + " below"));
      };
      row.addEventListener("click", () => { focus(made); made.open(made.getAttribute("aria-expanded") !== "true"); });
      made.open(all || node.chosen || level === 1);
    } else row.addEventListener("click", () => { row.classList.toggle("whole"); focus(made); });
    return made;
  }

  const root = make("ul", { role: "tree", class: "tree", "aria-label": title });
  root.append(item(data.nodes[0], 1));
  root.firstElementChild.tabIndex = 0;

  function focus(made) {
    for (const other of root.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    made.tabIndex = 0;
    made.focus({ preventScroll: false });
  }
  const shown = () => [...root.querySelectorAll("[role=treeitem]")].filter((one) => !one.closest("ul[hidden]"));
  root.addEventListener("keydown", (event) => {
    const now = event.target.closest("[role=treeitem]");
    if (!now || event.altKey || event.ctrlKey || event.metaKey) return;
    const opened = now.getAttribute("aria-expanded"), list = shown(), at = list.indexOf(now);
    const above = now.parentElement.closest("[role=treeitem]");
    const act = {
      ArrowDown: () => list[at + 1] && focus(list[at + 1]), ArrowUp: () => list[at - 1] && focus(list[at - 1]),
      ArrowRight: () => (opened === "false" ? now.open(true) : opened && list[at + 1] && focus(list[at + 1])),
      ArrowLeft: () => (opened === "true" ? now.open(false) : above && focus(above)),
      Home: () => focus(list[0]), End: () => focus(list[list.length - 1]),
      Enter: () => now.firstElementChild.click(), " ": () => now.firstElementChild.click(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });

  function every(on, keep) {
    const walk = (made) => {
      if (!made.open) return;
      made.open(on || keep(made.node));
      for (const child of made.querySelectorAll(":scope > ul > li")) walk(child);
    };
    walk(root.firstElementChild);
  }
  const deepest = Math.max(...data.nodes.map((node) => node.name.split(".").length - 1));
  const finished = data.nodes.filter((node) => node.state === "finished").length;
  const left = data.size - data.nodes.length;
  return make("div", { class: "treebox" },
    make("p", { class: "tools" },
      make("span", {}, `${plural(data.size, "node")}, ${deepest} deep, ${plural(finished, "finished leaf").replace("leafs", "leaves")}`
        + (left ? `; the first ${data.nodes.length.toLocaleString("en")} are here` : "")),
      make("button", { type: "button", click: () => every(true, () => true) }, "expand all"),
      make("button", { type: "button", click: () => every(false, (node) => node.parent === null) }, "collapse all"),
      data.chosen ? make("button", { type: "button", click: () => every(false, (node) => node.chosen) }, "chosen path") : null),
    root);
}
