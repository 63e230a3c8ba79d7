// A search tree: which nodes are open, and its two forms, a drawing and an outline, which show the same.
import { copy, here, make, note, plural } from "./dom.js";
import { draw } from "./drawing.js";
import { Model, facts, spends, step } from "./model.js";
import { outline } from "./outline.js";
import { score, steps } from "./steps.js";

const FORMS = { drawing: draw, outline };

// The node that is looked at: what it says, how the text came to it, and what lies below.
function card(model, node) {
  const way = model.path(node).slice(1), size = model.sizes.get(node.name);
  const text = way.map((one) => one.step).join("");
  return [
    make("p", { class: "tools" }, make("strong", {}, node === model.root ? "The problem" : `Node ${node.name}`), node === model.root ? null : score(node.value),
      facts(model, node).map(([kind, said, title]) => make("span", { class: `fact ${kind}`, title }, said)),
      way.length ? make("button", { type: "button", class: "small", click: () => copy(text, "the text up to this node") }, "copy text") : null),
    size ? make("p", { class: "quiet" }, `${plural(size, "node")} below`, spends(model.costs.get(node.name)) ? `: ${spends(model.costs.get(node.name))} in all.` : ".") : null,
    way.length ? make("ol", { class: "steps" }, way.flatMap((one) => [...steps(step(one), null).children].map((line, i) => {
      line.prepend(i ? make("span", { class: "value" }, "    ") : score(one.value));
      if (one === node) line.classList.add("last");
      return line;
    }))) : null,
  ].filter(Boolean);
}

export function tree(data, title) {
  const model = new Model(data);
  const detail = make("div", { class: "detail", "aria-live": "polite" }), body = make("div");
  const wanted = model.named.get(here().parts.get("node"));
  if (wanted) model.reveal(wanted);
  let form = FORMS[here().parts.get("form")] ? here().parts.get("form") : "drawing";
  let view = null, noting;
  // What is looked at, in both forms.
  const look = (node, byHand = true) => {
    model.at = node;
    detail.replaceChildren(...card(model, node));
    clearTimeout(noting);
    // Keys that are held down go through many nodes, and browsers limit how often an address changes.
    if (byHand) noting = setTimeout(() => { if (detail.isConnected) note({ node: node.name }); }, 200);
  };
  const fill = () => {
    view = FORMS[form](model, title, look);
    body.replaceChildren(view.box);
    view.show();
  };
  const keep = (...wish) => { model.keep(...wish); view.refresh(); view.show(); };
  const choose = make("span", { class: "choose", role: "group", "aria-label": "Form" }, Object.keys(FORMS).map((name) =>
    make("button", { type: "button", "aria-pressed": name === form, click: (event) => {
      form = name;
      note({ form: name === "drawing" ? null : name });
      for (const other of event.target.parentElement.children) other.setAttribute("aria-pressed", other === event.target);
      fill();
    } }, name)));
  const finished = data.nodes.filter((node) => node.state === "finished").length;
  const left = data.size - data.nodes.length;
  look(wanted || model.pick || model.root, false);
  const made = make("div", { class: "treebox" },
    make("p", { class: "tools" },
      make("span", {}, `${plural(data.size, "node")}, ${Math.max(...model.levels.keys())} deep, ${plural(finished, "finished leaf").replace("leafs", "leaves")}`
        + (left ? `; ${data.nodes.length.toLocaleString("en")} of them are here: the deepest are left out` : "")), choose,
      make("button", { type: "button", click: () => keep(() => true, true) }, "expand all"),
      make("button", { type: "button", click: () => keep((node) => node === model.root) }, "collapse all"),
      data.chosen ? make("button", { type: "button", click: () => { keep((node) => node.chosen); view.go(model.pick); } }, "chosen path") : null),
    body, detail);
  requestAnimationFrame(fill);
  return made;
}
