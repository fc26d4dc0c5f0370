// The API page, generated from the OpenAPI description.

import * as api from "./api.js";
import { h } from "./dom.js";

/** Title and elements of the page. */
export async function load() {
  const description = await api.description();
  const paths = Object.entries(description.paths).filter(([path]) => !path.startsWith("/api/collections/{collection}/"));
  const operations = paths.flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })));
  const view = [
    h("h1", {}, "API"),
    h("p", { class: "dim" }, description.info.description, " The complete OpenAPI description: ", h("a", { href: "/openapi.json" }, "/openapi.json"),
      ". Every path below /api also exists below /api/collections/NAME, for the collection of that name."),
    h("section", { class: "panel" }, h("h2", {}, "Examples"), h("pre", { tabindex: "0" }, example())),
    ...operations.map((operation) => endpoint(operation, description)),
  ];
  return { title: "API - Crossbit", view };
}

const example = () =>
  `curl -H 'Content-Type: application/json' -d '{"text": "dog + beach", "k": 3}' ${location.origin}${api.root}/search\n`
  + `curl -H 'Content-Type: image/jpeg' --data-binary @image.jpg ${location.origin}${api.root}/search/picture?k=3`;

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
