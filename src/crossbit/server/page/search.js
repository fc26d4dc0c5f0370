// The page that searches: what was asked, what was found, and the states in between.

import * as api from "./api.js";
import { bits } from "./bits.js";
import { chips, face, hitCard, itemCard, nameOf, suggestions } from "./cards.js";
import { announce, byId, count, h } from "./dom.js";

const FIRST = 24; // items to begin with
const PATIENCE = 200; // milliseconds before we say that it takes a while

let running = null;

/** Show the answer to a query: {words}, {key}, {picture}, or {} for a place to begin. */
export async function show(query, options, go) {
  running?.abort();
  const mine = (running = new AbortController());
  const content = byId("content");
  const waiting = setTimeout(() => content.replaceChildren(skeleton()), PATIENCE);
  content.setAttribute("aria-busy", "true");
  try {
    const view = await (isEmpty(query) ? beginning(go) : answered(query, options, go, mine.signal));
    if (running === mine) content.replaceChildren(...view);
  } catch (error) {
    if (error.name === "AbortError" || running !== mine) return;
    content.replaceChildren(failure(error.message, () => show(query, options, go)));
    announce(error.message);
  } finally {
    clearTimeout(waiting);
    if (running === mine) content.removeAttribute("aria-busy");
  }
}

const isEmpty = (query) => query.words === undefined && query.key === undefined && !query.picture;

async function answered(query, options, go, signal) {
  const [answer, subject, tags] = await Promise.all([
    api.search(query, options, signal),
    query.key === undefined ? null : api.item(query.key, signal),
    query.words === undefined ? api.annotate(query, signal).then((found) => found.tags, () => []) : [],
  ]);
  const found = `${count(answer.hits.length, "result")} for ${called(query, subject)}`;
  announce(found);
  document.title = `${called(query, subject)} - Crossbit`;
  const from = (hit) => go({ key: hit.key });
  const heading = h("h1", { class: "hidden" }, found);
  const asked = question(query, subject, answer, tags, (word) => go({ words: word }));
  if (!answer.hits.length) return [heading, asked, nothing()];
  return [heading, asked,
    h("ol", { class: "grid", "aria-label": "Results, nearest first" },
      answer.hits.map((hit, i) => hitCard(hit, i + 1, answer, from)))];
}

function called(query, subject) {
  if (query.picture) return `the picture ${query.picture.name ?? ""}`.trim();
  return subject ? nameOf(subject) : `“${query.words}”`;
}

/** What was asked, as it was understood: its look, its bits, its words. */
function question(query, subject, answer, tags, search) {
  const { modality, code, truth } = answer.query;
  const right = answer.hits.filter((hit) => hit.relevant).length;
  return h("section", { class: "question", "aria-label": "The question" },
    h("div", { class: "look" }, look(query, subject)),
    h("div", { class: "told" },
      h("p", { class: "what" }, h("strong", {}, called(query, subject)), h("span", { class: "by" }, modality)),
      truth ? h("p", { class: "truth" }, `${right} of ${answer.hits.length} are right: `, h("span", {}, truth)) : null,
      subject ? chips(subject.payload.tags ?? []) : null,
      tags.length ? h("div", { class: "suggested" }, h("h2", {}, "Suggested tags"), suggestions(tags, search)) : null),
    code ? h("figure", { class: "code" }, bits(code), h("figcaption", {},
      `its ${answer.n_bits} bits; below, `, h("span", { class: "mark" }, "orange"), " where a result differs")) : null);
}

function look(query, subject) {
  if (subject) return face(subject);
  if (!query.picture) return h("span", { class: "words quote" }, query.words);
  const image = h("img", { alt: "The picture that was asked with" });
  image.src = URL.createObjectURL(query.picture);
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  return image;
}

async function beginning(go) {
  document.title = "Crossbit";
  const { items, total } = await api.items(FIRST);
  if (!total) {
    return [h("section", { class: "state" }, h("h1", {}, "There is nothing here yet"),
      h("p", {}, "Add items to the collection, and they can be found at once."))];
  }
  announce(`${count(total, "item")} can be searched`);
  return [
    h("h1", { class: "begin" }, "Ask with words, drop a picture, or begin with one of these"),
    h("ul", { class: "grid small", "aria-label": "Items to begin with" },
      items.map((item) => itemCard(item, (chosen) => go({ key: chosen.key }))))];
}

const nothing = () =>
  h("section", { class: "state" }, h("h2", {}, "Nothing was found"), h("p", {}, "Try other words, or search among all kinds."));

function failure(message, again) {
  return h("section", { class: "state failed", role: "alert" },
    h("h1", {}, "That did not work"), h("p", {}, message), h("button", { class: "primary", onclick: again }, "Try again"));
}

function skeleton() {
  return h("div", { class: "waiting" }, h("p", { role: "status" }, "Searching…"),
    h("ul", { class: "grid", "aria-hidden": true }, Array.from({ length: 12 }, () => h("li", { class: "card ghost" }, h("div", { class: "face" })))));
}
