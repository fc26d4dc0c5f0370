// Cards of items: image, media or text, bits, tags, and why an item was found.

import { overview, showImage } from "./api.js";
import { bits } from "./bits.js";
import { count, folding, h, percent, unfoldButton } from "./dom.js";
import { isSignal, media } from "./media.js";

const HIDDEN = new Set(["picture", "audio", "mesh", "tags", "label", "caption", "captions", "title", "name", "held_out"]);
const MAX_TAGS = 8;
const MAX_REASONS = 6;

/** Name of an item. */
export function nameOf({ id, payload }) {
  for (const field of ["name", "title", "caption"]) if (typeof payload[field] === "string") return payload[field];
  if (Array.isArray(payload.captions) && typeof payload.captions[0] === "string") return payload.captions[0];
  return tagsOf(payload).join(", ") || String(id);
}

export const tagsOf = (payload) =>
  Array.isArray(payload.tags) ? payload.tags.filter((tag) => typeof tag === "string") : [];

const shortName = (item) => (nameOf(item).length > 80 ? `${nameOf(item).slice(0, 80)}…` : nameOf(item));

/** A search result: a list item with a button that searches with it. */
export function hitCard(hit, rank, answer, select, mark = null) {
  const relevance = hit.relevant === null ? "" : hit.relevant ? "relevant" : "irrelevant";
  const shown = media(hit, shortName(hit));
  const isText = !hit.picture && !shown.length;
  const label = `${isText ? nameOf(hit) : shortName(hit)}. Result ${rank},`
    + ` distance ${hit.distance} of ${count(answer.n_bits, "bit")}`
    + `${relevance ? `, ${relevance}` : ""}${hit.weak ? ", weak match" : ""}. Search with it`;
  const looks = face(hit);
  const tick = hit.relevant ? h("span", { class: "tick", "aria-hidden": true }, "✓") : null;
  const button = (className, content) =>
    h("button", { class: className, "aria-label": label, onclick: () => select(hit) }, content);
  return h("li", { class: `card ${relevance} ${hit.weak ? "weak" : ""}`, "data-modality": hit.modality },
    hit.picture || isText ? button("face", looks) : shown,
    h("div", { class: "about" },
      isText ? unfoldButton(looks) : h("p", { class: "name" }, tick, folding(nameOf(hit))),
      h("p", { class: "distance" },
        h("b", {}, String(hit.distance)), h("span", {}, ` of ${answer.n_bits} bits`),
        isText ? tick : null,
        h("span", { class: "by", title: "the modality that matched" }, hit.modality)),
      badges(hit, mark),
      hit.code ? bits(hit.code, answer.query.code) : null,
      hit.picture && shown.length ? shown : null,
      !hit.picture && shown.length ? button("link", "Search with it") : null,
      chips(tagsOf(hit.payload), new Set(answer.query.terms)),
      h("div", { class: "folded" }, hit.code ? why(hit, answer) : null, moreFields(hit.payload))));
}

function badges(hit, mark) {
  const all = [hit.weak ? ["weak", "weak match"] : null, hit.payload.held_out === true ? ["held", "held out"] : null,
    mark ? ["common", mark] : null].filter(Boolean);
  return all.length ? h("p", { class: "badges" }, all.map(([kind, text]) => h("span", { class: `badge ${kind}` }, text))) : null;
}

/** The bits that agree with the query, by what they mean; computed by the service once. */
function why(hit, answer) {
  const body = h("div", { class: "reasons" }, h("p", {}, "Loading…"));
  const element = h("details", { class: "why", ontoggle: async () => {
    if (!element.open || element.dataset.loaded) return;
    element.dataset.loaded = "yes";
    try {
      body.replaceChildren(...reasons(hit.code, answer.query.code, (await overview()).bits, new Set(tagsOf(hit.payload))));
    } catch (error) {
      body.replaceChildren(h("p", {}, error.message));
    }
  } }, h("summary", {}, "why"), body);
  return element;
}

function reasons(code, query, names, tags) {
  const equal = [...code].map((bit, i) => bit === query[i]);
  const agree = equal.filter(Boolean).length;
  return [
    h("p", {}, `${agree} of ${code.length} bits agree.`),
    meaning("They stand for", query, names, equal, tags),
    meaning("The others stand for", query, names, equal.map((same) => !same), new Set()),
  ].filter(Boolean);
}

/** Tags of some bits of the query, if possible tags of the item: with the number of bits and the AUC of the best one. */
function meaning(title, query, names, chosen, tags) {
  const found = new Map();
  chosen.forEach((isChosen, i) => {
    const candidates = isChosen && names[i] ? names[i][query[i] === "1" ? "set" : "unset"] : [];
    const best = candidates.find(({ name }) => tags.has(name)) ?? candidates[0];
    if (!best) return;
    const { auc, n } = found.get(best.name) ?? { auc: 0, n: 0 };
    found.set(best.name, { auc: Math.max(auc, best.auc), n: n + 1 });
  });
  const top = [...found].sort(([, a], [, b]) => b.auc - a.auc).slice(0, MAX_REASONS);
  if (!top.length) return null;
  return h("dl", {}, h("dt", {}, title), h("dd", {}, h("ul", {}, top.map(([name, { auc, n }]) =>
    h("li", {}, h("b", {}, name), ` ${count(n, "bit")}, AUC ${auc.toFixed(2)}`)))));
}

/** An item to start from. */
export function itemCard(item, select) {
  const shown = item.picture ? [] : media(item, shortName(item));
  const label = `${item.picture ? shortName(item) : nameOf(item)}. Search with it`;
  const button = (className, content) =>
    h("button", { class: className, "aria-label": label, onclick: () => select(item) }, content);
  const about = (...children) => h("div", { class: "about" }, children);
  if (shown.length) {
    const [lines, more] = folding(nameOf(item));
    return h("li", { class: "card plain" }, shown, about(button("link name", lines), more));
  }
  const looks = face(item);
  return h("li", { class: "card plain" }, button("face", looks),
    item.picture ? about(h("p", { class: "name" }, folding(nameOf(item)))) : unfoldButton(looks));
}

/** Image of an item, or its name if it has none. */
export function face(item) {
  const text = () => h("span", { class: "text clamp" }, nameOf(item));
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
  const rest = Object.entries(payload).filter(([field, value]) => !HIDDEN.has(field) && !(field === "signal" && (isSignal(value) || typeof value === "string")));
  if (!rest.length) return null;
  return h("details", {}, h("summary", {}, "fields"),
    h("dl", {}, rest.flatMap(([field, value]) => [
      h("dt", {}, field), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))])));
}
