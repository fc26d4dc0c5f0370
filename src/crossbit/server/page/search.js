// The search page: the query, its results, and the states in between.

import * as api from "./api.js";
import { bits } from "./bits.js";
import { chips, face, hitCard, itemCard, nameOf, suggestions } from "./cards.js";
import { announce, byId, count, h, unfoldButton } from "./dom.js";
import { pathOf } from "./paths.js";
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
  const [answer, item, tags] = await Promise.all([
    api.search(query, options, signal),
    itemOf(query, signal),
    query.file ? api.annotate(query, signal).then((answer) => answer.tags, () => []) : [],
  ]);
  announce(`${count(answer.hits.length, "result")} for ${titleOf(query, item)}`);
  document.title = `${titleOf(query, item)} - Crossbit`;
  const summary = h("div", { class: "found" }, summaryOf(answer));
  const total = h("span", {}, count(answer.hits.length, "result"));
  const queryPanel = panel(query, item, answer, { total, summary, tags }, options, context);
  if (!answer.hits.length) return [queryPanel, noResults(options)];
  const list = results(answer, "Results, nearest first", context.go);
  const update = (all) => {
    total.textContent = count(all.hits.length, "result");
    summary.replaceChildren(...summaryOf(all));
  };
  const next = (offset) => api.search(query, { ...options, offset }, signal);
  return [queryPanel, list, nextPage(list, answer, options.k, { next, update, go: context.go })];
}

const itemOf = (query, signal) => (query.key === undefined ? null : api.item(query.key, signal));

const card = (hit, i, answer, go, mark = null) =>
  hitCard(hit, i + 1, answer, ({ key }) => go({ key }), mark);

const results = (answer, label, go, mark = () => null) =>
  h("ol", { class: "grid", "aria-label": label },
    answer.hits.map((hit, i) => card(hit, i, answer, go, mark(hit))));

/** Button that appends the next page of results; hidden after the last one. */
function nextPage(list, first, k, { next, update, go }) {
  let shown = first;
  let isLoading = false;
  const message = h("p", { class: "dim", role: "alert" });
  const append = ({ hits, ...answer }) => {
    const start = shown.hits.length;
    shown = { ...answer, hits: [...shown.hits, ...hits] };
    list.append(...hits.map((hit, i) => card(hit, start + i, shown, go)));
    update(shown);
    announce(`${count(hits.length, "more result")}, ${shown.hits.length} in total`);
    const isLast = hits.length < k;
    if (isLast && document.activeElement === button) {
      (list.children[start] ?? list.lastElementChild).querySelector("button").focus();
    }
    button.hidden = isLast;
  };
  const load = async () => {
    if (isLoading) return;
    isLoading = true;
    message.textContent = "";
    try {
      append(await next(shown.hits.length));
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = error.message;
    } finally {
      isLoading = false;
    }
  };
  const button = h("button", { class: "quiet", type: "button", hidden: first.hits.length < k,
    onclick: load }, "More results");
  return h("div", { class: "next" }, button, message);
}

/** Two queries side by side, each {text} or {key}; results that both find are marked. */
async function comparisonView(queries, options, { go }, signal) {
  const [items, answers] = await Promise.all([
    Promise.all(queries.map((query) => itemOf(query, signal))),
    Promise.all(queries.map((query) => api.search(query, options, signal))),
  ]);
  const keys = answers.map((answer) => new Set(answer.hits.map((hit) => hit.key)));
  const common = [...keys[0]].filter((key) => keys[1].has(key)).length;
  const title = `${count(common, "result")} in common`;
  announce(title);
  const titles = queries.map((query, i) => titleOf(query, items[i]));
  document.title = `${titles.join(" and ")} - Crossbit`;
  const mark = (other) => (hit) => (keys[other].has(hit.key) ? "in both" : null);
  const column = (answer, i) => h("section", { "aria-label": `Results for ${titles[i]}` },
    h("h2", {}, h("a", { href: `#/${pathOf(queries[i])}` }, titles[i])),
    results(answer, `Results for ${titles[i]}, nearest first`, go, mark(1 - i)));
  return [h("h1", { class: "count" }, title), h("div", { class: "compare" }, answers.map(column))];
}

function titleOf(query, item) {
  if (query.file) return `file ${query.file.name ?? ""}`.trim();
  if (query.features) return `a vector of ${count(query.features.length, "number")}`;
  return item ? nameOf(item) : `“${query.text}”`;
}

/** How many results are relevant, and how many weak. */
function summaryOf(answer) {
  const { relevance } = answer.query;
  const n = answer.hits.length;
  const relevant = answer.hits.filter((hit) => hit.relevant).length;
  const weak = answer.hits.filter((hit) => hit.weak).length;
  return [
    relevance ? h("p", { class: "relevance" },
      `${relevant} of ${n} relevant: `, h("span", {}, relevance)) : "",
    weak ? h("p", { class: "dim" },
      `${weak} of ${n} are weak matches: no nearer than unrelated items are.`) : "",
  ];
}

/** How the service understood the query. A text stands in the search box, so it is not repeated. */
function panel(query, item, answer, { total, summary, tags }, options, context) {
  const { modality, code } = answer.query;
  const title = titleOf(query, item);
  const isText = query.text !== undefined;
  const heading = h("h1", { class: `count ${isText ? "" : "clamp"}` }, total, " ",
    h("span", { class: isText ? "hidden" : "what" }, "for ", h("strong", {}, title)), " ",
    h("span", { class: "by" }, modality));
  return h("section", { class: `query ${isText ? "brief" : ""}`, "aria-label": "Query" },
    item || query.file ? h("div", { class: "look" }, look(query, item)) : null,
    h("div", { class: "details" },
      heading, isText ? null : unfoldButton(heading), summary,
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

const noResults = (options) => h("section", { class: "state" }, h("h2", {}, "No results"),
  h("p", {}, options.min_similarity
    ? "Try another query, show weak matches, or search all modalities."
    : "Try another query, or search all modalities."));

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
