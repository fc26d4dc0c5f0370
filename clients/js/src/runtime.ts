// How requests are sent: token, timeout, retries, errors.

/** The contents of a file. */
export type Body = Blob | ArrayBuffer | Uint8Array<ArrayBuffer>;

export interface Settings {
  /** Name of a collection of the service; its default one if left out. */
  collection?: string;
  /** Token of a service that needs one. */
  token?: string;
  /** Milliseconds that one attempt may take; 30,000 by default. */
  timeout?: number;
  /** Number of further attempts after 429, 502, 503 and 504; 3 by default. */
  retries?: number;
}

export interface CallOptions {
  /** Aborts the request. */
  signal?: AbortSignal;
  /** Media type of a file; that of a Blob, or application/octet-stream, by default. */
  type?: string;
}

interface Request {
  method: string;
  path: string;
  answer: "json" | "text" | "blob";
  body?: unknown;
  query?: object;
}

/** An error that the service reported; status 0 if it did not answer. */
export class CrossbitError extends Error {
  constructor(message: string, readonly status: number) {
    super(message);
    this.name = "CrossbitError";
  }
}

const BUSY = [429, 502, 503, 504];
const isFile = (body: unknown): body is Body =>
  body instanceof Blob || body instanceof ArrayBuffer || body instanceof Uint8Array;
const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Sends requests to one service. */
export class Transport {
  private readonly url: string;

  constructor(url: string, private readonly settings: Settings = {}) {
    this.url = url.replace(/\/+$/, "");
  }

  protected async call<T>(request: Request, options: CallOptions): Promise<T> {
    const { timeout = 30_000, retries = 3 } = this.settings;
    for (let attempt = 0; ; attempt++) {
      const limit = AbortSignal.timeout(timeout);
      const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
      let response: Response | null = null;
      try {
        response = await fetch(this.address(request), { ...this.init(request, options), signal });
      } catch (error) {
        if (options.signal?.aborted) throw error;
        // A write whose answer was lost may have been performed: it is not repeated.
        if (attempt >= retries || request.method !== "GET") {
          throw new CrossbitError(`${this.url}: the service did not answer (${String(error)})`, 0);
        }
      }
      if (response?.ok) return (await response[request.answer]()) as T;
      if (response && (attempt >= retries || !BUSY.includes(response.status))) {
        throw new CrossbitError(await message(response), response.status);
      }
      const asked = 1000 * Number(response?.headers.get("retry-after") ?? 0);
      await sleep(Math.min(10_000, Math.max(asked, 200 * 2 ** attempt * (0.5 + Math.random() / 2))));
    }
  }

  private address({ path, query = {} }: Request): string {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const each of Array.isArray(value) ? value : [value]) {
        if (each !== undefined && each !== null) parameters.append(name, String(each));
      }
    }
    const { collection } = this.settings;
    const named = collection === undefined ? path
      : path.replace(/^\/api\/(?!collections(\/|$))/, `/api/collections/${encodeURIComponent(collection)}/`);
    return `${this.url}${named}${parameters.size ? `?${parameters}` : ""}`;
  }

  private init({ method, body }: Request, { type }: CallOptions): RequestInit {
    const headers: Record<string, string> = {};
    if (this.settings.token !== undefined) headers["Authorization"] = `Bearer ${this.settings.token}`;
    if (body === undefined) return { method, headers };
    if (body instanceof FormData) return { method, headers, body }; // its type has a boundary
    if (isFile(body)) {
      headers["Content-Type"] = type ?? ((body instanceof Blob && body.type) || "application/octet-stream");
      return { method, headers, body };
    }
    headers["Content-Type"] = "application/json";
    return { method, headers, body: JSON.stringify(body) };
  }
}

async function message(response: Response): Promise<string> {
  try {
    return ((await response.json()) as { error: string }).error;
  } catch {
    return `the service answered with status ${response.status}`;
  }
}
