// Cards of items: image or text, bits and tags.

import { showImage } from "./api.js";
import { bits } from "./bits.js";
import { count, h, percent } from "./dom.js";

const HIDDEN = new Set(["picture", "tags", "label", "caption", "captions", "title", "name", "held_out"]);
const MAX_TAGS = 8;

/** Name of an item. */
export function nameOf({ id, payload }) {
  for (const field of ["name", "title", "caption"]) if (typeof payload[field] === "string") return payload[field];
  if (Array.isArray(payload.captions) && typeof payload.captions[0] === "string") return payload.captions[0];
  return tagsOf(payload).join(", ") || String(id);
}

export const tagsOf = (payload) =>
  Array.isArray(payload.tags) ? payload.tags.filter((tag) => typeof tag === "string") : [];

/** A search result: a list item with a button that searches with it. */
export function hitCard(hit, rank, answer, select) {
  const relevance = hit.relevant === null ? "" : hit.relevant ? "relevant" : "irrelevant";
  const label = `${nameOf(hit)}. Result ${rank}, distance ${hit.distance} of ${count(answer.n_bits, "bit")}`
    + `${relevance ? `, ${relevance}` : ""}. Search with it`;
  return h("li", { class: `card ${relevance}`, "data-modality": hit.modality },
    h("button", { class: "face", "aria-label": label, onclick: () => select(hit) }, face(hit)),
    h("div", { class: "about" },
      h("p", { class: "name" }, nameOf(hit), hit.relevant ? h("span", { class: "tick", "aria-hidden": true }, "✓") : null),
      h("p", { class: "distance" },
        h("b", {}, String(hit.distance)), h("span", {}, ` of ${answer.n_bits} bits`),
        h("span", { class: "by", title: "the modality that matched" }, hit.modality)),
      hit.code ? bits(hit.code, answer.query.code) : null,
      chips(tagsOf(hit.payload), new Set(answer.query.terms)),
      moreFields(hit.payload)));
}

/** An item to start from. */
export function itemCard(item, select) {
  return h("li", { class: "card plain" },
    h("button", { class: "face", "aria-label": `${nameOf(item)}. Search with it`, onclick: () => select(item) }, face(item)),
    h("div", { class: "about" }, h("p", { class: "name" }, nameOf(item))));
}

/** Image of an item, or its name if it has none. */
export function face(item) {
  const text = () => h("span", { class: "text" }, nameOf(item));
  if (!item.picture) return text();
  const image = h("img", { alt: "", loading: "lazy", decoding: "async", onerror: () => image.replaceWith(text()) });
  showImage(image, item.picture);
  return image;
}

/** Tags; those that the query has come first and are marked. */
export function chips(tags, shared = new Set()) {
  if (!tags.length) return null;
  const has = (tag) => shared.has(tag.toLowerCase());
  const ordered = [...tags.filter(has), ...tags.filter((tag) => !has(tag))];
  const more = ordered.length - MAX_TAGS;
  return h("ul", { class: "chips", "aria-label": "Tags" },
    ordered.slice(0, MAX_TAGS).map((tag) =>
      h("li", { class: has(tag) ? "shared" : "" }, tag, has(tag) ? h("span", { class: "hidden" }, " (shared)") : null)),
    more > 0 ? h("li", { class: "more" }, `+${more}`) : null);
}

/** Suggested tags, each a button that searches for it. */
export function suggestions(tags, search) {
  return h("ul", { class: "chips large", "aria-label": "Suggested tags" }, tags.map((tag) =>
    h("li", {}, h("button", { onclick: () => search(tag.name), title: `${count(tag.votes, "neighbor")} voted for it` },
      tag.name, h("small", {}, percent(tag.score, 0))))));
}

/** All other payload fields, collapsed. */
function moreFields(payload) {
  const rest = Object.entries(payload).filter(([field]) => !HIDDEN.has(field));
  if (!rest.length) return null;
  return h("details", {}, h("summary", {}, "more"),
    h("dl", {}, rest.flatMap(([field, value]) => [
      h("dt", {}, field), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))])));
}
