// Addresses to pages, keys, and light or dark.
import { here, make, place } from "./dom.js";
import { redraw } from "./chart.js";
import { runs } from "./runs.js";
import { run } from "./run.js";
import { problem } from "./problem.js";
import { compare } from "./compare.js";

const PAGES = { "": runs, run, problem, compare };
const THEMES = ["system", "light", "dark"];
const main = document.getElementById("main"), keys = document.getElementById("keys");
let leaving = null, shown = null;

async function show() {
  const { path, parts } = here();
  const page = PAGES[path];
  const same = JSON.stringify([path, parts.get("run"), parts.get("problem"), parts.get("a"), parts.get("b")]);
  if (same === shown && page && leaving) {
    main.dispatchEvent(new CustomEvent("parts", { detail: parts }));
    return;
  }
  if (leaving) leaving.abort();
  const mine = (leaving = new AbortController());
  shown = same;
  crumbs(path, parts);
  document.documentElement.removeAttribute("data-ready");
  main.replaceChildren(make("p", { class: "quiet waiting" }, "Reading…"));
  scrollTo(0, 0);
  try {
    if (!page) throw new Error(`there is no page ${path}`);
    await page(main, parts, mine.signal);
  } catch (error) {
    if (mine.signal.aborted) return;
    main.replaceChildren(make("p", { class: "notice", role: "alert" }, error.message), make("p", {}, make("a", { href: "#/" }, "All runs")));
  }
  if (!mine.signal.aborted) document.documentElement.dataset.ready = "yes";
}

function crumbs(path, parts) {
  const links = [make("a", { href: "#/" }, "runs")];
  const name = parts.get("run");
  if (name) links.push(make("a", { href: place("run", { run: name }) }, name));
  if (path === "problem") links.push(make("span", {}, parts.get("problem") || ""));
  if (path === "compare") links.push(make("span", {}, "compare"));
  document.getElementById("crumbs").replaceChildren(...links.flatMap((link, i) => (i ? [make("span", { "aria-hidden": "true" }, " / "), link] : [link])));
  document.title = [...links].reverse().map((link) => link.textContent).join(" · ") + " · metagen";
}

// ------------------------------------------------------------------------------------------------ theme

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name;
  try { localStorage.setItem("metagen-theme", name); } catch { /* a browser that keeps nothing shows the page all the same */ }
  redraw();
}
function stored() {
  try { return localStorage.getItem("metagen-theme") || "system"; } catch { return "system"; }
}
const next = () => theme(THEMES[(THEMES.indexOf(document.getElementById("theme").textContent) + 1) % THEMES.length]);

// ------------------------------------------------------------------------------------------------- keys

// Rows that j and k go through: links or rows that a page marks by data-row.
function move(by) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const to = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  if (to === document.activeElement && by > 0) document.querySelector("button[data-more]:not([hidden])")?.click();
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}

function up() {
  const { path, parts } = here();
  if (path === "problem") location.hash = place("run", { run: parts.get("run") });
  else if (path) location.hash = "#/";
}

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape") {
    if (keys.open) return;
    if (typing) typing.blur(); else up();
    return;
  }
  if (typing || keys.open) return;
  const act = {
    j: () => move(1), k: () => move(-1), t: next, "?": () => keys.showModal(),
    "/": () => document.querySelector("input[type=search]")?.focus(),
    "[": () => document.querySelector("a[data-before]")?.click(), "]": () => document.querySelector("a[data-next]")?.click(),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

document.getElementById("theme").addEventListener("click", next);
document.getElementById("help").addEventListener("click", () => keys.showModal());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("hashchange", show);
theme(THEMES.includes(stored()) ? stored() : "system");
show();
