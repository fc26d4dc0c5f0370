// The page about the API, made from its own description.

import * as api from "./api.js";
import { byId, h } from "./dom.js";

export async function show() {
  const description = await api.description();
  document.title = "API - Crossbit";
  const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })));
  byId("content").replaceChildren(
    h("h1", {}, "API"),
    h("p", { class: "dim" }, description.info.description, " The whole description, for programs: ", h("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    h("section", { class: "panel" }, h("h2", {}, "For example"), h("pre", {}, example())),
    ...operations.map((operation) => endpoint(operation, description)));
}

const example = () =>
  `curl -H 'Content-Type: application/json' -d '{"text": "dog + beach", "k": 3}' ${location.origin}/api/search\n`
  + `curl --data-binary @picture.jpg ${location.origin}/api/search/picture?k=3`;

function endpoint({ path, method, description: told, parameters = [], requestBody }, whole) {
  const schema = requestBody?.content?.["application/json"]?.schema;
  const fields = schema ? fieldsOf(schema, whole) : [];
  const rows = [...parameters.map((each) => [each.name, each.description ?? each.schema?.description ?? ""]), ...fields];
  return h("section", { class: "panel" },
    h("h2", { class: "endpoint" }, h("span", { class: "method" }, method), h("code", {}, path)),
    h("p", {}, told ?? ""),
    rows.length ? h("dl", { class: "numbers" }, rows.flatMap(([name, text]) => [h("dt", {}, h("code", {}, name)), h("dd", {}, text)])) : null);
}

function fieldsOf(schema, whole) {
  const name = schema.$ref?.split("/").pop();
  const properties = (name ? whole.components.schemas[name] : schema).properties ?? {};
  return Object.entries(properties).map(([field, each]) => [field, each.description ?? ""]);
}
