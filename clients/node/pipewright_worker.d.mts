/** Workers for pipewright hosts. `pipewright_worker.mjs` has the documentation of the module. */

/** Bytes of a message. A string is sent as UTF-8. */
export type Bytes = string | NodeJS.ArrayBufferView | ArrayBuffer;

/** The options of a connection. */
export interface ConnectOptions {
  /** Has to be that of the host, or the connection is `Refused`. Default: empty. */
  app?: string;
  /** The same. */
  build?: string;
  /** The same. */
  salt?: string;
  /** The longest message in bytes. Default: 256 MiB. */
  maxMessageBytes?: number;
  /** Node has no shared memory: with `"required"` each connection is `Refused`. Default: `"auto"`. */
  sharedMemory?: "auto" | "off" | "required";
  /** The deadline of each step of the handshake in milliseconds. Default: 10 s. */
  handshakeTimeout?: number;
  /** The most bytes that are kept of what arrives while a send waits for room. Default: 512 MiB. */
  maxBacklogBytes?: number;
}

/** The options of `serve`. */
export interface ServeOptions extends ConnectOptions {
  /**
   * Returns the program to its state right after the start, so that no call can affect a later one. Returns false if it cannot:
   * the host then replaces this worker.
   */
  reset?: () => boolean | Promise<boolean>;
  /** The number of calls that are answered at a time. The host decides how many it sends. Default: 1. */
  concurrency?: number;
}

/** A call that is being answered. */
export class Call {
  private constructor();
  /** The request. */
  readonly request: Buffer;
  /** Is aborted when the host cancels the call or is gone: the reply is then discarded. */
  readonly signal: AbortSignal;
  /**
   * The items of a request that comes in pieces; none if it came as a whole. The iterator waits for each, and ends after the
   * last one. The host has sent at most 16 items that were not returned yet. The handler may return before the last item, and a
   * later iterator continues after the items of an earlier one. Rejects with `Cancelled` once the host has cancelled the call,
   * also because its caller gave up before the last item.
   */
  items(): AsyncGenerator<Buffer, void, undefined>;
  /**
   * Sends a part of the reply that precedes it. Waits until the host has taken enough of the earlier ones. Rejects with
   * `Declined` if the host accepts no items, and with `Cancelled` once it has cancelled the call.
   */
  sendItem(item: Bytes): Promise<void>;
  /** Asks the host a question, and resolves to the answer. Rejects with `Declined` or `Cancelled`. One at a time. */
  ask(question: Bytes): Promise<Buffer>;
}

/** A conversation with the host: each side sends any message at any time. */
export class Channel implements AsyncIterable<Buffer> {
  private constructor();
  /** The longest message that both sides accept. */
  readonly maxMessageBytes: number;
  /** False: messages go through the socket. */
  readonly sharedMemory: boolean;
  /** The reason for that. */
  readonly fallback: string;
  /** Waits for the next message. Resolves to null once the host has said goodbye. */
  recv(): Promise<Buffer | null>;
  /** Sends a message. The promise resolves when there is room for another one. */
  send(message: Bytes): Promise<void>;
  /** Sends a goodbye, discards what the host still sends, and closes the connection. */
  close(): Promise<void>;
  /** The messages, until the host says goodbye. */
  [Symbol.asyncIterator](): AsyncIterator<Buffer>;
}

/** Returns true if a host started this process as its worker. Does not connect to it. */
export function isWorker(): boolean;

/**
 * Connects to the host, and answers each request with what the function returns, until the host ends. If the function throws, or
 * its promise rejects, the call fails with the text of the error.
 */
export function serve(
  handler: (request: Buffer, call: Call) => Bytes | Promise<Bytes>,
  options?: ServeOptions,
): Promise<void>;

/** Connects to the host that started this process, for messages in any order. Works once. */
export function connect(options?: ConnectOptions): Promise<Channel>;

/** The connection to the host failed. */
export class WorkerError extends Error {}
/** No host started this process, or it has connected already. */
export class NotAWorker extends WorkerError {}
/** The host violated the protocol. */
export class ProtocolError extends WorkerError {}
/** The host has closed the connection, or has ended. */
export class Disconnected extends WorkerError {}
/** The host declined a question, or accepts no items. */
export class Declined extends WorkerError {}
/** The host cancelled the call. Its reply is discarded. */
export class Cancelled extends WorkerError {}
/** A message exceeds the agreed maximum. Nothing was sent. */
export class TooLong extends WorkerError {}
/** The host or this worker refused the connection, because a value differs. */
export class Refused extends WorkerError {
  readonly by: string;
  readonly field: string;
  readonly host: string;
  readonly worker: string;
}
