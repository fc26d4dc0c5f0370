// Routing: the URL holds the query, so that back, forward and links work: #/, #/text/red, #/item/"cat", #/model, #/api.

import * as api from "./api.js";
import * as docs from "./docs.js";
import { announce, byId, count, h } from "./dom.js";
import * as model from "./model.js";
import * as search from "./search.js";

const TEXT = "text"; // the kind of input that the text field provides

const state = { target: null, k: 24, upload: null, modalities: [] };

/** Modalities that accept uploaded files of some kind, such as "image". */
const uploadModalities = () => state.modalities.filter(({ accepts }) => accepts !== null && accepts !== TEXT);

/** Go to a query: {text}, {key} or {file, modality}. */
function go(query) {
  state.upload = query.file ? query : null;
  const hash = query.file ? "#/upload" : query.key !== undefined ? `#/item/${encodeURIComponent(query.key)}`
    : query.text ? `#/text/${encodeURIComponent(query.text)}` : "#/";
  if (location.hash === hash) route();
  else location.hash = hash;
  if (query.key !== undefined) scrollTo({ top: 0, behavior: "smooth" });
}

function currentQuery() {
  const [, kind, value] = /^#\/(\w*)\/?(.*)$/.exec(location.hash) ?? [];
  if (kind === "text" && value) return { text: decodeURIComponent(value) };
  if (kind === "item") return { key: decodeURIComponent(value) };
  if (kind === "upload" && state.upload) return state.upload;
  return {};
}

async function route() {
  const page = ["model", "api"].find((name) => location.hash === `#/${name}`) ?? "search";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("search").hidden = page !== "search";
  if (page === "search") {
    const query = currentQuery();
    byId("text").value = query.text ?? "";
    const target = state.target ? { target: [state.target] } : {};
    await search.show(query, { k: state.k, ...target }, go);
    return;
  }
  try {
    await (page === "model" ? model : docs).show();
    announce(document.title);
  } catch (error) {
    search.fail(error.message);
  }
}

/** Choice of the target modality and of the number of results. */
function showOptions() {
  const radio = (name) => h("label", {},
    h("input", { type: "radio", name: "target", value: name ?? "", checked: name === state.target,
      onchange: () => { state.target = name; route(); } }),
    h("span", {}, name ?? "all"));
  const radios = [null, ...state.modalities.map(({ name }) => name)].map(radio);
  const counts = h("select", { id: "k", onchange: () => { state.k = Number(counts.value); route(); } },
    [12, 24, 48, 96].map((n) => h("option", { value: n, selected: n === state.k }, String(n))));
  byId("options").replaceChildren(
    h("fieldset", { class: "choice" }, h("legend", {}, "Target"), radios),
    h("label", { class: "choice", for: "k" }, "Results ", counts));
}

/** Search with a file, in the modality that accepts its type. */
async function useFile(file) {
  if (!file) return;
  await started; // until then it is unknown what the modalities accept
  const modality = uploadModalities().find(({ accepts }) => file.type.startsWith(`${accepts}/`));
  if (!modality && /^(image|audio|video|text)\//.test(file.type)) {
    const kinds = uploadModalities().map(({ accepts }) => accepts).join(" or ") || "no files";
    search.fail(`${file.name}: expected ${kinds}, got ${file.type}.`);
    return;
  }
  go({ file, modality: modality?.name });
}

function listen() {
  addEventListener("hashchange", route);
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    go({ text: byId("text").value.trim() });
  });
  byId("choose").addEventListener("click", () => byId("file").click());
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
    useFile(event.dataTransfer.files[0]);
  });
}

/** Offer the inputs that the modalities accept. */
function showInputs() {
  const kinds = [...new Set(uploadModalities().map(({ accepts }) => accepts))];
  const label = kinds.length === 1 ? `${kinds[0][0].toUpperCase()}${kinds[0].slice(1)}` : "File";
  byId("choose").textContent = `${label}…`;
  byId("choose").hidden = !kinds.length;
  byId("file").accept = kinds.map((kind) => `${kind}/*`).join(",");
  byId("text").disabled = !state.modalities.some(({ accepts }) => accepts === TEXT);
  if (byId("text").disabled) byId("text").placeholder = "This collection accepts no text; start with an item";
}

async function start() {
  listen();
  try {
    const stats = await api.stats();
    state.modalities = stats.model.modalities;
    state.target = uploadModalities()[0]?.name ?? null;
    showInputs();
    showOptions();
    const names = state.modalities.map(({ name }) => name).join(", ");
    byId("summary").textContent =
      `${count(stats.collection.items, "item")} · ${names} · ${count(stats.model.n_bits, "bit")}`;
    showAttribution(stats.report.attribution);
  } catch (error) {
    byId("summary").textContent = error.message;
  }
  await route();
}

/** Credit the source of the images; only an http(s) URL becomes a link. */
function showAttribution(source) {
  if (!source?.text) return;
  const link = /^https?:\/\//.test(source.url ?? "")
    ? h("a", { href: source.url, rel: "noreferrer" }, source.text) : source.text;
  byId("footer").replaceChildren(h("p", {}, link, source.license ? `, ${source.license}` : ""));
}

const started = start();
