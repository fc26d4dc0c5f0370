// Codes as a grid of bits: one cell per bit, filled if it is 1, marked if it differs from the query.

import { count, h } from "./dom.js";

const columns = (n) => (n <= 32 ? Math.min(n, 16) : n <= 128 ? 16 : n <= 512 ? 32 : 64);

/** A code in hexadecimal as a string of bits, such as "0110"; the lowest bit of a byte comes first. */
export function bitsOf(code, length) {
  const bytes = code.match(/../g).map((digits) => parseInt(digits, 16));
  return bytes.map((byte) => [...byte.toString(2).padStart(8, "0")].reverse().join("")).join("").slice(0, length);
}

/** Draw a code, and mark the bits that differ from another code. */
export function bits(code, other = null) {
  const wide = columns(code.length);
  const high = Math.ceil(code.length / wide);
  const paths = { on: "", off: "", "differs on": "", "differs off": "" };
  let different = 0;
  for (let i = 0; i < code.length; i++) {
    const differs = other !== null && code[i] !== other[i];
    different += differs;
    paths[(differs ? "differs " : "") + (code[i] === "1" ? "on" : "off")] += cell(i % wide, Math.floor(i / wide));
  }
  const label = `code of ${count(code.length, "bit")}${other === null ? "" : `, ${different} of them different`}`;
  return h("svg", { class: "bits", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label },
    Object.entries(paths).filter(([, d]) => d).map(([kind, d]) => h("path", { class: kind, d })));
}

const cell = (x, y) => `M${x + 0.1} ${y + 0.1}h.8v.8h-.8z`;
