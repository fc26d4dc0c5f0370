// The API page, /docs, made from the OpenAPI document: what each operation takes, and a form that sends it.

import * as api from "./api.js";
import { h } from "./dom.js";

const NAMED = "/api/collections/{collection}";

/** Title and elements of the page. */
export async function load() {
  const openapi = await api.description();
  const operations = Object.entries(openapi.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })));
  const view = [
    h("h1", {}, "API"),
    h("p", { class: "dim" }, openapi.info.description, " The complete OpenAPI document: ", h("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    h("section", { class: "panel" }, h("h2", {}, "Examples"), h("pre", { tabindex: "0" }, example())),
    ...operations.map((operation) => endpoint(operation, openapi)),
  ];
  return { title: "API - Crossbit", view };
}

const example = () =>
  `curl --json '{"text": "dog + beach", "k": 3}' ${location.origin}${api.root}/search\n`
  + `curl -F file=@image.jpg -F 'options={"k": 3}' ${location.origin}${api.root}/search`;

function endpoint({ path, method, description: text, parameters = [], requestBody }, openapi) {
  const schema = requestBody?.content?.["application/json"]?.schema;
  const fields = schema ? fieldsOf(schema, openapi) : [];
  const rows = [...parameters.map((parameter) => [parameter.name, parameter.description ?? parameter.schema?.description ?? ""]), ...fields];
  return h("section", { class: "panel" },
    h("h2", { class: "endpoint" }, h("span", { class: "method" }, method), " ", h("code", {}, path)),
    h("p", {}, text ?? ""),
    rows.length ? h("dl", { class: "numbers" }, rows.flatMap(([name, about]) => [h("dt", {}, h("code", {}, name)), h("dd", {}, about)])) : null,
    trial(path, method, parameters.filter((parameter) => parameter.in === "query"), schema));
}

/** A form that sends the operation, and shows the answer. */
function trial(path, method, parameters, schema) {
  const names = parameters.map(({ name, required }) => (required ? `${name}=` : "")).filter(Boolean);
  const address = h("input", { type: "text", spellcheck: false, size: 60, "aria-label": `Address of ${method} ${path}`,
    value: path.replace(NAMED, api.root) + (names.length ? `?${names.join("&")}` : "") });
  const body = schema ? h("textarea", { rows: 4, spellcheck: false, "aria-label": `Body of ${method} ${path}` },
    JSON.stringify(schema.examples?.[0] ?? {})) : null;
  const shown = h("pre", { tabindex: "0", hidden: true, "aria-label": `Answer of ${method} ${path}` });
  const submit = async (event) => {
    event.preventDefault();
    shown.hidden = false;
    shown.textContent = "…";
    try {
      const { status, text } = await api.send(method, address.value, body?.value);
      shown.textContent = `${status}\n${indented(text)}`;
    } catch (error) {
      shown.textContent = error.message;
    }
  };
  return h("details", { class: "trial" }, h("summary", {}, "Try it"),
    h("form", { onsubmit: submit }, address, body, h("button", { class: "quiet small", type: "submit" }, "Send")), shown);
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2).slice(0, 20000);
  } catch {
    return text.slice(0, 20000);
  }
}

function fieldsOf(schema, openapi) {
  const name = schema.$ref?.split("/").pop();
  const properties = (name ? openapi.components.schemas[name] : schema).properties ?? {};
  return Object.entries(properties).map(([field, property]) => [field, property.description ?? ""]);
}
