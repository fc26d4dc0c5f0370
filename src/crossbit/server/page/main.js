// The page: its routes, the choices of a search, and the inputs that the modalities accept.

import * as api from "./api.js";
import * as docs from "./docs.js";
import { announce, byId, count, h, remember, remembered } from "./dom.js";
import { acceptAttribute, modalityOf, refusal, uploadModalities } from "./files.js";
import { record } from "./media.js";
import * as model from "./model.js";
import { pathOf, queryOf } from "./paths.js";
import * as search from "./search.js";

const TEXT = "text"; // the kind of input that the text field provides

const state = {
  target: null, // modalities to search; null leaves the choice to the service
  k: 24,
  hideWeak: false,
  group: null, // field of which each value is shown once
  filter: {},
  sent: {}, // the query that the URL cannot hold: a file or a vector
  modalities: [],
  hasWeak: false, // whether the model tells weak matches from others
  writable: false,
  collections: [],
};

const acceptsText = () => state.modalities.some(({ accepts }) => accepts === TEXT);

/** Whether numbers can be pasted for a modality: no text or file describes its items better. */
const takesVector = ({ accepts }) => accepts === null || accepts === "vector";

/** Go to a query: {text}, {key}, {file, modality}, {features, modality} or {compare}. */
function go(query) {
  state.sent = query.file || query.features ? query : {};
  const hash = `#/${pathOf(query)}`;
  if (location.hash === hash) route();
  else location.hash = hash;
  if (query.key !== undefined) scrollTo({ top: 0, behavior: "smooth" });
}

