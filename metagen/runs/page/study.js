"use strict";
// Makes the study handier: choose what figures are plotted against, highlight a line, sort tables. All is readable without.
(() => {
  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  // Figures of one quantity: one at a time. Choosers follow each other where they offer the same.
  const choosers = [];
  for (const group of document.querySelectorAll(".choice")) {
    const pictures = [...group.children];
    const select = make("select", {}, ...pictures.map((one) => make("option", {}, one.dataset.choice)));
    const show = () => pictures.forEach((one) => { one.hidden = one.dataset.choice !== select.value; });
    select.addEventListener("input", () => {
      for (const [other, update] of choosers)
        if ([...other.options].some((option) => option.value === select.value)) {
          other.value = select.value;
          update();
        }
    });
    group.prepend(make("p", { class: "chooser" }, make("label", {}, group.dataset.label + " ", select)));
    const usual = pictures.find((one) => one.dataset.choice.startsWith("FLOPs"));
    if (usual) select.value = usual.dataset.choice;
    choosers.push([select, show]);
    show();
  }

  for (const figure of document.querySelectorAll(".picture figure")) {
    const items = figure.querySelectorAll(".legend li");
    if (items.length < 2) continue;
    const marks = [];
    for (const node of figure.querySelectorAll(".panel [id]")) {
      const named = /-(?:line|band|point|name)-(\d+)$/.exec(node.id);
      if (named) marks.push([node, named[1]]);
      if (named) node.classList.add("mark");
    }
    for (const item of items) {
      const button = make("button", { type: "button", "aria-pressed": "false" }, ...item.childNodes);
      button.addEventListener("click", () => {
        const lit = button.getAttribute("aria-pressed") !== "true";
        for (const other of figure.querySelectorAll(".legend button")) other.setAttribute("aria-pressed", String(lit && other === button));
        for (const [node, line] of marks) node.classList.toggle("on", lit && line === item.dataset.line);
        figure.classList.toggle("lit", lit);
      });
      item.append(button);
    }
  }

  const sizes = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
  function value(cell) {
    const found = /^[^\d+−-]*([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s?([kMGTPE](?![a-z]))?/.exec(cell.textContent.trim());
    return found ? Number(found[1].replace("−", "-").replaceAll(",", "")) * (sizes[found[2]] || 1) : NaN;
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    if (body.rows.length < 3) continue;
    heads.forEach((head, i) => {
      if (!head.textContent.trim()) return;
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const numeric = head.classList.contains("n"), sign = up ? 1 : -1;
        const rows = [...body.rows].map((row) => [numeric ? value(row.cells[i]) : row.cells[i].textContent, row]);
        // What has no number stands last either way.
        rows.sort(([a], [b]) => numeric ? (isNaN(a) - isNaN(b)) || sign * (a - b) || 0 : sign * a.localeCompare(b, "en", { numeric: true }));
        body.append(...rows.map(([, row]) => row));
      });
      head.append(button);
    });
  }
  // Sections are closed: an address opens the one that it leads to.
  const sections = [...document.querySelectorAll("details.part")];
  function reveal() {
    const name = decodeURIComponent(location.hash.slice(1).replace(/%(?![0-9a-f]{2})/gi, "%25"));
    const target = name.startsWith("problem=") ? document.getElementById("problem") : name && document.getElementById(name);
    if (!target) return;
    const inside = target.querySelector(":scope > details.part");
    for (let node = inside || target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  for (const link of document.querySelectorAll(".contents a")) link.addEventListener("click", () => setTimeout(reveal));
  const all = make("button", { type: "button" }, "Open all sections");
  all.addEventListener("click", () => {
    const open = sections.some((one) => !one.open);
    for (const one of sections) one.open = open;
    all.textContent = open ? "Close all sections" : "Open all sections";
  });
  document.querySelector(".contents")?.after(make("p", { class: "chooser parts-tools" }, all));
  reveal();
  document.documentElement.dataset.study = "yes";
})();
