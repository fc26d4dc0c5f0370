// What can be done with a query: copy it as code, compare it, and add its file to the collection.

import * as api from "./api.js";
import { announce, h } from "./dom.js";

/** Buttons of a query. */
export function tools(query, options, answer, { go, writable }) {
  const shown = h("pre", { class: "code-text", hidden: true, tabindex: "0", "aria-label": "The query as code" });
  const copy = (name, make) => h("button", { class: "link", onclick: () => show(shown, name, make()) }, name);
  return h("div", { class: "tools" },
    h("span", {}, "Copy as ", copy("curl", () => curl(query, options)), " or ", copy("Python", () => python(query, options, answer))),
    query.text === undefined ? null : comparison(query, go),
    query.file && writable ? addition(query, answer) : null,
    shown);
}

async function show(place, name, code) {
  place.textContent = code;
  place.hidden = false;
  try {
    await navigator.clipboard.writeText(code);
    announce(`Copied as ${name}`);
  } catch {
    announce(`The query as ${name}`); // without permission it can still be selected
  }
}

function comparison(query, go) {
  const input = h("input", { type: "text", "aria-label": "Text to compare with", placeholder: "another text", autocomplete: "off", size: 12 });
  return h("form", { class: "compare-with", onsubmit: (event) => {
    event.preventDefault();
    if (input.value.trim()) go({ compare: [query.text, input.value.trim()] });
  } }, h("label", {}, "Compare with ", input), h("button", { class: "quiet small", type: "submit" }, "Compare"));
}

function addition(query, answer) {
  const button = h("button", { class: "quiet small", onclick: async () => {
    button.disabled = true;
    try {
      await api.add(query.file, answer.query.modality);
      button.textContent = `Added as ${query.file.name}`;
      announce(button.textContent);
    } catch (error) {
      button.disabled = false;
      button.textContent = error.message;
      announce(error.message);
    }
  } }, "Add to the collection");
  return button;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The query as a command. */
export function curl(query, options) {
  const token = api.hasToken() ? ' -H "Authorization: Bearer $CROSSBIT_TOKEN"' : "";
  if (query.file) {
    const parameters = new URLSearchParams({ k: options.k });
    for (const name of options.target ?? []) parameters.append("target", name);
    if (options.filter) parameters.set("filter", JSON.stringify(options.filter));
    return `curl${token} -H ${quoted(`Content-Type: ${query.file.type || "application/octet-stream"}`)}`
      + ` --data-binary @${quoted(query.file.name)} ${quoted(`${location.origin}${api.root}/search/picture?${parameters}`)}`;
  }
  return `curl${token} -H 'Content-Type: application/json' -d ${quoted(api.queryBody(query, options))} ${location.origin}${api.root}/search`;
}

/** A JSON value as Python. */
function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** The query as a script for the client library. */
export function python(query, options, answer) {
  const token = api.hasToken() ? ', token="…"' : "";
  const modality = JSON.stringify(answer.query.modality);
  const settings = Object.entries(options).map(([name, value]) => `, ${name}=${literal(value)}`).join("");
  const lines = ["from crossbit.client import connect", "", `collection = connect(${JSON.stringify(location.origin)}${api.chosen === null ? "" : `, collection=${JSON.stringify(api.chosen)}`}${token})`];
  if (query.key !== undefined) lines.push(`(item,) = collection.get([${query.key}])`);
  const inputs = query.key !== undefined ? `item.codes[${modality}]` : query.features ? literal([query.features])
    : literal([query.file ? query.file.name : query.text]);
  lines.push(`for hit in collection.search(${modality}, ${inputs}${settings})[0]:`, "    print(hit.id, hit.distance, hit.payload)");
  return lines.join("\n");
}
