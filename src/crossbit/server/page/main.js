// Where we are is in the address, so that back, forward and links work: #/, #/words/red, #/item/"cat", #/model, #/api.

import * as api from "./api.js";
import * as docs from "./docs.js";
import { announce, byId, count, h } from "./dom.js";
import * as model from "./model.js";
import * as search from "./search.js";

const state = { among: null, k: 24, picture: null, modalities: [] };

/** Go to a query: {words}, {key} or {picture}. */
function go(query) {
  state.picture = query.picture ?? null;
  const place = query.picture ? "#/picture" : query.key !== undefined ? `#/item/${encodeURIComponent(query.key)}`
    : query.words ? `#/words/${encodeURIComponent(query.words)}` : "#/";
  if (location.hash === place) route();
  else location.hash = place;
  if (query.key !== undefined) scrollTo({ top: 0, behavior: "smooth" });
}

function query() {
  const [, kind, value] = /^#\/(\w*)\/?(.*)$/.exec(location.hash) ?? [];
  if (kind === "words" && value) return { words: decodeURIComponent(value) };
  if (kind === "item") return { key: decodeURIComponent(value) };
  if (kind === "picture" && state.picture) return { picture: state.picture };
  return {};
}

async function route() {
  const page = ["model", "api"].find((name) => location.hash === `#/${name}`) ?? "search";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("asking").hidden = page !== "search";
  if (page === "search") {
    const asked = query();
    byId("words").value = asked.words ?? "";
    await search.show(asked, options(), go);
    return;
  }
  try {
    await (page === "model" ? model : docs).show();
    announce(document.title);
  } catch (error) {
    byId("content").replaceChildren(h("section", { class: "state failed", role: "alert" }, h("h1", {}, "That did not work"), h("p", {}, error.message)));
  }
}

const options = () => ({ k: state.k, ...(state.among ? { among: [state.among] } : {}) });

/** Which modality to find things by, and how many; the choice is only there where there is one. */
function showOptions() {
  const choices = [null, ...state.modalities.map((each) => each.name)];
  const radios = choices.map((name) => h("label", {},
    h("input", { type: "radio", name: "among", value: name ?? "", checked: name === state.among, onchange: () => { state.among = name; route(); } }),
    h("span", {}, name ?? "anything")));
  const counts = h("select", { id: "k", onchange: () => { state.k = Number(counts.value); route(); } },
    [12, 24, 48, 96].map((n) => h("option", { value: n, selected: n === state.k }, String(n))));
  byId("options").replaceChildren(
    h("fieldset", { class: "choice" }, h("legend", {}, "Find by"), radios), h("label", { class: "choice", for: "k" }, "Results ", counts));
}

function usePicture(file) {
  if (!file) return;
  if (file.type && !file.type.startsWith("image/")) {
    byId("content").replaceChildren(h("section", { class: "state failed", role: "alert" }, h("h1", {}, "That did not work"), h("p", {}, `${file.name} is no picture.`)));
    return;
  }
  go({ picture: file });
}

function listen() {
  addEventListener("hashchange", route);
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    go({ words: byId("words").value.trim() });
  });
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => { usePicture(byId("file").files[0]); byId("file").value = ""; });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      event.preventDefault();
      byId("words").focus();
    }
  });
  addEventListener("paste", (event) => usePicture(event.clipboardData?.files[0]));
  listenForDrops();
}

function listenForDrops() {
  const drop = byId("drop");
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => { drop.hidden = !carries(event); });
  addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.hidden = true; });
  addEventListener("drop", (event) => {
    drop.hidden = true;
    if (!carries(event)) return;
    event.preventDefault();
    usePicture(event.dataTransfer.files[0]);
  });
}

/** What the collection takes decides what can be asked with. */
async function begin() {
  listen();
  try {
    const facts = await api.stats();
    state.modalities = facts.model.modalities;
    const takes = (kind) => state.modalities.filter((each) => each.takes === kind).map((each) => each.name);
    byId("choose").hidden = !takes("pictures").length;
    byId("words").disabled = !takes("words").length;
    if (byId("words").disabled) byId("words").placeholder = "This collection takes no words; begin with an item";
    state.among = takes("pictures")[0] ?? null;
    byId("place").textContent = `${count(facts.collection.items, "item")} · ${state.modalities.map((each) => each.name).join(", ")} · ${count(facts.model.n_bits, "bit")}`;
    attribute(facts.report.attribution);
    showOptions();
  } catch (error) {
    byId("place").textContent = error.message;
  }
  await route();
}

/** Whose pictures these are; only an ordinary address becomes a link. */
function attribute(source) {
  if (!source?.text) return;
  const link = /^https?:\/\//.test(source.url ?? "") ? h("a", { href: source.url, rel: "noreferrer" }, source.text) : source.text;
  byId("footer").replaceChildren(h("p", {}, link, source.license ? `, ${source.license}` : ""));
}

begin();
