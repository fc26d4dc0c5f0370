// How requests are sent: token, timeout, retries, errors.

/** The contents of a file. */
export type Body = Blob | ArrayBuffer | Uint8Array<ArrayBuffer>;

export interface Settings {
  /** Name of a collection of the service; its default one if left out. */
  collection?: string;
  /** Token of a service that needs one. */
  token?: string;
  /** Milliseconds that one attempt may take, and each part of a stream; 30,000 by default. */
  timeout?: number;
  /** Number of further attempts of a request that may be repeated; 3 by default. */
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
  /** Whether it can be sent again after its answer was lost. */
  repeatable: boolean;
  body?: unknown;
  query?: object;
}

/** An attempt without an answer: whether another one may follow, and after how many milliseconds. */
interface Failure {
  error: CrossbitError;
  again: boolean;
  wait: number;
}

/** An error that the service reported; status 0 if it did not answer, or not completely. */
export class CrossbitError extends Error {
  constructor(message: string, readonly status: number) {
    super(message);
    this.name = "CrossbitError";
  }
}

const BUSY = [429, 502, 503, 504]; // the service asks to try again
const LAST_LINE = '{"items":'; // of a complete stream
const ERROR_LINE = '{"error":';
const isFile = (body: unknown): body is Body =>
  body instanceof Blob || body instanceof ArrayBuffer || body instanceof Uint8Array;
const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Sends requests to one service. */
export class Transport {
  private readonly url: string;

  constructor(url: string, private readonly settings: Settings = {}) {
    this.url = url.replace(/\/+$/, "");
  }

  protected call<T>(request: Request, answer: "json" | "text" | "blob", options: CallOptions): Promise<T> {
    return this.send(request, options, (response) => response[answer]() as Promise<T>);
  }

  /** Yield the lines of an answer as they arrive. */
  protected async *lines(request: Request, options: CallOptions): AsyncGenerator<string> {
    const body = await this.send(request, options, async (response) => response.body ?? new Blob().stream());
    let last = "";
    for await (const line of linesOf(this.parts(body, options))) {
      if (line.startsWith(ERROR_LINE)) throw new CrossbitError((JSON.parse(line) as { error: string }).error, 0);
      yield line;
      last = line;
    }
    if (!last.startsWith(LAST_LINE)) throw this.lost("the connection broke before all items had arrived");
  }

  private async *parts(body: ReadableStream<Uint8Array>, options: CallOptions): AsyncGenerator<Uint8Array> {
    const reader = body.getReader();
    try {
      for (;;) {
        const { value } = await within(reader.read(), this.timeout);
        if (value === undefined) return;
        yield value;
      }
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw this.lost(error);
    } finally {
      reader.cancel().catch(() => undefined); // the connection may be lost already
    }
  }

  /** Send a request until it is answered. */
  private async send<T>(request: Request, options: CallOptions, read: (response: Response) => Promise<T>): Promise<T> {
    const { retries = 3 } = this.settings;
    for (let attempt = 0; ; attempt++) {
      const outcome = await this.attempt(request, options, read);
      if ("answer" in outcome) return outcome.answer;
      if (!outcome.again || attempt >= retries) throw outcome.error;
      const delay = 200 * 2 ** attempt * (0.5 + Math.random() / 2);
      await sleep(Math.min(10_000, Math.max(outcome.wait, delay)));
    }
  }

  private async attempt<T>(
    request: Request, options: CallOptions, read: (response: Response) => Promise<T>,
  ): Promise<{ answer: T } | Failure> {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(late(this.timeout)), this.timeout);
    const signal = options.signal ? AbortSignal.any([options.signal, limit.signal]) : limit.signal;
    try {
      const response = await fetch(this.address(request), { ...this.init(request, options), signal });
      if (response.ok) return { answer: await read(response) };
      const error = new CrossbitError(await message(response), response.status);
      const wait = 1000 * (Number(response.headers.get("retry-after")) || 0);
      return { error, again: BUSY.includes(response.status), wait };
    } catch (error) {
      if (options.signal?.aborted) throw error;
      // A write whose answer was lost may have been performed: it is not repeated.
      return { error: this.lost(error), again: request.repeatable || isUnsent(error), wait: 0 };
    } finally {
      clearTimeout(timer);
    }
  }

  private get timeout(): number {
    return this.settings.timeout ?? 30_000;
  }

  private lost(reason: unknown): CrossbitError {
    return new CrossbitError(`${this.url}: the service did not answer (${String(reason)})`, 0);
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

async function* linesOf(parts: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of parts) {
    const lines = (rest + decoder.decode(part, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
  if (rest) yield rest;
}

const late = (timeout: number) => new DOMException(`nothing arrived for ${timeout} ms`, "TimeoutError");

/** Reject what takes longer than a number of milliseconds. */
async function within<T>(work: Promise<T>, timeout: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late(timeout)), timeout);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether there was no connection, so that the service has not seen the request; browsers do not tell. */
function isUnsent(error: unknown): boolean {
  type Cause = { syscall?: string; code?: string; errors?: Cause[] };
  const cause = (error as { cause?: Cause }).cause;
  const { syscall = "", code = "" } = cause?.errors?.[0] ?? cause ?? {};
  return syscall === "connect" || syscall === "getaddrinfo" || code === "UND_ERR_CONNECT_TIMEOUT";
}

async function message(response: Response): Promise<string> {
  try {
    return ((await response.json()) as { error: string }).error;
  } catch {
    return `the service answered with status ${response.status}`;
  }
}
