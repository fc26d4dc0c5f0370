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

/** Text that folds if it is long. */
export function folding(text, limit = 140) {
  if (text.length <= limit) return text;
  const cut = text.slice(0, limit).replace(/\s+\S*$/, "");
  const body = h("span", {}, `${cut}… `);
  const button = h("button", { class: "link", type: "button", "aria-expanded": "false", onclick: () => {
    const open = button.getAttribute("aria-expanded") === "true";
    body.textContent = open ? `${cut}… ` : `${text} `;
    button.textContent = open ? "more" : "less";
    button.setAttribute("aria-expanded", String(!open));
  } }, "more");
  return [body, button];
}
