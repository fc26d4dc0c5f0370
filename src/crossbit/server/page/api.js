// Client of the HTTP API. Every failure becomes an Error with the message of the service.

import { bitsOf } from "./bits.js";
import { byId } from "./dom.js";

const TOKEN = "crossbit-token";

/** Name of the collection in the address of the page, null for the default one. */
export const chosen = new URLSearchParams(location.search).get("collection");

/** Path of the routes of the collection. */
export const root = chosen === null ? "/api" : `/api/collections/${encodeURIComponent(chosen)}`;

/** Ask for the token once, for all requests that wait for it. */
let tokenDialog = null;
function askForToken() {
  tokenDialog ??= new Promise((resolve) => {
    const dialog = byId("token");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(TOKEN, byId("token-value").value);
      byId("token-value").value = "";
      tokenDialog = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return tokenDialog;
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not respond. Is it still running?");
  }
  if (response.status === 401) {
    await askForToken();
    return request(path, options);
  }
  if (!response.ok) throw new Error(await errorMessage(response));
  return response;
}

async function errorMessage(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The service responded with status ${response.status}.`;
  }
}

const json = async (path, options) => (await request(path, options)).json();

const post = (path, body, signal) =>
  json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });

export const stats = () => json(`${root}/stats`);
let overviewAnswer = null;
/** Facets, words and names of bits; loaded once. */
export const overview = () => (overviewAnswer ??= json(`${root}/overview`).catch((error) => { overviewAnswer = null; throw error; }));
export const collections = async () => (await json("/api/collections")).collections;
export const description = () => json("/openapi.json");
export const items = (limit) => json(`${root}/items?limit=${limit}`);
export const item = (key, signal) => json(`${root}/items/${encodeURIComponent(key)}`, { signal });

/** Search with {text}, {file, modality}, {key} or {features, modality}; codes become strings of bits. */
export async function search(query, options, signal) {
  const answer = await ask("search", query, { ...options, with_codes: true }, signal);
  const expanded = ({ code, ...rest }) => ({ ...rest, code: code && bitsOf(code, answer.n_bits) });
  return { ...answer, query: expanded(answer.query), hits: answer.hits.map(expanded) };
}

/** Suggest tags for {file, modality} or {key}. */
export const annotate = (query, signal) => ask("annotate", query, {}, signal);

function ask(action, query, options, signal) {
  if (!query.file) return post(`${root}/${action}`, queryBody(query, options), signal);
  const body = new FormData();
  body.append("file", query.file);
  body.append("options", uploadOptions(query, options));
  return json(`${root}/${action}`, { method: "POST", body, signal });
}

/** Options of a query with a file: {file, modality}. */
export const uploadOptions = ({ modality }, options) =>
  JSON.stringify({ ...(modality ? { modality } : {}), ...options });

/** Body of a query. A key is JSON already: it is inserted verbatim, because a 64-bit integer may not fit a number. */
export function queryBody(query, options) {
  const { text, features, modality } = query;
  const body = JSON.stringify({ ...options, ...(text === undefined ? {} : { text }), ...(features ? { features, modality } : {}) });
  if (query.key === undefined) return body;
  return `{"id":${query.key}${body === "{}" ? "" : ","}${body.slice(1)}`;
}

/** Add a file to the collection, under its name. */
export async function add(file, modality) {
  const body = new FormData();
  body.append("request", JSON.stringify({ items: [{ id: file.name, payload: { name: file.name } }] }));
  body.append(modality, file, JSON.stringify(file.name)); // an id in JSON: also "7" is a string
  return json(`${root}/items`, { method: "POST", body });
}

/** Send any request of the API page; the answer is text, whatever its status. */
export async function send(method, path, body) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(body ? { "Content-Type": "application/json" } : {}) };
  const response = await fetch(path, { method, headers, body });
  return { status: response.status, text: await response.text() };
}

/** Contents of a file of the service. */
export const fetchFile = async (url) => (await request(url)).arrayBuffer();

/** Whether requests need a token, which elements cannot send by themselves. */
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

/** Load an image of the service into an element; an <img> alone cannot send the token. */
export async function showImage(element, url) {
  if (!sessionStorage.getItem(TOKEN)) {
    element.src = url;
    return;
  }
  try {
    element.src = URL.createObjectURL(await (await request(url)).blob());
    element.addEventListener("load", () => URL.revokeObjectURL(element.src), { once: true });
  } catch {
    element.dispatchEvent(new Event("error"));
  }
}
