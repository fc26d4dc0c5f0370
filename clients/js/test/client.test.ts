// The client against a running service, whose address is in CROSSBIT_URL.

import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Crossbit, CrossbitError, type SearchRequest } from "../src/index.js";

const url = process.env["CROSSBIT_URL"];
assert.ok(url, "set CROSSBIT_URL; make js does it");
const service = new Crossbit(url, { token: process.env["CROSSBIT_TOKEN"] ?? "" });

test("text finds items", async () => {
  const request: SearchRequest = { text: "red + circle", k: 5, target: ["image"], with_codes: true };
  const { hits, query, n_bits } = await service.search(request);
  assert.equal(hits.length, 5);
  assert.deepEqual([...query.terms].sort(), ["circle", "red"]);
  assert.equal(hits[0]?.code?.length, n_bits / 4);
  assert.ok(hits.every((hit, i) => i === 0 || hit.distance >= (hits[i - 1]?.distance ?? 0)));
});

test("a filter restricts the results", async () => {
  const { hits } = await service.search({ text: "red", k: 50, filter: { label: "bar" } });
  assert.ok(hits.length > 0 && hits.every((hit) => hit.payload["label"] === "bar"));
});

test("a file finds items", async () => {
  const { items } = await service.items({ limit: 1 });
  const picture = await service.thumbnail(items[0]?.key ?? "", 64);
  const { hits } = await service.searchFile(picture, { k: 3, target: ["image"] });
  assert.equal(hits.length, 3);
  const { tags } = await service.annotate({ id: items[0]?.id ?? "", max_tags: 2 });
  assert.ok(tags.length > 0 && tags.length <= 2);
});

test("items are written and deleted", async () => {
  assert.equal((await service.upsert({ items: [{ id: "new", texts: { text: "red" }, payload: { a: 1 } }] })).changed, 1);
  assert.equal((await service.update({ items: [{ id: "new", payload: { b: 2 } }] })).changed, 1);
  const [found, absent] = await service.get(["new", "absent"]);
  assert.deepEqual(found?.payload, { a: 1, b: 2 });
  assert.equal(absent, null);
  assert.equal((await service.delete({ filter: { b: 2 } })).changed, 1);
  assert.equal((await service.delete({ ids: ["new", "absent"] })).changed, 0);
});

test("several queries share their options", async () => {
  const results = await service.searchAll({ queries: [{ text: "red" }, { id: 7 }], k: 2 });
  assert.deepEqual(results.map(({ hits }) => hits.length), [2, 2]);
  await assert.rejects(service.searchAll({ queries: [{ id: "absent" }] }), { status: 404 });
});

test("files are uploaded as items", async () => {
  const { items } = await service.items({ limit: 1 });
  const body = new FormData();
  body.append("image", await service.thumbnail(items[0]?.key ?? "", 64), "uploaded");
  assert.equal((await service.upsert(body)).changed, 1);
  assert.equal((await service.delete({ ids: ["uploaded"] })).changed, 1);
});

test("collections are chosen by name", async () => {
  const { data } = await service.api.GET("/api/collections");
  assert.deepEqual(data?.collections, [{ name: "collection", default: true }]);
  const settings = { token: process.env["CROSSBIT_TOKEN"] ?? "" };
  const named = new Crossbit(url, { ...settings, collection: "collection" });
  assert.equal((await named.items()).total, (await service.items()).total);
  await assert.rejects(new Crossbit(url, { ...settings, collection: "../x" }).stats(), { status: 404 });
});

test("statistics, and operations without a method", async () => {
  assert.equal((await service.stats()).collection["items"], (await service.items()).total);
  assert.deepEqual((await service.api.GET("/healthz")).data, { status: "ok" });
  const params = { path: { collection: "collection" } };
  const { data } = await service.api.GET("/api/collections/{collection}/overview", { params });
  assert.ok(data?.words.includes("red"));
});

test("errors have the message of the service and its status", async () => {
  const wrong = { query: "a dog" } as unknown as SearchRequest;
  await assert.rejects(service.search(wrong), (error: CrossbitError) => {
    assert.equal(error.status, 422);
    assert.match(error.message, /unknown field 'query'; known: .*text/);
    return true;
  });
  const absent = { params: { path: { collection: "collection", key: "absent" } } };
  await assert.rejects(service.api.GET("/api/collections/{collection}/items/{key}", absent), { status: 404 });
  await assert.rejects(new Crossbit(url).stats(), { status: 401 });
  await assert.rejects(new Crossbit("http://127.0.0.1:9", { retries: 0 }).stats(), { status: 0 });
});

