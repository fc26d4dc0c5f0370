// Small charts as inline SVG, each with a text description for screen readers.

import { h } from "./dom.js";

const WIDE = 460;
const HIGH = 260;
const LEFT = 44;
const BOTTOM = 34;
const TOP = 12;
const RIGHT = 12;

/** A line chart: series are {name, points: [[x, y], …]} with y from 0 to 1; x may be on a log scale. */
export function lines({ title, x, y, series, ticks, log = false }) {
  const xs = series.flatMap((line) => line.points.map(([at]) => at));
  const [low, high] = [Math.min(...ticks, ...xs), Math.max(...ticks, ...xs)];
  const place = log ? Math.log : Number;
  const across = (at) => LEFT + ((place(at) - place(low)) / (place(high) - place(low) || 1)) * (WIDE - LEFT - RIGHT);
  const up = (at) => HIGH - BOTTOM - at * (HIGH - BOTTOM - TOP);
  const label = (at, up_, text, anchor) => h("text", { x: at, y: up_, "text-anchor": anchor }, text);
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((at) => [
    h("line", { class: "rule", x1: LEFT, x2: WIDE - RIGHT, y1: up(at), y2: up(at) }),
    label(LEFT - 7, up(at) + 4, String(Math.round(100 * at)), "end")]);
  const drawn = series.map(({ name, points }, i) => {
    const path = points.map(([at, value]) => `${across(at).toFixed(1)},${up(value).toFixed(1)}`);
    return h("g", { class: `line line-${i % 4}` }, h("title", {}, name), h("polyline", { points: path.join(" ") }),
      points.length <= 12 ? points.map(([at, value]) => h("circle", { cx: across(at), cy: up(value), r: 3.5 })) : null);
  });
  return h("figure", { class: "chart" }, h("figcaption", {}, title),
    h("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": description(title, series) },
      grid, ticks.map((at) => label(across(at), HIGH - BOTTOM + 16, String(at), "middle")),
      label((LEFT + WIDE) / 2, HIGH - 2, x, "middle"), h("text", { x: -(HIGH - BOTTOM) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" }, y),
      drawn),
    h("ul", { class: "legend" }, series.map(({ name }, i) => h("li", { class: `line-${i % 4}` }, name))));
}

function description(title, series) {
  const ends = series.map(({ name, points }) => {
    const [first, last] = [points[0], points[points.length - 1]];
    return `${name} from ${first[1].toFixed(2)} at ${first[0]} to ${last[1].toFixed(2)} at ${last[0]}`;
  });
  return `${title}: ${ends.join("; ")}`;
}

/** A bar chart of the entropy of each bit. */
export function bars(values, name) {
  const wide = 6;
  const path = values.map((value, i) => `M${i * wide + 0.75} 40v${(-38 * value).toFixed(2)}h${wide - 1.5}V40z`).join("");
  const least = Math.min(...values);
  return h("svg", { class: "bars", viewBox: `0 0 ${values.length * wide} 41`, preserveAspectRatio: "none", role: "img",
    "aria-label": `Entropy of each bit of ${name}: at least ${least.toFixed(2)}, 1 is best` }, h("path", { d: path }));
}
