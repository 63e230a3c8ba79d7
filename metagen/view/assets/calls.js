// The calls of a configuration: on a line of time, where it is seen who waited for whom, and as a conversation.
import { amount, drawn, duration, make, plural } from "./dom.js";
import { score, steps } from "./steps.js";

const ROW = 20, MOST = 300, NAME = 230;

export function timeline(data) {
  const calls = data.calls.filter((call) => call.items.length);
  if (!calls.length) return make("p", { class: "quiet" }, "No calls are recorded.");
  let by = "rounds", most = MOST;
  const detail = make("div", { class: "detail", "aria-live": "polite" });
  const box = make("div", { class: "timeline" });
  const begun = Math.min(...calls.map((call) => call.started));
  const numbered = new Map(calls.map((call) => [call.number, call]));

  // Where a call lies: in the round that its clock tells, or in seconds since the first began.
  const from = (call) => (by === "rounds" ? call.clock - 1 : call.started - begun);
  const to = (call) => (by === "rounds" ? call.clock : call.started - begun + call.seconds);

  function draw() {
    const rounds = Math.max(...calls.map((call) => call.clock));
    const shown = [...calls].sort((a, b) => from(a) - from(b) || a.number - b.number).slice(0, most);
    const width = Math.max(300, box.clientWidth || 900), name = width < 620 ? 0 : NAME;
    const end = Math.max(...calls.map(to)) || 1, scale = (value) => name + ((width - name - 12) * value) / end;
    const rows = new Map(shown.map((call, i) => [call.number, i]));
    const links = drawn("g", { class: "links" });
    const svg = drawn("svg", { width, height: 24 + ROW * shown.length, role: "list", "aria-label": `${calls.length} calls in ${rounds} rounds` });
    const stride = by === "rounds" ? Math.ceil(end / 8) : end / 4;
    for (let value = 0; value < (by === "rounds" ? end : 1.01 * end); value += stride) {
      const last = by !== "rounds" && value > 0.99 * end;
      svg.append(drawn("line", { class: "tick", x1: scale(value), x2: scale(value), y1: 18, y2: 24 + ROW * shown.length }),
        drawn("text", { class: "tick", x: scale(value), y: 12, "text-anchor": last ? "end" : "start" },
          by === "rounds" ? (value ? String(value + 1) : "round 1") : duration(value)));
    }
    svg.append(links);
    const point = (call) => {
      links.replaceChildren();
      for (const other of svg.querySelectorAll(".behind")) other.classList.remove("behind");
      for (const number of call.after) {
        const other = numbered.get(number);
        if (!other || !rows.has(number)) continue;
        svg.querySelector(`[data-call="${number}"]`)?.classList.add("behind");
        const y1 = 24 + ROW * rows.get(number) + ROW / 2, y2 = 24 + ROW * rows.get(call.number) + ROW / 2;
        links.append(drawn("path", { d: `M${scale(to(other))},${y1} C${scale(to(other)) + 14},${y1} ${scale(from(call)) - 14},${y2} ${scale(from(call))},${y2}` }));
      }
      detail.replaceChildren(...told(call, numbered));
    };
    shown.forEach((call, i) => {
      const y = 24 + ROW * i, x = scale(from(call)), wide = Math.max(3, scale(to(call)) - x - (by === "rounds" ? 3 : 0));
      const said = `${call.path}, ${call.maker}: ${plural(call.items.length, "record")}, round ${call.clock}, ${duration(call.seconds)}`;
      const bar = drawn("g", { class: `call ${call.kind}`, role: "listitem", tabindex: 0, "aria-label": said, "data-call": call.number,
        mouseenter: () => point(call), focus: () => point(call), click: () => point(call) },
        drawn("rect", { class: "row", x: 0, y, width, height: ROW }), drawn("rect", { class: "bar", x, y: y + 4, width: wide, height: ROW - 8, rx: 2 }));
      if (name) bar.append(drawn("text", { x: 4, y: y + ROW - 6, class: "name" }, short(`${call.path} · ${call.maker}`, 34)));
      bar.append(drawn("title", {}, said));
      svg.append(bar);
    });
    const left = calls.length - shown.length;
    box.replaceChildren(svg, left > 0 ? make("button", { type: "button", click: () => { most += MOST; draw(); } }, `${left} more calls`) : "");
    return rounds;
  }

  const choose = make("span", { class: "choose", role: "group", "aria-label": "Scale" }, ["rounds", "seconds"].map((name) =>
    make("button", { type: "button", "aria-pressed": name === by, click: (event) => {
      by = name;
      for (const other of event.target.parentElement.children) other.setAttribute("aria-pressed", other === event.target);
      draw();
    } }, name)));
  const rounds = Math.max(...calls.map((call) => call.clock));
  const made = make("div", {},
    make("p", { class: "tools" }, make("span", {}, `${plural(calls.length, "call")}, ${plural(rounds, "round")}: a call stands one round behind the last that it waited for.`), choose),
    box, detail);
  requestAnimationFrame(draw);
  new ResizeObserver(() => { if (box.isConnected && box.firstChild && Math.abs(box.firstChild.clientWidth - box.clientWidth) > 2) draw(); }).observe(box);
  return made;
}

