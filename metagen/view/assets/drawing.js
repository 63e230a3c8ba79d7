// A search tree as a drawing: levels from left to right, nodes with the colour of their score, the chosen path strong.
import { drawn, make, plural } from "./dom.js";
import { facts, spends, step } from "./model.js";

const ROW = 30, TALL = 24, TOP = 26, LEFT = 6, CHAR = 7.3;
// Widths of a level: where there is no room for texts, scores alone; what is deeper still scrolls.
const LEAST = 60, TIGHT = 90, MOST = 250;

// Leaves take a row each, in the order of their draws; a node stands in the middle of its children, and the chosen path in one row.
function arrange(model) {
  const places = new Map(), levels = [];
  let rows = 0;
  const put = (node, depth) => {
    const children = model.isOpen(node) ? model.few(node) : [];
    const place = { node, depth, children: children.map((child) => put(child, depth + 1)) };
    place.rest = children.length ? model.children(node).length - children.length : 0;
    if (place.rest) place.stub = rows++;
    const chosen = place.children.find((child) => child.node.chosen);
    if (chosen) place.row = chosen.row;
    else place.row = children.length ? (place.children[0].row + (place.stub ?? place.children[children.length - 1].row)) / 2 : rows++;
    places.set(node.name, place);
    (levels[depth] ||= []).push(place);
    return place;
  };
  put(model.root, 0);
  return { places, levels, rows };
}

