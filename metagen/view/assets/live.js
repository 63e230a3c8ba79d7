import { beside } from "./dom.js";

// Ask again and again, for as long as a page is open and seen.
export function every(seconds, signal, act) {
  const timer = setInterval(() => { if (!document.hidden) beside(act()); }, 1000 * seconds);
  signal.addEventListener("abort", () => clearInterval(timer));
}
