// A search tree as an outline: the form for reading aloud, searching and copying.
import { make, plural } from "./dom.js";
import { score } from "./steps.js";
import { facts, step } from "./model.js";

export function outline(model, title, look) {
  const root = make("ul", { role: "tree", class: "tree", "aria-label": title });
  const named = new Map();

  // Children are made when a node first opens: a tree may have thousands.
  function item(node, level) {
    const children = model.children(node);
    const toggle = make("span", { class: "toggle", "aria-hidden": "true" });
    const row = make("div", { class: "node", title: `node ${node.name}` }, toggle,
      node === model.root ? null : score(node.value), make("span", { class: node === model.root ? "step quiet" : "step" }, step(node)),
      make("span", { class: "facts" }, facts(model, node).map(([kind, said, about]) => make("span", { class: `fact ${kind}`, title: about }, said))));
    const made = make("li", { role: "treeitem", tabindex: "-1", "aria-level": level, class: node.chosen ? "way" : null, "data-node": node.name }, row);
    named.set(node.name, made);
    if (children.length) {
      const group = make("ul", { role: "group" });
      made.append(group);
      made.open = (on) => {
        model.toggle(node, on);
        if (on && !group.childElementCount) group.append(...children.map((child) => item(child, level + 1)));
        group.hidden = !on;
        toggle.textContent = on ? "▾" : "▸";
        made.setAttribute("aria-expanded", on);
        row.querySelector(".more")?.remove();
        if (!on) row.append(make("span", { class: "fact more" }, plural(model.sizes.get(node.name), "node") + " below"));
      };
      row.addEventListener("click", () => { focus(made); made.open(!model.isOpen(node)); });
      made.open(model.isOpen(node));
    } else row.addEventListener("click", () => { row.classList.toggle("whole"); focus(made); });
    made.node = node;
    return made;
  }

  function mark(made) {
    for (const other of root.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    made.tabIndex = 0;
  }
  function focus(made) {
    mark(made);
    made.focus({ preventScroll: false });
    look(made.node);
  }
  function refresh() {
    named.clear();
    root.replaceChildren(item(model.root, 1));
    mark(named.get(model.at.name) || root.firstElementChild);
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
  return { box: root, refresh, show: refresh, go: (node) => { look(node); mark(named.get(node.name)); } };
}
