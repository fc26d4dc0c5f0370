// fetch with a token, a timeout, retries and errors.

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

/** An error that the service reported; status 0 if it did not answer, or not completely. */
export class CrossbitError extends Error {
  constructor(message: string, readonly status: number) {
    super(message);
    this.name = "CrossbitError";
  }
}

const BUSY = [429, 502, 503, 504]; // the service asks to try again
const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Whether a request changes something; POST is also how searches send their queries. */
const isWrite = ({ method, url }: Request) =>
  method === "PATCH" || method === "DELETE" || (method === "POST" && /\/(items|collections)$/.test(new URL(url).pathname));

const isStream = ({ url }: Request) => new URL(url).pathname.endsWith("/export");

const late = (timeout: number) => new DOMException(`nothing arrived for ${timeout} ms`, "TimeoutError");

/** Return a fetch that throws a CrossbitError unless the service answers with success. */
export function retryingFetch({ token, timeout = 30_000, retries = 3 }: Settings): (request: Request) => Promise<Response> {
  /** One attempt: the response with its whole body, unless it is a stream. */
  async function attempt(request: Request): Promise<Response> {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(late(timeout)), timeout);
    try {
      const response = await fetch(request.clone(), { signal: AbortSignal.any([request.signal, limit.signal]) });
      if (response.ok && isStream(request)) return response;
      return new Response(await response.arrayBuffer(), response);
    } finally {
      clearTimeout(timer);
    }
  }

  return async (request) => {
    if (token !== undefined) request.headers.set("Authorization", `Bearer ${token}`);
    for (let attempts = 0; ; attempts++) {
      let wait = 0;
      let failure: CrossbitError;
      try {
        const response = await attempt(request);
        if (response.ok) return response;
        failure = new CrossbitError(await message(response), response.status);
        const isDoneMaybe = response.status === 504 && isWrite(request);
        if (!BUSY.includes(response.status) || isDoneMaybe) throw failure;
        wait = 1000 * (Number(response.headers.get("retry-after")) || 0);
      } catch (error) {
        if (request.signal.aborted || error instanceof CrossbitError) throw error;
        failure = lost(request.url, error);
        // A write whose answer was lost may have been performed: it is not repeated.
        if (isWrite(request) && !isUnsent(error)) throw failure;
      }
      if (attempts >= retries) throw failure;
      const delay = 200 * 2 ** attempts * (0.5 + Math.random() / 2);
      await sleep(Math.min(10_000, Math.max(wait, delay)));
    }
  };
}

export const lost = (url: string, reason: unknown) =>
  new CrossbitError(`${new URL(url).origin}: the service did not answer (${String(reason)})`, 0);

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

/** Yield the lines of a stream as they arrive; each part may take as long as one attempt. */
export async function* linesOf(response: Response, { timeout = 30_000 }: Settings): AsyncGenerator<string> {
  const reader = (response.body ?? new Blob().stream()).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await within(reader.read(), timeout);
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
  } finally {
    reader.cancel().catch(() => undefined); // the connection may be lost already
  }
  if (rest) yield rest;
}

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
