// The search page: the query, its results, and the states in between.

import * as api from "./api.js";
import { bits } from "./bits.js";
import { chips, face, hitCard, itemCard, nameOf, suggestions } from "./cards.js";
import { announce, byId, count, folding, h } from "./dom.js";
import { tools } from "./tools.js";

const START_ITEMS = 24;
const SKELETON_DELAY = 200; // milliseconds; faster responses should not flicker

let running = null;

/** Drop the view that is being loaded, if any: another page is shown. */
export function cancel() {
  running?.abort();
  running = null;
  byId("content").removeAttribute("aria-busy");
}

/** Show the results of a query: {text}, {key}, {file}, {features}, {compare}, or {} for items to start from. */
export async function show(query, options, context) {
  running?.abort();
  const controller = (running = new AbortController());
  const content = byId("content");
  const delay = setTimeout(() => {
    if (running === controller) content.replaceChildren(skeleton());
  }, SKELETON_DELAY);
  content.setAttribute("aria-busy", "true");
  try {
    const view = await viewOf(query, options, context, controller.signal);
    if (running === controller) content.replaceChildren(...view);
  } catch (error) {
    if (error.name === "AbortError" || running !== controller) return;
    content.replaceChildren(failure(error.message, () => show(query, options, context)));
    announce(error.message);
  } finally {
    clearTimeout(delay);
    if (running === controller) content.removeAttribute("aria-busy");
  }
}

function viewOf(query, options, context, signal) {
  if (query.compare) return comparisonView(query.compare, options, context, signal);
  const isEmpty = query.text === undefined && query.key === undefined && !query.file && !query.features;
  return isEmpty ? startView(context) : resultView(query, options, context, signal);
}

async function resultView(query, options, context, signal) {
  const { go } = context;
  const [answer, item, tags] = await Promise.all([
    api.search(query, options, signal),
    query.key === undefined ? null : api.item(query.key, signal),
    query.file ? api.annotate(query, signal).then((answer) => answer.tags, () => []) : [],
  ]);
  const title = `${count(answer.hits.length, "result")} for ${titleOf(query, item)}`;
  announce(title);
  document.title = `${titleOf(query, item)} - Crossbit`;
  const queryPanel = panel(query, item, answer, tags, options, context);
  if (!answer.hits.length) return [queryPanel, noResults()];
  return [queryPanel, results(answer, "Results, nearest first", go)];
}

const results = (answer, label, go, mark = () => null) =>
  h("ol", { class: "grid", "aria-label": label },
    answer.hits.map((hit, i) => hitCard(hit, i + 1, answer, ({ key }) => go({ key }), mark(hit))));

/** Two texts side by side; results that both find are marked. */
async function comparisonView(texts, options, { go }, signal) {
  const answers = await Promise.all(texts.map((text) => api.search({ text }, options, signal)));
  const keys = answers.map((answer) => new Set(answer.hits.map((hit) => hit.key)));
  const common = [...keys[0]].filter((key) => keys[1].has(key)).length;
  const title = `${count(common, "result")} in common`;
  announce(title);
  document.title = `“${texts[0]}” and “${texts[1]}” - Crossbit`;
  const mark = (other) => (hit) => (keys[other].has(hit.key) ? "in both" : null);
  return [h("h1", { class: "count" }, title),
    h("div", { class: "compare" }, answers.map((answer, i) => h("section", { "aria-label": `Results for ${texts[i]}` },
      h("h2", {}, h("a", { href: `#/text/${encodeURIComponent(texts[i])}` }, `“${texts[i]}”`)),
      results(answer, `Results for ${texts[i]}, nearest first`, go, mark(1 - i)))))];
}

function titleOf(query, item) {
  if (query.file) return `file ${query.file.name ?? ""}`.trim();
  if (query.features) return `a vector of ${count(query.features.length, "number")}`;
  return item ? nameOf(item) : `“${query.text}”`;
}

/** What is proven about the results; empty where the store does not say. */
function proof({ exact, proven_radius: radius }) {
  if (exact === null || exact === undefined) return "";
  return exact ? "Exact: no item is nearer." : `Stopped early: no item is missing up to ${count(radius, "different bit")}.`;
}

/** How the service understood the query. A text stands in the search box, so it is not repeated. */
function panel(query, item, answer, tags, options, context) {
  const { modality, code, relevance } = answer.query;
  const relevant = answer.hits.filter((hit) => hit.relevant).length;
  const weak = answer.hits.filter((hit) => hit.weak).length;
  const title = titleOf(query, item);
  const isText = query.text !== undefined;
  return h("section", { class: `query ${isText ? "brief" : ""}`, "aria-label": "Query" },
    item || query.file ? h("div", { class: "look" }, look(query, item)) : null,
    h("div", { class: "details" },
      h("h1", { class: "count" }, count(answer.hits.length, "result"), " ",
        h("span", { class: isText ? "hidden" : "what" }, "for ", h("strong", {}, isText ? title : folding(title))), h("span", { class: "by" }, modality)),
      relevance ? h("p", { class: "relevance" },
        `${relevant} of ${answer.hits.length} relevant: `, h("span", {}, relevance)) : null,
      weak ? h("p", { class: "dim" }, `${weak} of ${answer.hits.length} are weak matches: no nearer than unrelated items are.`) : null,
      h("p", { class: "dim proof" }, proof(answer)),
      item ? chips(item.payload.tags ?? []) : null,
      tags.length ? h("div", { class: "suggested" }, h("h2", {}, "Suggested tags"), suggestions(tags, (text) => context.go({ text }))) : null,
      tools(query, options, answer, context)),
    code ? h("figure", { class: "code" }, bits(code), h("figcaption", {},
      `its ${answer.n_bits} bits; in the results, different bits are `, h("span", { class: "mark" }, "orange"))) : null);
}

function look(query, item) {
  if (item) return face(item);
  const name = h("span", { class: "text quote" }, query.file.name ?? "file");
  if (!query.file.type.startsWith("image/")) return name;
  const image = h("img", { alt: "The image to search with", onerror: () => image.replaceWith(name) });
  image.src = URL.createObjectURL(query.file);
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  return image;
}

async function startView({ go, hint, writable }) {
  document.title = "Crossbit";
  const { items, total } = await api.items(START_ITEMS);
  if (!total) {
    return [h("section", { class: "state" }, h("h1", {}, "The collection is empty"),
      h("p", {}, writable ? "Drop files here to add them." : "New items can be found as soon as they are added."))];
  }
  announce(`${count(total, "item")} to search`);
  return [
    h("h1", { class: "start" }, hint),
    h("ul", { class: items.some((item) => !item.picture && Object.keys(item.media).length) ? "grid" : "grid small", "aria-label": "Items to start with" },
      items.map((item) => itemCard(item, ({ key }) => go({ key }))))];
}

const noResults = () =>
  h("section", { class: "state" }, h("h2", {}, "No results"), h("p", {}, "Try another query, or search all modalities."));

/** Show an error message instead of results. */
export function fail(message) {
  cancel();
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