test("an export is a stream of lines", async () => {
  const lines: string[] = [];
  for await (const line of service.export()) lines.push(line);
  assert.match(lines[0] ?? "", /"format": "crossbit.export/);
  assert.equal(JSON.parse(lines.at(-1) ?? "").items, lines.length - 2);
  for await (const line of service.export()) {
    assert.equal(line, lines[0]);
    break;
  }
  await assert.rejects(service.export(AbortSignal.abort()).next(), { name: "AbortError" });
});

/** Run a service that answers as given, and return the number of requests that it got. */
async function withService(answer: RequestListener, use: (url: string) => Promise<void>, port = 0): Promise<number> {
  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    answer(request, response);
  }).listen(port, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.close();
    server.closeAllConnections();
  }
  return requests;
}

/** Fail as given, a number of times, and answer then. */
function failing(times: number, status: number | "lost" | "cut"): RequestListener {
  let left = times;
  return (_, response) => {
    const fails = left-- > 0;
    if (fails && status === "lost") return response.destroy();
    response.writeHead(fails && status !== "cut" ? Number(status) : 200, { "Content-Length": 30 });
    if (fails && status === "cut") return response.write('{"changed"', () => response.destroy());
    response.end('{"changed": 1, "hits":[1]}'.padEnd(30));
  };
}

const LOST = { name: "CrossbitError", status: 0 };

for (const status of [503, "lost", "cut"] as const) {
  test(`a search is repeated: ${status}`, async () => {
    const requests = await withService(failing(2, status), async (address) => {
      assert.equal((await new Crossbit(address).search({ text: "red" })).hits.length, 1);
    });
    assert.equal(requests, 3);
  });

  test(`retries end: ${status}`, async () => {
    const requests = await withService(failing(9, status), async (address) => {
      const wanted = status === 503 ? { status } : LOST;
      await assert.rejects(new Crossbit(address, { retries: 1 }).stats(), wanted);
    });
    assert.equal(requests, 2);
  });
}

test("a write is repeated if the service asks for it", async () => {
  const requests = await withService(failing(1, 503), async (address) => {
    assert.equal((await new Crossbit(address).delete({ ids: ["a"] })).changed, 1);
  });
  assert.equal(requests, 2);
});

test("a write whose answer was lost is not repeated", async () => {
  for (const status of ["lost", "cut"] as const) {
    const requests = await withService(failing(1, status), async (address) => {
      await assert.rejects(new Crossbit(address).delete({ ids: ["a"] }), LOST);
    });
    assert.equal(requests, 1);
  }
});

test("a write that was not sent is repeated", async () => {
  let address = "";
  await withService(failing(0, 503), async (url) => void (address = url));
  const change = new Crossbit(address, { retries: 6 }).delete({ ids: ["a"] });
  await new Promise((resolve) => setTimeout(resolve, 50)); // the first attempt is refused
  const requests = await withService(failing(0, 503), async () => {
    assert.equal((await change).changed, 1);
  }, Number(new URL(address).port));
  assert.equal(requests, 1);
});

test("an export that is not complete is an error", async () => {
  const first = '{"format": "crossbit.export/2"}\n';
  const answers: [RequestListener, RegExp][] = [
    [(_, response) => response.end(first), /broke before all items had arrived/],
    [(_, response) => response.end(`${first}{"error":"the scan took too long"}\n`), /^the scan took too long$/],
    [(_, response) => response.write(first, () => response.destroy()), /did not answer/],
    [(_, response) => response.write(first), /nothing arrived for 500 ms/],
  ];
  for (const [answer, message] of answers) {
    await withService(answer, async (address) => {
      const lines = new Crossbit(address, { timeout: 500, retries: 0 }).export();
      await assert.rejects(async () => { for await (const _ of lines); }, { ...LOST, message });
    });
  }
});

test("a slow reader of an export is waited for", async () => {
  const answer: RequestListener = (_, response) => {
    response.write('{"format": "crossbit.export/2"}\n');
    setTimeout(() => response.end('{"items": 0}\n'), 150);
  };
  await withService(answer, async (address) => {
    let count = 0;
    for await (const _ of new Crossbit(address, { timeout: 600 }).export()) {
      count += 1;
      await new Promise((resolve) => setTimeout(resolve, 800));
    }
    assert.equal(count, 2);
  });
});

test("a request can be aborted", async () => {
  await assert.rejects(service.stats(AbortSignal.abort()), { name: "AbortError" });
});
