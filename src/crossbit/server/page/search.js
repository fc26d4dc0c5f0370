// The search page: the query, its results, and the states in between.

import * as api from "./api.js";
import { bits } from "./bits.js";
import { chips, face, hitCard, itemCard, nameOf, suggestions } from "./cards.js";
import { announce, byId, count, h } from "./dom.js";

const START_ITEMS = 24;
const SKELETON_DELAY = 200; // milliseconds; faster responses should not flicker

let running = null;

/** Show the results of a query: {text}, {key}, {file}, or {} for items to start from. */
export async function show(query, options, go) {
  running?.abort();
  const controller = (running = new AbortController());
  const content = byId("content");
  const delay = setTimeout(() => content.replaceChildren(skeleton()), SKELETON_DELAY);
  content.setAttribute("aria-busy", "true");
  try {
    const view = await (isEmpty(query) ? startView(go) : resultView(query, options, go, controller.signal));
    if (running === controller) content.replaceChildren(...view);
  } catch (error) {
    if (error.name === "AbortError" || running !== controller) return;
    content.replaceChildren(failure(error.message, () => show(query, options, go)));
    announce(error.message);
  } finally {
    clearTimeout(delay);
    if (running === controller) content.removeAttribute("aria-busy");
  }
}

const isEmpty = (query) => query.text === undefined && query.key === undefined && !query.file;

async function resultView(query, options, go, signal) {
  const [answer, item, tags] = await Promise.all([
    api.search(query, options, signal),
    query.key === undefined ? null : api.item(query.key, signal),
    query.text === undefined ? api.annotate(query, signal).then((answer) => answer.tags, () => []) : [],
  ]);
  const title = `${count(answer.hits.length, "result")} for ${titleOf(query, item)}`;
  announce(title);
  document.title = `${titleOf(query, item)} - Crossbit`;
  const select = (hit) => go({ key: hit.key });
  const heading = h("h1", { class: "hidden" }, title);
  const queryPanel = panel(query, item, answer, tags, (text) => go({ text }));
  if (!answer.hits.length) return [heading, queryPanel, noResults()];
  return [heading, queryPanel,
    h("ol", { class: "grid", "aria-label": "Results, nearest first" },
      answer.hits.map((hit, i) => hitCard(hit, i + 1, answer, select)))];
}

function titleOf(query, item) {
  if (query.file) return `file ${query.file.name ?? ""}`.trim();
  return item ? nameOf(item) : `“${query.text}”`;
}

/** The query as the service understood it: image, bits, terms. */
function panel(query, item, answer, tags, search) {
  const { modality, code, relevance } = answer.query;
  const relevant = answer.hits.filter((hit) => hit.relevant).length;
  return h("section", { class: "query", "aria-label": "Query" },
    h("div", { class: "look" }, look(query, item)),
    h("div", { class: "details" },
      h("p", { class: "what" }, h("strong", {}, titleOf(query, item)), h("span", { class: "by" }, modality)),
      relevance ? h("p", { class: "relevance" },
        `${relevant} of ${answer.hits.length} relevant: `, h("span", {}, relevance)) : null,
      item ? chips(item.payload.tags ?? []) : null,
      tags.length ? h("div", { class: "suggested" }, h("h2", {}, "Suggested tags"), suggestions(tags, search)) : null),
    code ? h("figure", { class: "code" }, bits(code), h("figcaption", {},
      `its ${answer.n_bits} bits; in the results, different bits are `, h("span", { class: "mark" }, "orange"))) : null);
}

function look(query, item) {
  if (item) return face(item);
  if (!query.file) return h("span", { class: "text quote" }, query.text);
  const name = h("span", { class: "text quote" }, query.file.name ?? "file");
  if (!query.file.type.startsWith("image/")) return name;
  const image = h("img", { alt: "The image to search with", onerror: () => image.replaceWith(name) });
  image.src = URL.createObjectURL(query.file);
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  return image;
}

async function startView(go) {
  document.title = "Crossbit";
  const { items, total } = await api.items(START_ITEMS);
  if (!total) {
    return [h("section", { class: "state" }, h("h1", {}, "The collection is empty"),
      h("p", {}, "New items can be found as soon as they are added."))];
  }
  announce(`${count(total, "item")} to search`);
  return [
    h("h1", { class: "start" }, "Enter text, drop a file, or start with one of these items"),
    h("ul", { class: "grid small", "aria-label": "Items to start with" },
      items.map((item) => itemCard(item, ({ key }) => go({ key }))))];
}

const noResults = () =>
  h("section", { class: "state" }, h("h2", {}, "No results"), h("p", {}, "Try another query, or search all modalities."));

/** Show an error message instead of results. */
export function fail(message) {
  running?.abort();
  running = null;
  byId("content").removeAttribute("aria-busy");
  byId("content").replaceChildren(failure(message));
}

function failure(message, retry = null) {
  return h("section", { class: "state failed", role: "alert" },
    h("h1", {}, "Something went wrong"), h("p", {}, message),
    retry ? h("button", { class: "primary", onclick: retry }, "Try again") : null);
}

function skeleton() {
  const ghosts = Array.from({ length: 12 }, () => h("li", { class: "card ghost" }, h("div", { class: "face" })));
  return h("div", { class: "waiting" }, h("p", { role: "status" }, "Searching…"),
    h("ul", { class: "grid", "aria-hidden": true }, ghosts));
}
