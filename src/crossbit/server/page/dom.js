// Creates elements. Text is always set as text, so nothing in a payload becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const IN_SVG = new Set(["svg", "path", "line", "polyline", "circle", "rect", "g", "text", "title"]);

/** Create an element: h("a", { href: "#/" }, "home"). Attributes named on… are event handlers; null children are skipped. */
export function h(tag, attributes = {}, ...children) {
  const element = IN_SVG.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Announce a change to screen readers. */
export function announce(text) {
  byId("live").textContent = text;
}

export const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)} %`;

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** A setting that the browser remembers. */
export function remembered(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`crossbit-${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`crossbit-${name}`, JSON.stringify(value));
  } catch {
    // A browser that keeps nothing: the setting lasts as long as the page.
  }
}

const OVERHANG = 4; // pixels that letters may stand out of their line

/** Text that folds after some lines. */
export function folding(text) {
  const lines = h("span", { class: "clamp" }, text);
  return [lines, unfoldButton(lines)];
}

/** Button that shows all lines of a clamped element; hidden while none is cut off. */
export function unfoldButton(lines) {
  const toggle = () => {
    const isOpen = lines.classList.toggle("open");
    button.textContent = isOpen ? "less" : "more";
    button.setAttribute("aria-expanded", String(isOpen));
  };
  const button = h("button", { class: "link unfold", type: "button", hidden: true,
    "aria-expanded": "false", onclick: toggle }, "more");
  new ResizeObserver(() => {
    if (lines.classList.contains("open")) return;
    button.hidden = lines.scrollHeight <= lines.clientHeight + OVERHANG;
  }).observe(lines);
  return button;
}