function currentQuery() {
  const path = location.hash.replace(/^#\/?/, "");
  return path === pathOf(state.sent) ? state.sent : queryOf(path);
}

/** Options of a search; those at their defaults are left out. */
const searchOptions = () => ({
  k: state.k,
  ...(state.target && { target: state.target }),
  ...(Object.keys(state.filter).length && { filter: state.filter }),
  ...(state.hideWeak && { min_similarity: "auto" }),
  ...(state.group && { group_by: state.group }),
});

let latest = 0; // number of the newest call of route; what an older one has loaded is not shown

async function route() {
  const number = ++latest;
  const page = location.pathname === "/docs" ? "api" : location.hash === "#/model" ? "model" : "search";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("search").hidden = page !== "search";
  if (page === "search") {
    const query = currentQuery();
    // What somebody has typed while the page was loading stays.
    if (query.text !== undefined || number > 1) byId("text").value = query.text ?? "";
    if (query.key !== undefined && !acceptsText()) byId("text").value = query.key;
    const context = { go, writable: state.writable, acceptsText: acceptsText(), hint: hint() };
    await search.show(query, searchOptions(), context);
    return;
  }
  search.cancel();
  try {
    const { title, view } = await (page === "model" ? model : docs).load();
    if (number !== latest) return;
    document.title = title;
    byId("content").replaceChildren(...view);
    announce(title);
  } catch (error) {
    if (number === latest) search.fail(error.message);
  }
}

/** What somebody can start with, in words. */
function hint() {
  const files = uploadModalities(state.modalities).length > 0;
  if (acceptsText()) return files ? "Enter text, drop a file, or start with one of these items" : "Enter text, or start with one of these items";
  return files ? "Drop a file, or start with one of these items" : "Pick one of these items, enter the id of another, or paste a vector";
}

/** Choices of a search, what cards show, filters, and a field for vectors. */
function showOptions() {
  const chooseCount = () => { state.k = Number(counts.value); route(); };
  const counts = h("select", { id: "k", onchange: chooseCount },
    [12, 24, 48, 96].map((n) => h("option", { value: n, selected: n === state.k }, String(n))));
  const hasOtherInputs = acceptsText() || uploadModalities(state.modalities).length > 0;
  const vector = h("details", { class: "vector", open: !hasOtherInputs && innerWidth > 560 },
    h("summary", {}, "Paste a vector"), vectorForm());
  byId("options").replaceChildren(
    collectionChoice(),
    targetChoice(),
    h("label", { class: "choice", for: "k" }, "Results ", counts),
    h("label", { class: "choice", for: "group", id: "groups", hidden: true }),
    toggle("bits", "Bits", showBits),
    state.hasWeak ? toggle("hide-weak", "Hide weak matches", hideWeak) : "",
    h("button", { id: "filter", class: "link", type: "button", hidden: true,
      "aria-expanded": "false", "aria-controls": "facets", onclick: toggleFacets }, "Filter"),
    state.modalities.some(takesVector) ? vector : "");
}

/** Choice of the modalities to search, if there are several. */
function targetChoice() {
  if (state.modalities.length < 2) return "";
  const names = state.modalities.map(({ name }) => name);
  const choices = [["other kinds", null], ...names.map((name) => [name, [name]]), ["all", ["*"]]];
  const radio = ([label, target]) => h("label", {},
    h("input", { type: "radio", name: "target", value: label, checked: target === state.target,
      onchange: () => { state.target = target; route(); } }),
    h("span", {}, label));
  return h("fieldset", { class: "choice" }, h("legend", {}, "Target"), choices.map(radio));
}

/** A checkbox that the browser remembers. */
function toggle(name, label, change) {
  const box = h("input", { type: "checkbox", id: name, checked: remembered(name, false),
    onchange: () => { remember(name, box.checked); change(box.checked); } });
  return h("label", { class: "toggle", for: name }, box, ` ${label}`);
}

function showBits(visible) {
  document.body.classList.toggle("show-bits", visible);
}

function hideWeak(hidden) {
  state.hideWeak = hidden;
  route();
}

/** Choice of the collection, if there are several. */
function collectionChoice() {
  if (state.collections.length < 2) return "";
  const select = h("select", { id: "collection", onchange: () => openCollection(state.collections[select.selectedIndex]) },
    state.collections.map(({ name, default: isDefault }) =>
      h("option", { selected: api.chosen === null ? isDefault : name === api.chosen }, name)));
  return h("label", { class: "choice", for: "collection" }, "Collection ", select);
}

/** Load the page of another collection; the address has its name. */
function openCollection({ name, default: isDefault }) {
  location.assign(isDefault ? location.pathname : `${location.pathname}?collection=${encodeURIComponent(name)}`);
}

/** A vector of features, for modalities that take no text and no files of another kind. */
function vectorForm() {
  const choices = state.modalities.filter(takesVector);
  const modality = h("select", { "aria-label": "Modality of the vector" }, choices.map(({ name }) => h("option", {}, name)));
  const numbers = h("textarea", { rows: 1, "aria-label": "Numbers of the vector", placeholder: "0.12, -3.4, …", spellcheck: "false" });
  return h("form", { onsubmit: (event) => {
    event.preventDefault();
    const { name, width } = choices.find((each) => each.name === modality.value);
    const features = numbers.value.split(/[\s,;[\]]+/).filter(Boolean).map(Number);
    if (features.some(Number.isNaN) || (width !== null && features.length !== width)) {
      search.fail(`Expected ${width ?? "some"} numbers for ${name}, got ${features.filter((n) => !Number.isNaN(n)).length}.`);
    } else go({ features, modality: name });
  } }, modality, numbers, h("button", { class: "quiet small", type: "submit" }, "Search with it"));
}

function toggleFacets() {
  const open = byId("facets").hidden;
  byId("facets").hidden = !open;
  byId("filter").setAttribute("aria-expanded", String(open));
}

/** Placeholder and filters from what the collection holds. */
async function showOverview() {
  const { words, facets } = await api.overview();
  const withTags = state.modalities.some(({ accepts, recipe }) => accepts === TEXT && /tags/.test(recipe ?? ""));
  if (acceptsText() && words.length > 2) {
    byId("text").placeholder = withTags ? `such as ${words[0]}` : `such as ${words[0]} ${words[1]}`;
  }
  byId("filter").hidden = !facets.length;
  byId("facets").replaceChildren(...facets.map(facetChoice));
  showGroups(facets.filter(({ many }) => !many).map(({ field }) => field));
}

/** Choice of a field of which each value is shown once. */
function showGroups(fields) {
  const chooseGroup = () => { state.group = select.value || null; route(); };
  const select = h("select", { id: "group", onchange: chooseGroup },
    h("option", { value: "" }, "item"),
    fields.map((field) => h("option", { value: field }, field)));
  byId("groups").replaceChildren("One per ", select);
  byId("groups").hidden = !fields.length;
}

function facetChoice({ field, many, values }) {
  const select = h("select", { onchange: () => {
    delete state.filter[field];
    const chosen = values[Number(select.value)];
    if (chosen) state.filter[field] = many ? { has: chosen.value } : chosen.value;
    const active = Object.keys(state.filter).length;
    byId("filter").textContent = active ? `Filter (${active})` : "Filter";
    route();
  } }, h("option", { value: "-1" }, "any"), values.map(({ value, count: n }, i) => h("option", { value: i }, `${value} (${n})`)));
  return h("label", { class: "facet" }, h("span", {}, field), select);
}

/** Search with a file, in the modality that accepts it. */
async function useFile(file) {
  if (!file) return;
  await described; // until then it is unknown what the modalities accept
  const modality = modalityOf(file, state.modalities);
  if (modality) go({ file, modality: modality.name });
  else search.fail(refusal(file, state.modalities));
}

/** An id as JSON: 7 is an integer, cat a string. */
const keyOf = (value) => (/^-?\d+$/.test(value) || /^".*"$/.test(value) ? value : JSON.stringify(value));

/** Add files to a collection that is writable, each under its name. */
async function addFiles(files) {
  await described;
  const failed = [];
  for (const file of files) {
    const modality = modalityOf(file, state.modalities);
    if (!modality) {
      failed.push(refusal(file, state.modalities));
      continue;
    }
    try {
      await api.add(file, modality.name);
    } catch (error) {
      failed.push(`${file.name}: ${error.message}`);
    }
  }
  if (failed.length) search.fail(failed.join(" "));
  else go({});
  announce(`${count(files.length - failed.length, "file")} added`);
}

async function recordSound() {
  const button = byId("record");
  if (button.dataset.recording) return;
  button.dataset.recording = "yes";
  button.textContent = "Stop";
  try {
    await useFile(await record(button));
  } catch (error) {
    search.fail(`The microphone cannot be used: ${error.message}`);
  } finally {
    delete button.dataset.recording;
    button.textContent = "Record";
  }
}

function listen() {
  addEventListener("hashchange", route);
  byId("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = byId("text").value.trim();
    await described; // until then it is unknown whether the field takes text or ids
    go(acceptsText() || !value ? { text: value } : { key: keyOf(value) });
  });
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("record").addEventListener("click", recordSound);
  byId("file").addEventListener("change", () => { useFile(byId("file").files[0]); byId("file").value = ""; });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      event.preventDefault();
      byId("text").focus();
    }
  });
  addEventListener("paste", (event) => useFile(event.clipboardData?.files[0]));
  listenForDrops();
}

