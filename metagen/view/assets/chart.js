// Curves by uPlot, with intervals, names at their ends, and what lies below the pointer.
/* global uPlot */
import { amount, make } from "./dom.js";

const HUES = 7;
// One line for each curve: told apart by colour, dashes and the shape of nothing else.
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const read = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const hue = (i) => `--series-${i % HUES}`;
const open = new Set();

// Round numbers of a logarithmic axis: 1, 2 and 5 of each power, or the powers alone where they are many.
function ladder(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const times of Math.log10(high / low) > 4 ? [1] : [1, 2, 5]) found.push(times * 10 ** power);
  return found.filter((value) => value >= low && value <= high);
}

export function redraw() {
  for (const chart of open) if (chart.root.isConnected) chart.redraw(); else forget(chart);
}
function forget(chart) {
  open.delete(chart);
  chart.watcher.disconnect();
  chart.destroy();
}

// curves: [{name, points: [{x, y, low, high, said, key}]}]; points of null are left out.
export function curves(box, found, { x, y, log = false, height = 340, share = true, pick, label }) {
  for (const chart of open) if (!chart.root.isConnected || box.contains(chart.root)) forget(chart);
  const lines = found.map((curve) => ({ ...curve, points: curve.points.filter((p) => p.x !== null && p.y !== null && (!log || p.x > 0)) }))
    .filter((curve) => curve.points.length);
  if (!lines.length) {
    box.replaceChildren(make("p", { class: "quiet" }, "Nothing can be drawn yet: these amounts are unknown."));
    return null;
  }
  const xs = [...new Set(lines.flatMap((curve) => curve.points.map((p) => p.x)))].sort((a, b) => a - b);
  const at = new Map(xs.map((value, i) => [value, i]));
  const columns = lines.map((curve) => {
    const column = new Array(xs.length).fill(null);
    for (const point of curve.points) column[at.get(point.x)] = point.y;
    return column;
  });
  const tip = make("div", { class: "tip", hidden: true });
  const named = () => box.clientWidth >= 620;
  // Room for the names of the curves that end at the right.
  const room = () => {
    const far = Math.max(...xs), least = Math.min(...xs);
    const late = lines.filter((curve) => { const end = Math.max(...curve.points.map((p) => p.x)); return log ? Math.log(end / least) > 0.8 * Math.log(far / least) : end - least > 0.8 * (far - least); });
    return named() && lines.length > 1 ? Math.min(240, 14 + 7 * Math.max(0, ...late.map((curve) => curve.name.length))) : 14;
  };
  let focus = null;

  function ends(u) {
    if (!named() || lines.length < 2) return;
    const ctx = u.ctx, ratio = devicePixelRatio;
    const gap = 13 * ratio, bottom = u.bbox.top + u.bbox.height;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.lineJoin = "round";
    const labels = lines.map((curve, i) => {
      const last = curve.points.reduce((a, b) => (b.x >= a.x ? b : a));
      const x = u.valToPos(last.x, "x", true) + 8 * ratio, end = u.valToPos(last.y, "y", true);
      return { i, name: curve.name, x, y: end, end, wide: ctx.measureText(curve.name).width };
    }).sort((a, b) => a.end - b.end);
    // From the top: below every name before it that stands in its columns; what leaves the frame goes up again.
    const meet = (a, b) => a.x < b.x + b.wide && b.x < a.x + a.wide && Math.abs(a.y - b.y) < gap;
    labels.forEach((one, n) => {
      for (const other of labels.slice(0, n)) if (meet(one, other)) one.y = other.y + gap;
      while (one.y > bottom || labels.slice(0, n).some((other) => meet(one, other) && one.y > bottom - gap)) one.y -= gap;
    });
    for (const one of labels) {
      ctx.globalAlpha = focus === null || focus === one.i ? 1 : 0.25;
      ctx.strokeStyle = read("--paper");
      ctx.lineWidth = 4 * ratio;
      ctx.strokeText(one.name, one.x, one.y);
      ctx.strokeStyle = ctx.fillStyle = read(hue(one.i));
      if (Math.abs(one.y - one.end) > gap / 2) {
        ctx.lineWidth = ratio / 2;
        ctx.beginPath();
        ctx.moveTo(one.x - 5 * ratio, one.end);
        ctx.lineTo(one.x - ratio, one.y);
        ctx.stroke();
      }
      ctx.fillText(one.name, one.x, one.y);
    }
    ctx.restore();
  }

  function intervals(u) {
    const ctx = u.ctx;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    lines.forEach((curve, i) => {
      // Of many curves, those of the one that is looked at.
      if (focus === null ? lines.length > 4 : focus !== i) return;
      ctx.strokeStyle = read(hue(i));
      ctx.globalAlpha = focus === i ? 0.9 : 0.35;
      for (const point of curve.points) {
        if (point.low === null || point.low === undefined || point.high === null) continue;
        const px = u.valToPos(point.x, "x", true);
        ctx.beginPath();
        ctx.moveTo(px, u.valToPos(point.low, "y", true));
        ctx.lineTo(px, u.valToPos(point.high, "y", true));
        ctx.stroke();
      }
    });
    ctx.restore();
  }

  function nearest(u) {
    const { left, top } = u.cursor;
    let best = null, least = 26 ** 2;
    if (left < 0) return null;
    lines.forEach((curve, i) => curve.points.forEach((point) => {
      const away = (u.valToPos(point.x, "x") - left) ** 2 + (u.valToPos(point.y, "y") - top) ** 2;
      if (away < least) [best, least] = [{ i, point }, away];
    }));
    return best;
  }

  function look(u) {
    const found = nearest(u);
    const now = found ? found.i : null;
    tip.hidden = !found;
    if (found) {
      tip.replaceChildren(make("strong", {}, found.point.name || lines[found.i].name), make("span", {}, found.point.said));
      const left = u.over.offsetLeft + u.valToPos(found.point.x, "x"), most = box.clientWidth - tip.offsetWidth - 4;
      tip.style.left = `${Math.max(4, Math.min(left + 12, most))}px`;
      tip.style.top = `${u.over.offsetTop + Math.max(0, u.valToPos(found.point.y, "y") - tip.offsetHeight - 10)}px`;
    }
    u.over.style.cursor = found && pick ? "pointer" : "";
    if (now !== focus) {
      focus = now;
      u.redraw(false);
    }
  }

  const axis = (extra) => ({ stroke: () => read("--ink-soft"), grid: { stroke: () => read("--grid"), width: 1 }, ticks: { show: false }, ...extra });
  const chart = new uPlot({
    width: box.clientWidth || 600, height,
    legend: { show: false },
    padding: [10, () => room(), 0, 4],
    cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
    scales: { x: { time: false, distr: log ? 3 : 1, range: (u, low, high) => (log ? [low / 1.12, high * 1.12] : low === high ? [low - 1, high + 1] : [low, high]) }, y: share ? { range: [0, 1] } : { range: (u, low, high) => [0, high || 1] } },
    axes: [
      axis({ label: x, labelSize: 22, size: 34, ...(log ? { splits: (u, at, low, high) => ladder(low, high), filter: (u, splits) => splits } : {}), values: (u, ticks) => ticks.map((v) => (v === null ? "" : amount(v))) }),
      axis({ label: y, labelSize: 18, size: 48, values: (u, ticks) => ticks.map((v) => (v === null ? "" : share ? `${Math.round(100 * v)}%` : amount(v))) }),
    ],
    series: [{}, ...lines.map((curve, i) => ({
      label: curve.name, spanGaps: true, width: 2, dash: DASHES[Math.floor(i / HUES) % DASHES.length],
      stroke: () => read(hue(i)), alpha: 1,
      points: { show: curve.points.length < 60, size: 7, fill: () => read("--paper"), stroke: () => read(hue(i)), width: 2 },
    }))],
    hooks: { draw: [intervals, ends], setCursor: [look] },
  }, [xs, ...columns], (u, init) => { box.replaceChildren(u.root, tip); init(); });
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label || `${y} by ${x}; the table has the numbers`);
  if (pick) chart.over.addEventListener("click", () => { const one = nearest(chart); if (one) pick(one.point); });
  if (!named() && lines.length > 1)
    box.append(make("ul", { class: "legend" }, lines.map((curve, i) => {
      const key = make("i");
      key.style.background = `var(${hue(i)})`;
      return make("li", {}, key, curve.name);
    })));
  chart.watcher = new ResizeObserver(() => {
    if (box.clientWidth && Math.abs(box.clientWidth - chart.width) > 1) chart.setSize({ width: box.clientWidth, height });
  });
  chart.watcher.observe(box);
  open.add(chart);
  return chart;
}
