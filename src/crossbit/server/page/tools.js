// What can be done with a query: copy it as code, compare it, and add its file to the collection.

import * as api from "./api.js";
import { announce, h } from "./dom.js";

/** Buttons of a query. */
export function tools(query, options, answer, { go, writable, acceptsText }) {
  const shown = h("pre", { class: "code-text", hidden: true, tabindex: "0", "aria-label": "The query as code" });
  const copy = (name, make) => h("button", { class: "link", onclick: () => show(shown, name, make()) }, name);
  const isComparable = query.text !== undefined || (query.key !== undefined && acceptsText);
  return h("div", { class: "tools" },
    h("span", {}, "Copy as ", copy("curl", () => curl(query, options)), " or ", copy("Python", () => python(query, options, answer))),
    isComparable ? comparison(query, go) : null,
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
  const input = h("input", { type: "text", "aria-label": "Text to compare with",
    placeholder: query.text === undefined ? "a text" : "another text",
    autocomplete: "off", size: 12 });
  return h("form", { class: "compare-with", onsubmit: (event) => {
    event.preventDefault();
    if (input.value.trim()) go({ compare: [query, { text: input.value.trim() }] });
  } },
  h("label", {}, h("span", {}, "Compare with "), input),
  h("button", { class: "quiet small", type: "submit" }, "Compare"));
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
  const body = query.file
    ? `-F ${quoted(`file=@${query.file.name}`)} -F ${quoted(`options=${api.uploadOptions(query, options)}`)}`
    : `-H 'Content-Type: application/json' -d ${quoted(api.queryBody(query, options))}`;
  return `curl${token} ${body} ${quoted(`${location.origin}${api.root}/search`)}`;
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
  const settings = Object.entries(options).map(([name, value]) => `, ${name}=${literal(value)}`);
  const place = api.chosen === null ? "" : `, collection=${JSON.stringify(api.chosen)}`;
  const lines = ["from crossbit.client import connect", "",
    `collection = connect(${JSON.stringify(location.origin)}${place}${token})`];
  if (query.key !== undefined) {
    lines.push(`(item,) = collection.get([${query.key}])`);
    settings.push(", exclude=item.id"); // as the service does
  }
  const inputs = query.key !== undefined ? `item.codes[${modality}]`
    : literal([query.features ?? query.file?.name ?? query.text]);
  lines.push(`for hit in collection.search(${modality}, ${inputs}${settings.join("")})[0]:`,
    "    print(hit.id, hit.distance, hit.payload)");
  return lines.join("\n");
}
