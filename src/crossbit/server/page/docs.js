// The API page, generated from the OpenAPI description.

import * as api from "./api.js";
import { byId, h } from "./dom.js";

export async function show() {
  const description = await api.description();
  document.title = "API - Crossbit";
  const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })));
  byId("content").replaceChildren(
    h("h1", {}, "API"),
    h("p", { class: "dim" }, description.info.description, " The complete OpenAPI description: ", h("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    h("section", { class: "panel" }, h("h2", {}, "Examples"), h("pre", {}, example())),
    ...operations.map((operation) => endpoint(operation, description)));
}

const example = () =>
  `curl -H 'Content-Type: application/json' -d '{"text": "dog + beach", "k": 3}' ${location.origin}/api/search\n`
  + `curl --data-binary @image.jpg ${location.origin}/api/search/picture?k=3`;

function endpoint({ path, method, description: text, parameters = [], requestBody }, openapi) {
  const schema = requestBody?.content?.["application/json"]?.schema;
  const fields = schema ? fieldsOf(schema, openapi) : [];
  const rows = [...parameters.map((parameter) => [parameter.name, parameter.description ?? parameter.schema?.description ?? ""]), ...fields];
  return h("section", { class: "panel" },
    h("h2", { class: "endpoint" }, h("span", { class: "method" }, method), h("code", {}, path)),
    h("p", {}, text ?? ""),
    rows.length ? h("dl", { class: "numbers" }, rows.flatMap(([name, about]) => [h("dt", {}, h("code", {}, name)), h("dd", {}, about)])) : null);
}

function fieldsOf(schema, openapi) {
  const name = schema.$ref?.split("/").pop();
  const properties = (name ? openapi.components.schemas[name] : schema).properties ?? {};
  return Object.entries(properties).map(([field, property]) => [field, property.description ?? ""]);
}
