// Client of a Crossbit service: openapi-fetch with the types of its OpenAPI document.

import createClient, { defaultPathSerializer, type Client } from "openapi-fetch";

import { CrossbitError, linesOf, lost, retryingFetch, type Settings } from "./fetch.js";
import type { components, paths } from "./schema.js";

export { CrossbitError, type Settings };
export type { components, paths };

type JsonBody<Path extends keyof paths, Method extends "post" | "patch" | "delete"> =
  paths[Path] extends { [method in Method]: { requestBody: { content: { "application/json": infer Body } } } } ? Body : never;

export type Schemas = components["schemas"];
export type SearchRequest = JsonBody<"/api/collections/{collection}/search", "post">;
export type AnnotateRequest = JsonBody<"/api/collections/{collection}/annotate", "post">;
export type UpsertRequest = JsonBody<"/api/collections/{collection}/items", "post">;
export type UpdateRequest = JsonBody<"/api/collections/{collection}/items", "patch">;
export type DeleteRequest = JsonBody<"/api/collections/{collection}/items", "delete">;
export type Id = number | string;

/** Search options without a query, for files. */
export type UploadOptions = Omit<SearchRequest, "text" | "tags" | "features" | "code" | "file" | "id" | "queries">;

const ROOT = "/api/collections/{collection}";
const LAST_LINE = '{"items":'; // of a complete export
const ERROR_LINE = '{"error":';

/** The operations on one collection of a service; `api` has all operations with their types. */
export class Crossbit {
  /** openapi-fetch: `api.GET("/api/collections")`, with types of paths, parameters and answers. */
  readonly api: Client<paths>;
  private readonly params: { path: { collection: string } };

  constructor(url: string, private readonly settings: Settings = {}) {
    this.params = { path: { collection: settings.collection ?? "" } };
    this.api = createClient<paths>({
      baseUrl: url.replace(/\/+$/, ""),
      fetch: retryingFetch(settings),
      // Without a name, the path is that of the default collection.
      pathSerializer: (path, values) =>
        defaultPathSerializer(values["collection"] === "" ? path.replace("/collections/{collection}", "") : path, values),
    });
  }

  /** Search with one query. */
  async search(body: SearchRequest, signal?: AbortSignal): Promise<Schemas["SearchResponse"]> {
    return (await this.searchAny(body, signal)) as Schemas["SearchResponse"];
  }

  /** Search with several queries that share all options. */
  async searchAll(body: SearchRequest, signal?: AbortSignal): Promise<Schemas["SearchResponse"][]> {
    return ((await this.searchAny(body, signal)) as Schemas["SearchesResponse"]).results;
  }

  /** Search with a file. */
  async searchFile(file: Blob, options: UploadOptions = {}, signal?: AbortSignal): Promise<Schemas["SearchResponse"]> {
    return (await this.searchAny(form(file, options) as never, signal)) as Schemas["SearchResponse"];
  }

  private async searchAny(body: SearchRequest, signal?: AbortSignal) {
    return data(await this.api.POST(`${ROOT}/search`, { params: this.params, body, signal }));
  }

  /** Suggest tags for one query. */
  async annotate(body: AnnotateRequest, signal?: AbortSignal): Promise<Schemas["AnnotateResponse"]> {
    return data(await this.api.POST(`${ROOT}/annotate`, { params: this.params, body, signal })) as Schemas["AnnotateResponse"];
  }

  /** Items in order of arrival. */
  async items(query: { skip?: number; limit?: number } = {}, signal?: AbortSignal): Promise<Schemas["ItemsResponse"]> {
    return data(await this.api.GET(`${ROOT}/items`, { params: { ...this.params, query }, signal }));
  }

  /** Items by their ids; null for an unknown one. */
  async get(ids: Id[], signal?: AbortSignal): Promise<(Schemas["Item"] | null)[]> {
    return data(await this.api.POST(`${ROOT}/items/get`, { params: this.params, body: { ids }, signal })).items;
  }

  /** A thumbnail of an item's image; `key` is its id in JSON. */
  async thumbnail(key: string, side = 256, signal?: AbortSignal): Promise<Blob> {
    const query = { id: key, side };
    return data(await this.api.GET(`${ROOT}/pictures`, { params: { ...this.params, query }, parseAs: "blob", signal }));
  }

  /** Add items, or update existing ones. */
  async upsert(body: UpsertRequest | FormData, signal?: AbortSignal): Promise<Schemas["ChangeResponse"]> {
    return data(await this.api.POST(`${ROOT}/items`, { params: this.params, body: body as UpsertRequest, signal }));
  }

  /** Change the payloads of existing items. */
  async update(body: UpdateRequest, signal?: AbortSignal): Promise<Schemas["ChangeResponse"]> {
    return data(await this.api.PATCH(`${ROOT}/items`, { params: this.params, body, signal }));
  }

  /** Delete items by ids or by a filter. */
  async delete(body: DeleteRequest, signal?: AbortSignal): Promise<Schemas["ChangeResponse"]> {
    return data(await this.api.DELETE(`${ROOT}/items`, { params: this.params, body, signal }));
  }

  /** Statistics of the collection, and its model. */
  async stats(signal?: AbortSignal): Promise<Schemas["StatsResponse"]> {
    return data(await this.api.GET(`${ROOT}/stats`, { params: this.params, signal }));
  }

  /** All items as JSON lines, as they arrive; throws if they are not complete. */
  async *export(signal?: AbortSignal): AsyncGenerator<string> {
    const { response } = await this.api.GET(`${ROOT}/export`, { params: this.params, parseAs: "stream", signal });
    let last = "";
    try {
      for await (const line of linesOf(response, this.settings)) {
        if (line.startsWith(ERROR_LINE)) throw new CrossbitError((JSON.parse(line) as { error: string }).error, 0);
        yield line;
        last = line;
      }
    } catch (error) {
      if (signal?.aborted || error instanceof CrossbitError) throw error;
      throw lost(response.url, error);
    }
    if (!last.startsWith(LAST_LINE)) throw lost(response.url, "the connection broke before all items had arrived");
  }
}

function form(file: Blob, options: object): FormData {
  const body = new FormData();
  body.append("file", file);
  body.append("options", JSON.stringify(options));
  return body;
}

/** The answer of a request; one without success has thrown an error. */
function data<T>({ data }: { data?: T }): T {
  return data as T;
}
