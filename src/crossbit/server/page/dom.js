// Elements from plain values. Text is always set as text, so nothing that a payload holds becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const IN_SVG = new Set(["svg", "path", "line", "polyline", "circle", "rect", "g", "text", "title"]);

/** Make an element: h("a", { href: "#/" }, "home"). Handlers are named onclick and the like; null children are left out. */
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

/** Tell people who do not see the screen what has changed. */
export function announce(text) {
  byId("live").textContent = text;
}

export const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)} %`;

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
