// Routing: the URL holds the query, so that back, forward and links work: #/, #/text/red, #/item/"cat",
// #/compare/red/blue, #/model, #/api.

import * as api from "./api.js";
import * as docs from "./docs.js";
import { announce, byId, count, h, remember, remembered } from "./dom.js";
import { record } from "./media.js";
import * as model from "./model.js";
import * as search from "./search.js";

const TEXT = "text"; // the kind of input that the text field provides

const state = { target: null, k: 24, upload: null, vector: null, filter: {}, modalities: [], writable: false, collections: [] };

/** Modalities that accept uploaded files of some kind, such as "image". */
const uploadModalities = () => state.modalities.filter(({ accepts }) => accepts !== null && accepts !== TEXT);

const acceptsText = () => state.modalities.some(({ accepts }) => accepts === TEXT);

/** Go to a query: {text}, {key}, {file, modality}, {features, modality} or {compare}. */
function go(query) {
  state.upload = query.file ? query : null;
  state.vector = query.features ? query : null;
  const hash = query.file ? "#/upload" : query.features ? "#/vector" : query.key !== undefined ? `#/item/${encodeURIComponent(query.key)}`
    : query.compare ? `#/compare/${query.compare.map(encodeURIComponent).join("/")}`
      : query.text ? `#/text/${encodeURIComponent(query.text)}` : "#/";
  if (location.hash === hash) route();
  else location.hash = hash;
  if (query.key !== undefined) scrollTo({ top: 0, behavior: "smooth" });
}

function currentQuery() {
  const [, kind, value] = /^#\/(\w*)\/?(.*)$/.exec(location.hash) ?? [];
  if (kind === "text" && value) return { text: decodeURIComponent(value) };
  if (kind === "item") return { key: decodeURIComponent(value) };
  if (kind === "compare" && value.includes("/")) return { compare: value.split("/").slice(0, 2).map(decodeURIComponent) };
  if (kind === "upload" && state.upload) return state.upload;
  if (kind === "vector" && state.vector) return state.vector;
  return {};
}

let latest = 0; // number of the newest call of route; what an older one has loaded is not shown

async function route() {
  const number = ++latest;
  const page = ["model", "api"].find((name) => location.hash === `#/${name}`) ?? "search";
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
    const target = { target: [state.target ?? "*"] };
    const filter = Object.keys(state.filter).length ? { filter: state.filter } : {};
    await search.show(query, { k: state.k, ...target, ...filter }, { go, writable: state.writable, hint: hint() });
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
  const files = uploadModalities().length > 0;
  if (acceptsText()) return files ? "Enter text, drop a file, or start with one of these items" : "Enter text, or start with one of these items";
  return files ? "Drop a file, or start with one of these items" : "Pick one of these items, enter the id of another, or paste a vector";
}

/** Choice of the target modality and of the number of results; what cards show; filters; vectors. */
function showOptions() {
  const radio = (name) => h("label", {},
    h("input", { type: "radio", name: "target", value: name ?? "", checked: name === state.target,
      onchange: () => { state.target = name; route(); } }),
    h("span", {}, name ?? "all"));
  const radios = [null, ...state.modalities.map(({ name }) => name)].map(radio);
  const counts = h("select", { id: "k", onchange: () => { state.k = Number(counts.value); route(); } },
    [12, 24, 48, 96].map((n) => h("option", { value: n, selected: n === state.k }, String(n))));
  const bits = h("input", { type: "checkbox", id: "bits", checked: remembered("bits", false), onchange: () => showBits(bits.checked) });
  showBits(bits.checked);
  byId("options").replaceChildren(
    collectionChoice(),
    h("fieldset", { class: "choice" }, h("legend", {}, "Target"), radios),
    h("label", { class: "choice", for: "k" }, "Results ", counts),
    h("label", { class: "toggle", for: "bits" }, bits, " Bits"),
    h("button", { id: "filter", class: "link", type: "button", hidden: true, "aria-expanded": "false", "aria-controls": "facets", onclick: toggleFacets }, "Filter"),
    state.modalities.some(({ accepts }) => accepts === null)
      ? h("details", { class: "vector", open: !acceptsText() && !uploadModalities().length && innerWidth > 560 }, h("summary", {}, "Paste a vector"), vectorForm()) : "");
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

function showBits(visible) {
  remember("bits", visible);
  document.body.classList.toggle("show-bits", visible);
}

/** A vector of features, for modalities that take no raw inputs. */
function vectorForm() {
  const choices = state.modalities.filter(({ accepts }) => accepts === null);
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

/** Search with a file, in the modality that accepts its type. */
async function useFile(file) {
  if (!file) return;
  await described; // until then it is unknown what the modalities accept
  const modality = uploadModalities().find(({ accepts }) => file.type.startsWith(`${accepts}/`));
  if (!modality && /^(image|audio|video|text)\//.test(file.type)) {
    const kinds = uploadModalities().map(({ accepts }) => accepts).join(" or ") || "no files";
    search.fail(`${file.name}: expected ${kinds}, got ${file.type}.`);
    return;
  }
  go({ file, modality: modality?.name });
}

/** An id as JSON: 7 is an integer, cat a string. */
const keyOf = (value) => (/^-?\d+$/.test(value) || /^".*"$/.test(value) ? value : JSON.stringify(value));

/** Add files to a collection that is writable, each under its name. */
async function addFiles(files) {
  await described;
  const failed = [];
  for (const file of files) {
    const modality = uploadModalities().find(({ accepts }) => file.type.startsWith(`${accepts}/`));
    try {
      if (!modality) throw new Error(`no modality accepts ${file.type || "it"}`);
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
  const kinds = [...new Set(uploadModalities().map(({ accepts }) => accepts))];
  const label = kinds.length === 1 ? `${kinds[0][0].toUpperCase()}${kinds[0].slice(1)}` : "File";
  byId("choose").textContent = `${label}…`;
  byId("choose").hidden = !kinds.length;
  byId("file").accept = kinds.map((kind) => `${kind}/*`).join(",");
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
    state.target = uploadModalities()[0]?.name ?? null;
    state.writable = stats.writable;
    showInputs();
    showOptions();
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

const described = describe();
start();
