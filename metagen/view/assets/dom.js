// Elements, words for numbers, and requests. Texts of models and data sets are only ever set as text, never as HTML.

export function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  set(node, attributes);
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function drawn(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(node, attributes);
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined));
  return node;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("aria-") && typeof value === "boolean") node.setAttribute(name, String(value));
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
}

// ------------------------------------------------------------------------------------------------ words

export function amount(value) {
  if (value === null || value === undefined) return "?";
  for (const [size, prefix] of [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (value >= 0.9995 * size) return Number((value / size).toPrecision(3)) + prefix;
  return String(Number(value.toPrecision(3)));
}
export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
export const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`);
export const points = (value) => (value === null || value === undefined ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}`);
export const between = (low, high) => (low === null || high === null ? "" : `${(100 * low).toFixed(0)}–${(100 * high).toFixed(0)}`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  if (seconds < 1e-3) return `${(1e6 * seconds).toFixed(0)} µs`;
  if (seconds < 1) return `${(1e3 * seconds).toFixed(0)} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} d`;
}

export const mark = (right) => make("span", { class: right ? "right" : "wrong" }, right ? "✓ right" : "✗ wrong");

// ----------------------------------------------------------------------------------------------- places

export function place(path, parts) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parts || {})) if (value !== null && value !== undefined && value !== "") query.set(name, value);
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path || "", parts: new URLSearchParams(query || "") };
}

// Change a part of the address without a step in the history.
export function note(parts) {
  const now = here();
  for (const [name, value] of Object.entries(parts)) if (value) now.parts.set(name, value); else now.parts.delete(name);
  history.replaceState(null, "", place(now.path, Object.fromEntries(now.parts)));
}

// --------------------------------------------------------------------------------------------- requests

export async function ask(what, parts, signal) {
  const query = new URLSearchParams(parts || {}).toString();
  let answer;
  try {
    answer = await fetch(`/api/${what}${query ? `?${query}` : ""}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the viewer does not answer; start it again with: metagen view");
  }
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || `the viewer answered ${answer.status}`);
  return data;
}

// What goes on beside a page: an error is said; a page that was left needs no answer.
export function beside(work) {
  work.catch((error) => { if (error.name !== "AbortError") say(error.message); });
}

let fading;
export function say(text) {
  const box = document.getElementById("said");
  box.textContent = text;
  clearTimeout(fading);
  fading = setTimeout(() => { box.textContent = ""; }, 2500);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = make("textarea", { class: "offscreen" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(`copied ${what}`);
}

// A table whose columns sort: columns are [title, value of a row, cell of a row, numeric]. On a phone each row is a card.
export function sortable(columns, rows, { key, by, down, row, label }) {
  let order = { by: by ?? null, down: Boolean(down) };
  const body = make("tbody");
  const heads = columns.map(([title, value, , numeric], i) => make("th", { scope: "col", class: numeric ? "n" : null },
    value ? make("button", { type: "button", class: "sort", click: () => {
      order = { by: i, down: order.by === i ? !order.down : Boolean(numeric) };
      fill();
    } }, title) : title));
  function fill() {
    const sorted = [...rows];
    if (order.by !== null) {
      const value = columns[order.by][1];
      sorted.sort((x, y) => compare(value(x), value(y), order.down));
    }
    heads.forEach((head, i) => {
      if (i === order.by) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...sorted.map((one) => {
      const cells = columns.map(([, , cell, numeric], i) => make(i ? "td" : "th", { scope: i ? null : "row", class: numeric ? "n" : null, "data-title": columns[i][0] }, cell(one)));
      const made = make("tr", {}, cells);
      if (key) made.dataset.key = key(one);
      if (row) row(made, one);
      return made;
    }));
  }
  fill();
  return make("div", { class: "wide" }, make("table", { class: "cards", "aria-label": label || null }, make("thead", {}, make("tr", {}, heads)), body));
}

// Unknown values come last, whatever the direction.
export function compare(x, y, down) {
  const none = (value) => value === null || value === undefined;
  if (none(x) || none(y)) return none(x) - none(y);
  const sign = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
  return down ? -sign : sign;
}