function listenForDrops() {
  const drop = byId("drop");
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => { drop.hidden = !hasFiles(event); });
  addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.hidden = true; });
  addEventListener("drop", (event) => {
    drop.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    const files = [...event.dataTransfer.files];
    if (files.length > 1 && state.writable) addFiles(files);
    else useFile(files[0]);
  });
}

/** Offer the inputs that the modalities accept. */
function showInputs() {
  const kinds = [...new Set(uploadModalities(state.modalities).map(({ accepts }) => accepts))];
  const label = kinds.length === 1 ? `${kinds[0][0].toUpperCase()}${kinds[0].slice(1)}` : "File";
  byId("choose").textContent = `${label}…`;
  byId("choose").hidden = !kinds.length;
  byId("file").accept = acceptAttribute(kinds);
  byId("record").hidden = !kinds.includes("audio") || !navigator.mediaDevices;
  if (!acceptsText()) {
    byId("text-label").textContent = "Id of an item to search with";
    byId("text").placeholder = "id of an item";
  }
  if (state.writable && kinds.length) byId("drop-text").textContent = "Drop a file to search with it, or several to add them";
}

/** Ask the service for its modalities, and offer the inputs that they accept. */
async function describe() {
  try {
    state.collections = await api.collections();
    const [first] = state.collections;
    // A token may be for other collections than the default one.
    if (api.chosen === null && first && !first.default) return openCollection(first);
    const stats = await api.stats();
    state.modalities = stats.model.modalities;
    state.hasWeak = Object.keys(stats.model.card.weak ?? {}).length > 0;
    state.hideWeak = state.hasWeak && remembered("hide-weak", false);
    state.writable = stats.writable;
    showInputs();
    showOptions();
    showBits(remembered("bits", false));
    const names = state.modalities.map(({ name }) => name).join(", ");
    byId("summary").textContent =
      `${count(stats.collection.items, "item")} · ${names} · ${count(stats.model.n_bits, "bit")}`;
    showAttribution(stats.report.attribution);
  } catch (error) {
    byId("summary").textContent = error.message;
  }
}

async function start() {
  listen();
  await described;
  await route();
  showOverview().catch(() => {}); // the page works without it
}

/** Credit the source of the images; only an http(s) URL becomes a link. */
function showAttribution(source) {
  if (!source?.text) return;
  const link = /^https?:\/\//.test(source.url ?? "")
    ? h("a", { href: source.url, rel: "noreferrer" }, source.text) : source.text;
  byId("footer").replaceChildren(h("p", {}, link, source.license ? `, ${source.license}` : ""));
}

for (const link of document.querySelectorAll("header a")) link.search = location.search; // the chosen collection
const described = describe();
start();