const short = (text, most) => (text.length <= most ? text : `…${text.slice(-most + 1)}`);

function told(call, numbered) {
  const waited = call.after.map((number) => numbered.get(number)).filter(Boolean);
  const few = waited.slice(0, 8).map((other) => `${other.path} (${other.maker})`).join(", ");
  const cost = [["prefilled", "prefilled"], ["cached", "cached"], ["generated", "generated"], ["flops", "FLOPs"]]
    .filter(([name]) => call.usage[name] !== 0).map(([name, what]) => `${amount(call.usage[name])} ${what}`).join(", ");
  return [
    make("p", {}, make("strong", {}, call.path), ` · ${call.maker} · ${call.kind} · round ${call.clock} · ${duration(call.seconds)} · ${cost}`),
    make("p", { class: "quiet" }, waited.length ? `Waited for ${few}${waited.length > 8 ? `, and ${waited.length - 8} more` : ""}.` : "Waited for nothing."),
    replies(call, 4),
  ];
}

// ------------------------------------------------------------------------------------------ conversation

export function talk(data, question) {
  const calls = data.calls.filter((call) => call.items.length).sort((a, b) => a.clock - b.clock || a.number - b.number);
  if (!calls.length) return make("p", { class: "quiet" }, "No calls are recorded.");
  // Chains that ran side by side are read one after the other.
  const chains = new Map(), chain = (call) => /^0\/sample\/(\d+)\//.exec(call.path)?.[1] ?? "";
  for (const call of calls) chains.set(chain(call), [...(chains.get(chain(call)) || []), call]);
  if (chains.size < 2) return conversation(calls, question);
  const several = [...chains].sort(([a], [b]) => (a === "") - (b === "") || Number(a) - Number(b));
  return make("div", {}, several.map(([name, ours], i) => make("details", { open: i < 4 },
    make("summary", {}, name === "" ? "beside the chains" : `chain ${name}`, `: ${plural(ours.length, "call")}`), conversation(ours, question))));
}

function conversation(calls, question) {
  const box = make("ol", { class: "talk" });
  let at = 0;
  const more = make("button", { type: "button", click: add });
  function add() {
    for (const call of calls.slice(at, at + 60)) box.append(...turn(call, question, at === 0 && call === calls[0]));
    at += 60;
    more.hidden = at >= calls.length;
    more.textContent = `${calls.length - at} more calls`;
  }
  add();
  return make("div", {}, box, more);
}

function bubble(kind, who, ...inside) {
  return make("li", { class: `bubble ${kind}` }, make("p", { class: "who" }, who), inside);
}

function turn(call, question, first) {
  const made = [];
  if (call.asked && !call.asked.same)
    for (const { role, content } of call.asked.messages)
      made.push(bubble("asks", `${role === "text" ? "prompt" : role} of ${call.path}`, make("pre", {}, content.replace(/\n+$/, ""))));
  else if (call.asked && first)
    made.push(bubble("asks", "the problem", make("pre", {}, question.replace(/\n+$/, ""))));
  const before = call.asked && call.asked.prefix
    ? make("details", {}, make("summary", {}, "goes on from what is written"), make("pre", {}, call.asked.prefix)) : null;
  const tokens = call.usage.generated ? ` · ${amount(call.usage.generated)} tokens` : "";
  made.push(bubble(call.kind === "score" ? "judges" : "says", `${call.path} · ${call.maker}${tokens} · round ${call.clock}`, before, replies(call, 8)));
  return made;
}

function replies(call, most) {
  const list = (items) => items.map((one) => make("div", { class: "reply" },
    one.thought ? make("details", {}, make("summary", {}, "Thought"), steps(one.thought, null)) : null,
    one.text === null ? null : steps(one.text, null),
    call.kind === "score" ? make("p", {}, score(one.value), one.steps.length > 1 ? [" steps ", one.steps.map((value) => [score(value), " "])] : null) : null,
    one.verdict ? make("p", {}, `verdict: ${one.verdict}`) : null,
    one.feedback ? make("pre", {}, one.feedback) : null,
    one.other ? make("pre", {}, one.other) : null,
    one.status === "complete" ? null : make("p", { class: "quiet" }, one.status)));
  const rest = call.items.slice(most);
  return make("div", { class: "replies" }, list(call.items.slice(0, most)),
    rest.length ? make("details", {}, make("summary", {}, `${rest.length} more`), list(rest)) : null);
}
