// Client of the HTTP API. Every failure becomes an Error with the message of the service.

import { byId } from "./dom.js";

const TOKEN = "crossbit-token";

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

export const stats = () => json("/api/stats");
export const description = () => json("/openapi.json");
export const items = (limit) => json(`/api/items?limit=${limit}`);
export const item = async (key, signal) =>
  (await json(`/api/items?id=${encodeURIComponent(key)}`, { signal })).items[0];

/** Search with {text}, {file, modality} or {key}; options are k and target. */
export function search(query, options, signal) {
  if (query.file) return upload("/api/search/picture", query, { ...options, codes: true }, signal);
  return post("/api/search", queryBody(query, { ...options, codes: true }), signal);
}

/** Suggest tags for {file, modality} or {key}. */
export function annotate(query, signal) {
  if (query.file) return upload("/api/annotate/picture", query, {}, signal);
  return post("/api/annotate", queryBody(query, {}), signal);
}

// A key is JSON already. It is inserted verbatim, because a 64-bit integer may not fit a JavaScript number.
function queryBody(query, options) {
  const body = JSON.stringify(query.text === undefined ? options : { ...options, text: query.text });
  if (query.key === undefined) return body;
  return `{"id":${query.key}${body === "{}" ? "" : ","}${body.slice(1)}`;
}

function upload(path, { file, modality }, options, signal) {
  const parameters = new URLSearchParams(modality ? { modality } : {});
  for (const [name, value] of Object.entries(options)) {
    for (const element of [value].flat()) parameters.append(name, element);
  }
  return json(`${path}?${parameters}`, { method: "POST", body: file, signal });
}

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
