// The nodes of a search tree, which of them are open, and what is known of each.
import { amount, plural } from "./dom.js";

// Nodes up to which a tree is open from the start.
const FEW = 60;

// Children of one node that a drawing shows, until it is asked for the rest.
const MOST = 6;

// What both forms share. below: children by a node's name. open: nodes that show theirs. whole: those that show all of them.
export class Model {
  constructor(data) {
    this.nodes = data.nodes;
    this.named = new Map(data.nodes.map((node) => [node.name, node]));
    this.below = new Map(data.nodes.map((node) => [node.name, []]));
    this.root = data.nodes[0];
    this.open = new Set();
    this.whole = new Set();
    for (const node of data.nodes) if (node !== this.root) this.below.get(node.parent).push(node);
    // Nodes of each level, counted.
    this.levels = new Map();
    for (const { name } of data.nodes) { const depth = name.split(".").length - 1; this.levels.set(depth, (this.levels.get(depth) || 0) + 1); }
    // Of each node, what lies below it, and what drawing that cost: unknown as soon as one of it is.
    this.sizes = new Map();
    this.costs = new Map();
    for (const node of [...data.nodes].reverse()) {
      const children = this.children(node), add = (what) => children.reduce((sum, child) => plus(sum, this.costs.get(child.name)[what]), node[what]);
      this.sizes.set(node.name, children.reduce((sum, child) => sum + 1 + this.sizes.get(child.name), 0));
      this.costs.set(node.name, { generated: add("generated"), flops: add("flops") });
    }
    this.keep(data.nodes.length <= FEW ? () => true : (node) => node.chosen || node === this.root);
  }
  children(node) { return this.below.get(node.name); }
  parent(node) { return this.named.get(node.parent) || null; }
  isOpen(node) { return this.open.has(node.name); }
  toggle(node, on = !this.isOpen(node)) {
    if (on && this.children(node).length) this.open.add(node.name); else this.open.delete(node.name);
  }
  // Of many children those on the chosen path, those that were searched furthest, and the best; where they are told apart.
  few(node) {
    const all = this.children(node);
    if (all.length <= MOST + 2 || this.whole.has(node.name)) return all;
    const rank = (one) => [one.chosen || one.name === this.at?.name || this.isOpen(one), this.sizes.get(one.name) > 0, one.value ?? -1];
    const ranks = new Map(all.map((one) => [one, rank(one).map(Number)]));
    const order = (a, b) => { const [x, y] = [ranks.get(a), ranks.get(b)], i = x.findIndex((value, at) => value !== y[at]); return i < 0 ? 0 : y[i] - x[i]; };
    const first = new Set([...all].sort(order).slice(0, MOST));
    return all.filter((one) => first.has(one));
  }
  keep(wanted, whole = false) {
    this.whole = new Set(whole ? this.named.keys() : []);
    this.open = new Set(this.nodes.filter((node) => this.children(node).length && wanted(node)).map((node) => node.name));
  }
  reveal(node) {
    for (let up = this.parent(node), child = node; up; child = up, up = this.parent(up)) {
      this.open.add(up.name);
      if (!this.few(up).includes(child)) this.whole.add(up.name);
    }
  }
  path(node) { const found = []; for (let at = node; at; at = this.parent(at)) found.unshift(at); return found; }
  isPick(node) { return node.chosen && !this.children(node).some((child) => child.chosen); }
  get pick() { return this.nodes.find((node) => this.isPick(node)) || null; }
}
const plus = (a, b) => (a === null || b === null ? null : a + b);

export const spends = (cost) => [[cost.generated, "tokens"], [cost.flops, "FLOPs"]].filter(([value]) => value !== 0).map(([value, what]) => `${amount(value)} ${what}`).join(", ");
export const step = (node) => (node.parent === null ? "the problem" : node.step.replace(/\n$/, "") || "(nothing)");
export function condition(node) {
  return node.cut ? "cut by its length" : node.state === "finished" ? `finished (${node.finish})` : node.state === "expanded" ? null : node.state;
}

// What is known of a node, each fact a piece of text.
export function facts(model, node) {
  const cost = model.children(node).length ? spends(node) : "";
  return [
    node.multiplicity > 1 ? ["", `×${node.multiplicity}`, "draws that said the same"] : null,
    node.visits ? ["", plural(node.visits, "visit"), "visits"] : null,
    cost ? ["", cost, "what drawing and scoring its children cost"] : null,
    condition(node) ? [`state ${node.state}`, condition(node), null] : null,
    model.isPick(node) ? ["pick", "★ chosen", null] : null,
  ].filter(Boolean);
}
