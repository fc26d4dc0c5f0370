// The client against a running service, whose address is in CROSSBIT_URL.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Crossbit, CrossbitError, type SearchRequest } from "../src/index.js";

const url = process.env["CROSSBIT_URL"];
assert.ok(url, "set CROSSBIT_URL; make js does it");
const service = new Crossbit(url, { token: process.env["CROSSBIT_TOKEN"] ?? "" });

test("text finds items", async () => {
  const request: SearchRequest = { text: "red + circle", k: 5, target: ["image"], codes: true };
  const { hits, query, n_bits } = await service.search(request);
  assert.equal(hits.length, 5);
  assert.deepEqual([...query.terms].sort(), ["circle", "red"]);
  assert.equal(hits[0]?.code?.length, n_bits);
  assert.ok(hits.every((hit, i) => i === 0 || hit.distance >= (hits[i - 1]?.distance ?? 0)));
});

test("a filter restricts the results", async () => {
  const { hits } = await service.search({ text: "red", k: 50, filter: { label: "bar" } });
  assert.ok(hits.length > 0 && hits.every((hit) => hit.payload["label"] === "bar"));
});

test("a file finds items", async () => {
  const { items } = await service.items({ limit: 1 });
  const picture = await service.thumbnail({ id: items[0]?.key ?? "", side: 64 });
  const { hits } = await service.searchUpload(picture, { k: 3, target: ["image"] });
  assert.equal(hits.length, 3);
  const { tags } = await service.annotateUpload(picture, { max_tags: 2 });
  assert.ok(tags.length > 0 && tags.length <= 2);
});

test("items are written and deleted", async () => {
  assert.equal((await service.upsert({ items: [{ id: "new", texts: { text: "red" }, payload: { a: 1 } }] })).changed, 1);
  assert.deepEqual((await service.items({ id: ["new"] })).items[0]?.payload, { a: 1 });
  assert.equal((await service.delete({ ids: ["new", "absent"] })).changed, 1);
});

test("a batch answers every query", async () => {
  const { results } = await service.searchBatch({ queries: [{ text: "red", k: 2 }, { id: "absent" }] });
  assert.ok(results[0] && "hits" in results[0] && results[0].hits.length === 2);
  assert.deepEqual(results[1], { error: "there is no item 'absent'" });
});

test("files are uploaded as items", async () => {
  const { items } = await service.items({ limit: 1 });
  const body = new FormData();
  body.append("image", await service.thumbnail({ id: items[0]?.key ?? "", side: 64 }), "uploaded");
  assert.equal((await service.upload(body)).changed, 1);
  assert.equal((await service.delete({ ids: ["uploaded"] })).changed, 1);
});

test("collections are chosen by name", async () => {
  const { collections } = await service.collections();
  assert.deepEqual(collections, [{ name: "collection", default: true }]);
  const settings = { token: process.env["CROSSBIT_TOKEN"] ?? "" };
  const named = new Crossbit(url, { ...settings, collection: "collection" });
  assert.equal((await named.items()).total, (await service.items()).total);
  assert.equal((await named.collections()).collections.length, 1);
  const lines = (await (await named.export()).text()).trim().split("\n");
  assert.equal(JSON.parse(lines.at(-1) ?? "").items, lines.length - 2);
  await assert.rejects(new Crossbit(url, { ...settings, collection: "../x" }).stats(), { status: 404 });
});

test("statistics, overview and health", async () => {
  const { items } = await service.health();
  assert.equal((await service.stats()).collection["items"], items);
  assert.ok((await service.readOverview()).words.includes("red"));
  assert.match(await service.prometheus(), /crossbit_items/);
});

test("errors have the message of the service and its status", async () => {
  const wrong = { query: "a dog" } as unknown as SearchRequest;
  await assert.rejects(service.search(wrong), (error: CrossbitError) => {
    assert.equal(error.status, 422);
    assert.match(error.message, /unknown field 'query'; known: .*text/);
    return true;
  });
  await assert.rejects(service.items({ id: ["absent"] }), { status: 404 });
  await assert.rejects(new Crossbit(url).stats(), { status: 401 });
  await assert.rejects(new Crossbit("http://127.0.0.1:9", { retries: 0 }).health(), { status: 0 });
});

test("a busy service is asked again", async () => {
  let requests = 0;
  const server = createServer((_, response) => {
    requests += 1;
    response.writeHead(requests < 3 ? 503 : 200, { "Content-Type": "application/json" });
    response.end(requests < 3 ? '{"error": "busy"}' : '{"status": "ok", "items": 1}');
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  assert.equal((await new Crossbit(address).health()).items, 1);
  assert.equal(requests, 3);
  server.close();
  server.closeAllConnections();
});

test("a request can be aborted", async () => {
  await assert.rejects(service.stats({ signal: AbortSignal.abort() }), { name: "AbortError" });
});