export function draw(model, title, look) {
  const edges = drawn("path", { class: "edge" }), way = drawn("path", { class: "edge way" });
  const heads = drawn("g", { class: "heads", "aria-hidden": "true" }), group = drawn("g");
  const svg = drawn("svg", { role: "tree", "aria-label": title }, edges, way, group, heads);
  const tip = make("div", { class: "tip", hidden: true });
  const frame = make("div", { class: "drawing" }, svg);
  const box = make("div", { class: "drawn" }, frame, make("p", { class: "quiet key" },
    make("span", { class: "scale", role: "img", "aria-label": "Scores from 0, orange, to 1, blue" }, "0", make("i"), "1"),
    "★ chosen  ● finished  ○ open  ✕ pruned  ×2 drawn twice  ⊕5 five nodes below"), tip);
  let now = null, wide = 0;
  const made = new Map();

  const x = (place) => LEFT + wide * place.depth, y = (place) => TOP + ROW * place.row + ROW / 2;
  const gap = () => (wide < TIGHT ? 18 : 26), size = () => wide - gap();

  function refresh() {
    now = arrange(model);
    if (!now.places.has(model.at.name)) look(model.path(model.at).find((node) => !model.isOpen(node)) || model.root);
    const room = (frame.clientWidth || 900) - 2 * LEFT;
    wide = Math.max(LEAST, Math.min(MOST, Math.floor(room / now.levels.length)));
    const width = LEFT + wide * now.levels.length, height = TOP + ROW * now.rows + 4;
    svg.classList.toggle("tight", wide < TIGHT);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    const lines = [], strong = [];
    for (const place of now.places.values()) {
      const from = x(place) + size() + 12, to = x(place) + wide, middle = (from + to) / 2;
      const line = (end) => `M${from},${y(place)}C${middle},${y(place)} ${middle},${end} ${to},${end}`;
      for (const child of place.children) (child.node.chosen ? strong : lines).push(line(y(child)));
      if (place.rest) lines.push(line(y({ row: place.stub })));
    }
    edges.setAttribute("d", lines.join(""));
    way.setAttribute("d", strong.join(""));
    heads.replaceChildren(drawn("rect", { width, height: TOP - 4 }), ...now.levels.slice(1).map((level, i) => drawn("text", { x: LEFT + wide * (i + 1), y: 15 }, wide > 120 ? heading(i + 1, level.length) : i + 1)));
    group.replaceChildren();
    made.clear();
    paint();
  }

  function heading(depth, shown) {
    const all = model.levels.get(depth);
    return `step ${depth}: ${shown < all ? `${shown} of ` : ""}${plural(all, "node")}`;
  }

  // Nodes that are seen, and the one that has the focus: a tree may have thousands.
  function paint() {
    const top = frame.scrollTop - 10 * ROW, bottom = frame.scrollTop + frame.clientHeight + 10 * ROW;
    const seen = new Set();
    const within = (row) => y({ row }) >= top && y({ row }) <= bottom;
    for (const [name, place] of now.places) {
      if (place.node === model.at || within(place.row)) seen.add(name);
      if (place.rest && within(place.stub)) seen.add(`${name} rest`);
    }
    for (const [name, node] of made) if (!seen.has(name)) { node.remove(); made.delete(name); }
    for (const name of seen) if (!made.has(name)) {
      made.set(name, name.endsWith(" rest") ? stub(now.places.get(name.slice(0, -5))) : mark(now.places.get(name)));
      group.append(made.get(name));
    }
    heads.setAttribute("transform", `translate(0,${frame.scrollTop})`);
    for (const [name, node] of made) if (!name.endsWith(" rest")) {
      node.setAttribute("tabindex", name === model.at.name ? 0 : -1);
      node.classList.toggle("at", name === model.at.name);
    }
  }

  function mark(place) {
    const { node } = place, children = model.children(node), opened = model.isOpen(node), value = node.value;
    const box = drawn("rect", { class: "pill", width: size(), height: TALL, y: -TALL / 2, rx: 5 });
    const known = value !== null && node !== model.root;
    if (known) {
      const away = Math.abs(2 * value - 1), tone = value >= 0.5 ? "var(--cool)" : "var(--hot)";
      box.style.fill = `rgb(${tone} / ${(0.06 + 0.44 * away).toFixed(2)})`;
      box.style.stroke = `rgb(${tone} / ${(0.4 + 0.6 * away).toFixed(2)})`;
    }
    const sign = model.isPick(node) ? "★" : { finished: "●", open: "○", pruned: "✕" }[node.state] || "";
    const short = node === model.root ? "start" : known ? value.toFixed(2) : "–";
    const start = sign + (sign && wide >= TIGHT ? " " : "");
    let chars = Math.floor((size() - 12) / CHAR) - short.length - start.length;
    const times = node.multiplicity > 1 && chars > 4 ? ` ×${node.multiplicity}` : "";
    chars -= times.length + 1;
    const said = node === model.root || chars < 4 ? "" : cut(step(node).replace(/\s+/g, " "), chars);
    const siblings = node === model.root ? [node] : model.children(model.parent(node));
    const item = drawn("g", {
      class: ["spot", node.state, node.chosen ? "way" : "", known && value < 0.5 ? "low" : ""].join(" ").trim(), role: "treeitem", "data-node": node.name,
      transform: `translate(${x(place)},${y(place)})`, "aria-level": place.depth + 1, "aria-setsize": siblings.length, "aria-posinset": siblings.indexOf(node) + 1,
      "aria-expanded": children.length ? opened : null, "aria-selected": node === model.at,
      "aria-label": [step(node), known ? `score ${short}` : null, ...facts(model, node).map(([, text]) => text)].filter(Boolean).join(", "),
      click: () => go(node), dblclick: () => toggle(node), mouseenter: () => point(place), mouseleave: () => { tip.hidden = true; },
    }, box, drawn("text", { x: wide < TIGHT ? 4 : 6, y: 4 }, start, drawn("tspan", { class: "number" }, short), `${times} `, drawn("tspan", { class: "said" }, said)));
    if (children.length)
      item.append(drawn("g", { class: "more", "aria-hidden": "true", transform: `translate(${size() + 6},0)`, click: (event) => { event.stopPropagation(); toggle(node); } },
        drawn("circle", { class: "reach", r: 13 }), drawn("circle", { r: 6.5 }), drawn("path", { d: opened ? "M-3,0H3" : "M-3,0H3M0,-3V3" }),
        opened ? null : drawn("text", { x: 10, y: 4 }, String(model.sizes.get(node.name)))));
    return item;
  }

  // In the place of the children that are not shown.
  function stub(place) {
    const all = () => { model.whole.add(place.node.name); keepSight(place.node); };
    return drawn("g", { class: "stub", role: "button", tabindex: 0, transform: `translate(${x(place) + wide},${y({ row: place.stub })})`,
      "aria-label": `Show ${place.rest} more children of node ${place.node.name}`, click: all,
      keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); all(); } } },
    drawn("rect", { class: "pill", width: size(), height: TALL, y: -TALL / 2, rx: 5 }), drawn("text", { x: 6, y: 4 }, wide < TIGHT ? `+${place.rest}` : `${place.rest} more`));
  }

  function point({ node, ...place }) {
    const below = model.sizes.get(node.name), cost = below ? spends(model.costs.get(node.name)) : "";
    tip.replaceChildren(...[
      make("strong", {}, node === model.root ? "the problem" : `${node.value === null ? "no score" : `score ${node.value.toFixed(3)}`} · node ${node.name}`),
      node === model.root ? null : make("span", { class: "text" }, step(node)),
      make("span", { class: "quiet" }, facts(model, node).map(([, said, about]) => (about && about.startsWith("what") ? `children cost ${said}` : said)).join(" · ")),
      below ? make("span", { class: "quiet" }, `${plural(below, "node")} below${cost ? `: ${cost} in all` : ""}`) : null,
    ].filter(Boolean));
    tip.hidden = false;
    const left = x(place) - frame.scrollLeft, top = y(place) - frame.scrollTop;
    tip.style.left = `${Math.max(2, Math.min(left, box.clientWidth - tip.offsetWidth - 4))}px`;
    const over = top - TALL / 2 - tip.offsetHeight - 6;
    tip.style.top = `${over > -60 ? over : top + TALL / 2 + 6}px`;
  }

  function go(node, focus = true) {
    model.reveal(node);
    look(node);
    if (!now.places.has(node.name)) refresh();
    show();
    if (focus) made.get(node.name).focus({ preventScroll: true });
  }
  function toggle(node) {
    if (!model.children(node).length) return;
    model.toggle(node);
    keepSight(node);
  }
  // After nodes have come or gone this one stands where it stood.
  function keepSight(node) {
    const before = y(now.places.get(node.name));
    look(node);
    tip.hidden = true;
    refresh();
    frame.scrollTop += y(now.places.get(node.name)) - before;
    show();
    made.get(node.name).focus({ preventScroll: true });
  }
  // Scroll the frame, and never the page, to where the node that is looked at is seen.
  function show() {
    if (!now) refresh();
    const place = now.places.get(model.at.name), left = x(place), top = y(place);
    if (top < frame.scrollTop + TOP + ROW / 2 || top > frame.scrollTop + frame.clientHeight - ROW) frame.scrollTop = top - frame.clientHeight / 2;
    frame.scrollLeft = Math.max(Math.min(frame.scrollLeft, left - gap()), left + wide + gap() - frame.clientWidth);
    paint();
  }

  svg.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const place = now.places.get(model.at.name), { node } = place, level = now.levels[place.depth], at = level.indexOf(place);
    const inside = () => (place.children.find((child) => child.node.chosen) || place.children[0])?.node;
    const act = {
      ArrowUp: () => at > 0 && go(level[at - 1].node), ArrowDown: () => at + 1 < level.length && go(level[at + 1].node),
      ArrowLeft: () => node !== model.root && go(model.parent(node)),
      ArrowRight: () => { if (model.isOpen(node)) go(inside()); else toggle(node); },
      Enter: () => toggle(node), " ": () => toggle(node), Home: () => go(model.root), End: () => go(model.pick || node),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  let waiting = false;
  frame.addEventListener("scroll", () => {
    tip.hidden = true;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; if (frame.isConnected) paint(); });
  });
  let last = 0;
  new ResizeObserver(() => {
    if (!frame.isConnected || Math.abs(frame.clientWidth - last) < 2) return;
    last = frame.clientWidth;
    refresh();
  }).observe(frame);
  return { box, refresh, show, go: (node) => go(node, false) };
}

const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`);
