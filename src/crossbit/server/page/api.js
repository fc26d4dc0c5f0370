// Talking to the service. Every failure becomes an Error whose message is the sentence that the service said.

import { byId } from "./dom.js";

const TOKEN = "crossbit-token";

/** Ask the person for the token that the service needs, once for all requests that wait. */
let asking = null;
function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = byId("token");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(TOKEN, byId("token-value").value);
      byId("token-value").value = "";
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not answer. Is it still running?");
  }
  if (response.status === 401) {
    await askForToken();
    return request(path, options);
  }
  if (!response.ok) throw new Error(await sentence(response));
  return response;
}

async function sentence(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The service answered ${response.status}.`;
  }
}

const json = async (path, options) => (await request(path, options)).json();

const post = (path, body, signal) =>
  json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });

export const stats = () => json("/api/stats");
export const description = () => json("/openapi.json");
export const items = (limit) => json(`/api/items?limit=${limit}`);
export const item = async (key, signal) => (await json(`/api/items?id=${encodeURIComponent(key)}`, { signal })).items[0];

/** Search with {words}, {picture} or {key}; options are k, among and modality. */
export function search(query, options, signal) {
  if (query.picture) return sendPicture("/api/search/picture", query.picture, { ...options, codes: true }, signal);
  return post("/api/search", spelled(query, { ...options, codes: true }), signal);
}

/** Suggest tags for {picture} or {key}. */
export function annotate(query, signal) {
  if (query.picture) return sendPicture("/api/annotate/picture", query.picture, {}, signal);
  return post("/api/annotate", spelled(query, {}), signal);
}

// A key is JSON already. It is put into the body as it is: as a number it might not fit into one of JavaScript's.
function spelled(query, options) {
  const body = JSON.stringify(query.words === undefined ? options : { ...options, text: query.words });
  if (query.key === undefined) return body;
  return `{"id":${query.key}${body === "{}" ? "" : ","}${body.slice(1)}`;
}

function sendPicture(path, picture, options, signal) {
  const values = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) for (const each of [value].flat()) values.append(name, each);
  return json(`${path}?${values}`, { method: "POST", body: picture, signal });
}

/** Show a picture of the service in an element; with a token, an address alone would not do. */
export async function showPicture(image, address) {
  if (!sessionStorage.getItem(TOKEN)) {
    image.src = address;
    return;
  }
  try {
    image.src = URL.createObjectURL(await (await request(address)).blob());
    image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  } catch {
    image.dispatchEvent(new Event("error"));
  }
}
