// One thing on the page: its picture or its words, its bits, its tags.

import { showPicture } from "./api.js";
import { bits } from "./bits.js";
import { count, h, percent } from "./dom.js";

const HIDDEN = new Set(["picture", "tags", "label", "caption", "captions", "title", "name", "held_out"]);
const MOST_TAGS = 8;

/** What to call an item. */
export function nameOf({ id, payload }) {
  for (const field of ["name", "title", "caption"]) if (typeof payload[field] === "string") return payload[field];
  if (Array.isArray(payload.captions) && typeof payload.captions[0] === "string") return payload.captions[0];
  return tagsOf(payload).join(", ") || String(id);
}

export const tagsOf = (payload) =>
  Array.isArray(payload.tags) ? payload.tags.filter((tag) => typeof tag === "string") : [];

/** A result of a search: a list item with a button that searches from it. */
export function hitCard(hit, rank, answer, from) {
  const right = hit.relevant === null ? "" : hit.relevant ? "right" : "wrong";
  const label = `${nameOf(hit)}. Result ${rank}, ${count(hit.distance, "bit")} of ${answer.n_bits} away`
    + `${hit.relevant === null ? "" : hit.relevant ? ", a right answer" : ", not a right answer"}. Search from it`;
  return h("li", { class: `card ${right}`, "data-modality": hit.modality },
    h("button", { class: "face", "aria-label": label, onclick: () => from(hit) }, face(hit)),
    h("div", { class: "about" },
      h("p", { class: "name" }, nameOf(hit), right === "right" ? h("span", { class: "tick", "aria-hidden": true }, "✓") : null),
      h("p", { class: "distance" },
        h("b", {}, String(hit.distance)), h("span", {}, ` of ${answer.n_bits} bits`),
        h("span", { class: "by", title: "the modality that matched" }, hit.modality)),
      hit.code ? bits(hit.code, answer.query.code) : null,
      chips(tagsOf(hit.payload), new Set(answer.query.tags)),
      further(hit.payload)));
}

/** An item to begin with. */
export function itemCard(item, from) {
  return h("li", { class: "card plain" },
    h("button", { class: "face", "aria-label": `${nameOf(item)}. Search from it`, onclick: () => from(item) }, face(item)),
    h("div", { class: "about" }, h("p", { class: "name" }, nameOf(item))));
}

/** The picture of an item, or its words where it has none. */
export function face(item) {
  const words = () => h("span", { class: "words" }, nameOf(item));
  if (!item.picture) return words();
  const image = h("img", { alt: "", loading: "lazy", decoding: "async", onerror: () => image.replaceWith(words()) });
  showPicture(image, item.picture);
  return image;
}

/** Tags, those that the query has first and marked. */
export function chips(tags, shared = new Set()) {
  if (!tags.length) return null;
  const has = (tag) => shared.has(tag.toLowerCase());
  const ordered = [...tags.filter(has), ...tags.filter((tag) => !has(tag))];
  const more = ordered.length - MOST_TAGS;
  return h("ul", { class: "chips", "aria-label": "Tags" },
    ordered.slice(0, MOST_TAGS).map((tag) =>
      h("li", { class: has(tag) ? "shared" : "" }, tag, has(tag) ? h("span", { class: "hidden" }, " (shared)") : null)),
    more > 0 ? h("li", { class: "more" }, `+${more}`) : null);
}

/** Tags that were suggested, each a button that searches for it. */
export function suggestions(tags, search) {
  return h("ul", { class: "chips large", "aria-label": "Suggested tags" }, tags.map((tag) =>
    h("li", {}, h("button", { onclick: () => search(tag.name), title: `${count(tag.votes, "neighbor")} of those asked have it` },
      tag.name, h("small", {}, percent(tag.score, 0))))));
}

/** Whatever else the payload says, folded away. */
function further(payload) {
  const rest = Object.entries(payload).filter(([field]) => !HIDDEN.has(field));
  if (!rest.length) return null;
  return h("details", {}, h("summary", {}, "more"),
    h("dl", {}, rest.flatMap(([field, value]) => [
      h("dt", {}, field), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))])));
}
