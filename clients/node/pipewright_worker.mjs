/**
 * Workers for pipewright hosts: one module without dependencies, Node 20 and later, Unix.
 *
 * A host is a program that uses the Rust crate `pipewright-ipc`. It starts this program and sends it requests:
 *
 *     import { serve } from "./pipewright_worker.mjs";
 *
 *     await serve((request) => request.reverse());
 *
 * `serve` answers each request with the bytes that the function returns, or that its promise resolves to. The function also gets
 * a `Call`, which iterates over the items of a request, sends items before the reply, asks the host questions and has an
 * `AbortSignal`. `connect` returns a `Channel`, which sends and receives messages in any order. Importing this module has no
 * effects.
 *
 * The connection has a descriptor of its own, so the program may print. Messages go through the socket: Node cannot map shared
 * memory, and cannot receive descriptors. docs/workers.md has the cost of that, and docs/wire.md the protocol.
 */
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import process from "node:process";

const VARIABLE = "PIPEWRIGHT_IPC";
const [HELLO, REJECT, READY, PART, WAKE, GOODBYE] = [1, 2, 4, 8, 9, 10];
const [MESSAGE, CALL, REPLY, FAILED, CANCEL, ITEM, CREDIT] = [16, 17, 18, 19, 20, 21, 22];
const [ASK, ANSWER, DECLINED, RESET, RESET_DONE, OPEN_CALL, ITEMS_END] = [23, 24, 25, 26, 27, 28, 29];
const LONG = 1;
const HEADER_BYTES = 16;
const MAX_HELLO_BYTES = 4096;
const MAX_CALLS = 1024;
const MAX_CREDITS = 2048;
/** Items of a request that may be on their way. */
const WINDOW = 16;
const MAX_MESSAGE_BYTES = 0xffffffff;
/** Messages that wait for `recv` stop the reading at this size, unless a send waits for room. */
const MAX_WAITING_BYTES = 16 << 20;
const WITHOUT_RING = "Node has no shared memory";

/** The connection to the host failed. */
export class WorkerError extends Error {
  name = this.constructor.name;
}

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
  constructor(by, field, host, worker) {
    const values = `host ${JSON.stringify(host)}, worker ${JSON.stringify(worker)}`;
    super(`the ${by} refused the connection: ${field} differs (${values})`);
    Object.assign(this, { by, field, host, worker });
  }
}

/** Returns the bytes as a Buffer, without a copy. */
function buffer(bytes) {
  if (Buffer.isBuffer(bytes)) return bytes;
  if (typeof bytes === "string") return Buffer.from(bytes);
  if (ArrayBuffer.isView(bytes)) return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes instanceof ArrayBuffer) return Buffer.from(bytes);
  throw new TypeError("a message is a string, a Buffer or another view of bytes");
}

function header(length, kind, flags, id) {
  const bytes = Buffer.alloc(HEADER_BYTES);
  bytes.writeUInt32LE(length, 0);
  bytes[4] = kind;
  bytes[5] = flags;
  bytes.writeBigUInt64LE(id, 8);
  return bytes;
}

/** Takes the stream apart into frames. Bodies arrive in one piece each. */
class Parser {
  #chunks = [];
  #length = 0;
  #frame = null;
  #body = null;
  #filled = 0;
  maxBodyBytes = MAX_HELLO_BYTES;

  add(chunk) {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
  }

  /** Returns the next frame, or null if not all of it has arrived. */
  next() {
    if (this.#frame === null) {
      this.#frame = this.#header();
      if (this.#frame === null) return null;
    }
    const frame = this.#frame;
    if (this.#body === null && this.#chunks.length > 0 && this.#chunks[0].length >= frame.length) {
      frame.body = this.#take(frame.length);
    } else {
      this.#body ??= Buffer.allocUnsafeSlow(frame.length);
      while (this.#filled < frame.length && this.#chunks.length > 0) {
        const part = this.#take(Math.min(this.#chunks[0].length, frame.length - this.#filled));
        part.copy(this.#body, this.#filled);
        this.#filled += part.length;
      }
      if (this.#filled < frame.length) return null;
      frame.body = this.#body;
    }
    this.#frame = this.#body = null;
    this.#filled = 0;
    return frame;
  }

  #header() {
    if (this.#length < HEADER_BYTES) return null;
    this.#join(HEADER_BYTES);
    let bytes = this.#chunks[0];
    const flags = bytes[5];
    if (flags & ~LONG) throw new ProtocolError(`a frame has unknown flags (0x${flags.toString(16)})`);
    const size = HEADER_BYTES + (flags & LONG ? 8 : 0);
    if (this.#length < size) return null;
    this.#join(size);
    bytes = this.#take(size);
    const frame = {
      length: bytes.readUInt32LE(0),
      kind: bytes[4],
      isLong: (flags & LONG) !== 0,
      id: bytes.readBigUInt64LE(8),
      total: 0n,
      body: null,
    };
    frame.total = frame.isLong ? bytes.readBigUInt64LE(HEADER_BYTES) : BigInt(frame.length);
    if (bytes.readUInt16LE(6) > 0) throw new ProtocolError("a frame announces handles, which this worker does not support");
    if (frame.total > BigInt(this.maxBodyBytes) || frame.length > this.maxBodyBytes) {
      const most = this.maxBodyBytes;
      const bytes = frame.total > BigInt(frame.length) ? frame.total : frame.length;
      throw new ProtocolError(`a frame or message of ${bytes} bytes exceeds the agreed maximum of ${most}: it is too long`);
    }
    // Before the body, which may be longer than the message.
    if (frame.isLong && (frame.length === 0 || frame.total <= BigInt(frame.length))) {
      throw new ProtocolError("the parts of a message do not add up to its length");
    }
    return frame;
  }

  /** Makes the first chunk at least that long. */
  #join(count) {
    if (this.#chunks[0].length < count) this.#chunks = [Buffer.concat(this.#chunks)];
  }

  /** Takes bytes of the first chunk. */
  #take(count) {
    const first = this.#chunks[0];
    this.#length -= count;
    if (count === first.length) return this.#chunks.shift();
    this.#chunks[0] = first.subarray(count);
    return first.subarray(0, count);
  }
}

/** The socket: frames in both directions. */
class Link {
  #parser = new Parser();
  #socket;
  #onFrame = null;
  #onEnd = null;
  #ended = null;
  /** Functions that wait for room. */
  #room = [];
  maxBacklogBytes;

  constructor(fd, maxBacklogBytes) {
    this.maxBacklogBytes = maxBacklogBytes;
    this.#socket = new net.Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
    this.#socket.on("data", (chunk) => this.#receive(chunk));
    this.#socket.on("end", () => this.#end(new Disconnected("the host has ended")));
    this.#socket.on("close", () => this.#end(new Disconnected("the host has ended")));
    this.#socket.on("error", () => this.#end(new Disconnected("the host has ended"), true));
    this.#socket.on("drain", () => this.#drained());
  }

  /** Passes each frame to the first function, and the end to the second one, once. */
  listen(onFrame, onEnd) {
    [this.#onFrame, this.#onEnd] = [onFrame, onEnd];
    if (this.#ended !== null) onEnd?.(this.#ended);
    else this.#receive(null);
  }

  set maxBodyBytes(most) {
    this.#parser.maxBodyBytes = most;
  }

  get waitsForRoom() {
    return this.#room.length > 0;
  }

  #receive(chunk) {
    if (chunk !== null) this.#parser.add(chunk);
    try {
      while (this.#onFrame !== null && this.#ended === null) {
        const frame = this.#parser.next();
        if (frame === null) break;
        this.#onFrame(frame);
      }
    } catch (error) {
      this.#end(error, true);
    }
  }

  #end(error, isBroken = false) {
    if (this.#ended === null) {
      this.#ended = error;
      this.#onEnd?.(error);
    }
    if (isBroken || !(error instanceof Disconnected)) {
      this.#socket.destroy();
      this.#drained();
    }
  }

  #drained() {
    for (const resume of this.#room.splice(0)) resume();
  }

  /** Ends the connection with that error. */
  fail(error) {
    this.#end(error, true);
  }

  /** Stops the reading while too much waits. */
  flow(mayRead) {
    if (mayRead) this.#socket.resume();
    else this.#socket.pause();
  }

  /** Sends a message. The promise resolves when there is room for another one. */
  async send(kind, id, body) {
    if (this.#socket.destroyed || !this.#socket.writable) throw new Disconnected("the host has ended");
    this.#socket.cork();
    this.#socket.write(header(body.length, kind, 0, id));
    const hasRoom = body.length === 0 || this.#socket.write(body);
    process.nextTick(() => this.#socket.uncork());
    if (hasRoom) return;
    await new Promise((resolve) => this.#room.push(resolve));
    if (this.#socket.destroyed) throw new Disconnected("the host has ended");
  }

  /** Closes the connection after everything was sent. */
  async close() {
    if (this.#socket.destroyed) return;
    await new Promise((resolve) => {
      this.#socket.once("close", resolve);
      this.#socket.end(() => this.#socket.destroy());
    });
  }
}

/** Sorts frames into messages. */
class Messages {
  #first = null;
  #parts = [];
  #left = 0;

  /** Returns the message that ends with this frame, or null. */
  add(frame) {
    const { kind, length, body } = frame;
    if (kind === WAKE) {
      if (length > 0 || frame.isLong) throw new ProtocolError("a WAKE has a body");
      return null;
    }
    if (this.#first !== null) return this.#addPart(frame);
    if (kind === GOODBYE) {
      if (length > 0 || frame.isLong) throw new ProtocolError("a GOODBYE has a body");
      return { kind, id: 0n, body };
    }
    if (kind < MESSAGE || kind > ITEMS_END) throw new ProtocolError(`unexpected frame of kind ${kind}`);
    if (!frame.isLong) return { kind, id: frame.id, body };
    [this.#first, this.#parts, this.#left] = [frame, [body], Number(frame.total) - length];
    return null;
  }

  #addPart(frame) {
    const { kind, length, body } = frame;
    if (kind !== PART) throw new ProtocolError(`unexpected frame of kind ${kind}`);
    const { kind: first, id } = this.#first;
    if (length === 0 || length > this.#left || frame.isLong || frame.id !== id) {
      throw new ProtocolError("the parts of a message do not add up to its length");
    }
    this.#parts.push(body);
    this.#left -= length;
    if (this.#left > 0) return null;
    const whole = Buffer.concat(this.#parts);
    [this.#first, this.#parts] = [null, []];
    return { kind: first, id, body: whole };
  }
}

/** A conversation with the host: each side sends any message at any time. See `connect`. */
export class Channel {
  #link;
  #messages = new Messages();
  #waiting = [];
  #waitingBytes = 0;
  #receivers = [];
  #ended = null;
  #saidGoodbye = false;
  #onMessage = null;

  /** @internal */
  constructor(link, maxMessageBytes, fallback) {
    this.#link = link;
    this.maxMessageBytes = maxMessageBytes;
    this.sharedMemory = false;
    this.fallback = fallback;
    link.maxBodyBytes = maxMessageBytes;
    link.listen(
      (frame) => this.#receive(frame),
      (error) => this.#end(error),
    );
  }

  #receive(frame) {
    const message = this.#messages.add(frame);
    if (message === null || this.#ended !== null) return;
    if (message.kind === GOODBYE) {
      this.#end(null);
    } else if (this.#onMessage !== null) {
      this.#onMessage(message);
    } else {
      // `serve` may listen only after the first calls have arrived.
      if (this.#receivers.length > 0) {
        const body = this.#plain(message);
        this.#receivers.shift().resolve(body);
        return;
      }
      this.#waiting.push(message);
      this._count(message.body.length);
    }
  }

  /** Returns the body of a message that belongs to no call. */
  #plain({ kind, body }) {
    if (kind !== MESSAGE) throw new ProtocolError(`unexpected frame of kind ${kind}`);
    return body;
  }

  /** Counts bytes that wait for the program. @internal */
  _count(bytes) {
    this.#waitingBytes += bytes > 0 ? bytes + 64 : bytes === 0 ? 64 : bytes;
    this._flow();
  }

  /** @internal */
  _flow() {
    const { waitsForRoom, maxBacklogBytes } = this.#link;
    if (waitsForRoom && this.#waitingBytes > maxBacklogBytes) {
      throw new WorkerError("the host sends more than it receives: the backlog is full");
    }
    // A call may wait for what comes behind other calls: an answer, an item or its cancellation. The host limits the calls.
    const isServing = this.#onMessage !== null;
    this.#link.flow(isServing || waitsForRoom || this.#waitingBytes <= MAX_WAITING_BYTES);
  }

  #end(error) {
    if (this.#ended !== null) return;
    this.#ended = { error };
    for (const receiver of this.#receivers.splice(0)) {
      if (error === null) receiver.resolve(null);
      else receiver.reject(error);
    }
    this.#onMessage?.(null, error);
  }

  /** Passes each message to that function, and at last null and the error. @internal */
  _listen(onMessage) {
    this.#onMessage = onMessage;
    this._flow();
    for (const message of this.#waiting.splice(0)) {
      this._count(-(message.body.length + 64));
      onMessage(message);
    }
    if (this.#ended !== null) onMessage(null, this.#ended.error);
  }

  /** Waits for the next message. Resolves to null once the host has said goodbye. */
  async recv() {
    if (this.#waiting.length > 0) {
      const message = this.#waiting.shift();
      this._count(-(message.body.length + 64));
      try {
        return this.#plain(message);
      } catch (error) {
        this.#link.fail(error);
        throw error;
      }
    }
    if (this.#ended !== null) {
      if (this.#ended.error !== null) throw this.#ended.error;
      return null;
    }
    return new Promise((resolve, reject) => this.#receivers.push({ resolve, reject }));
  }

  /** The messages, until the host says goodbye. */
  async *[Symbol.asyncIterator]() {
    for (let message = await this.recv(); message !== null; message = await this.recv()) yield message;
  }

  /** Sends a message. The promise resolves when there is room for another one. */
  async send(message) {
    await this._send(MESSAGE, 0n, buffer(message));
  }

  /** @internal */
  async _send(kind, id, body) {
    if (body.length > this.maxMessageBytes) {
      const [bytes, most] = [body.length, this.maxMessageBytes];
      throw new TooLong(`a message of ${bytes} bytes exceeds the agreed maximum of ${most}`);
    }
    if (this.#saidGoodbye) throw new Disconnected("the connection is closed");
    const sent = this.#link.send(kind, id, body);
    if (this.#link.waitsForRoom) this._flow();
    await sent;
  }

  /** Sends a goodbye, discards what the host still sends, and closes the connection. */
  async close() {
    try {
      await this._goodbye();
      while ((await this.recv()) !== null);
    } catch (error) {
      if (!(error instanceof Disconnected)) throw error;
    } finally {
      await this.#link.close();
    }
  }

  /** @internal */
  async _goodbye() {
    if (this.#saidGoodbye) return;
    this.#saidGoodbye = true;
    await this.#link.send(GOODBYE, 0n, Buffer.alloc(0));
  }

  /** @internal */
  async _drop() {
    await this.#link.close();
  }

  /** @internal */
  _fail(error) {
    this.#link.fail(error);
  }
}

/** A call that is being answered. */
export class Call {
  #calls;
  #id;
  #abort = new AbortController();

  /** @internal */
  constructor(calls, id, request) {
    this.#calls = calls;
    this.#id = id;
    this.request = request;
    /** The number of items that the host accepts, or null if it accepts none. @internal */
    this._credit = null;
    /** The items of the request that were not taken yet, or null if it came as a whole. @internal */
    this._items = null;
    /** The functions that wait for credit, an item, or the answer to a question. @internal */
    this._waiters = new Set();
    /** @internal */
    this._answer = null;
    /** The host has said goodbye, so nothing more arrives. @internal */
    this._isLast = false;
  }

  /** Is aborted when the host cancels the call or is gone: the reply is then discarded. */
  get signal() {
    return this.#abort.signal;
  }

  /** @internal */
  _cancel() {
    this.#abort.abort(new Cancelled("the call was cancelled"));
    this._wake();
  }

  /** Something has arrived. @internal */
  _wake() {
    const waiters = [...this._waiters];
    this._waiters.clear();
    for (const resume of waiters) resume();
  }

  /** Waits until something arrives. */
  async #next() {
    if (this._isLast) throw new Disconnected("the host has closed the connection");
    await new Promise((resolve) => this._waiters.add(resolve));
  }

  /**
   * Sends a part of the reply that precedes it. Waits until the host has taken enough of the earlier ones. Rejects with
   * `Declined` if the host accepts no items, and with `Cancelled` once it has cancelled the call.
   */
  async sendItem(item) {
    for (;;) {
      this.signal.throwIfAborted();
      if (this._credit === null) throw new Declined("the caller accepts no items");
      if (this._credit > 0) {
        this._credit -= 1;
        return this.#calls.channel._send(ITEM, this.#id, buffer(item));
      }
      await this.#next();
    }
  }

  /**
   * The items of a request that comes in pieces; none if it came as a whole. The iterator waits for each, and ends after the
   * last one. The host has sent at most 16 items that were not returned yet. The handler may return before the last item, and a
   * later iterator continues after the items of an earlier one. Rejects with `Cancelled` once the host has cancelled the call,
   * also because its caller gave up before the last item.
   */
  async *items() {
    const items = this._items;
    while (items !== null) {
      const item = items.arrived.shift();
      if (item === undefined) {
        if (items.haveEnded) return;
        this.signal.throwIfAborted();
        if (items.callHasEnded) throw new WorkerError("the call has ended");
      }
      const more = items.newCredit();
      if (more > 0) {
        const credit = Buffer.alloc(4);
        credit.writeUInt32LE(more);
        await this.#calls.channel._send(CREDIT, this.#id, credit);
      }
      if (item !== undefined) yield item;
      else if (items.arrived.length === 0 && !items.haveEnded && !this.signal.aborted) await this.#next();
    }
  }

  /** Asks the host a question, and resolves to the answer. Rejects with `Declined` or `Cancelled`. One at a time. */
  async ask(question) {
    this.signal.throwIfAborted();
    this._answer = null;
    await this.#calls.channel._send(ASK, this.#id, buffer(question));
    while (this._answer === null) {
      this.signal.throwIfAborted();
      await this.#next();
    }
    const { kind, body } = this._answer;
    this._answer = null;
    if (kind === DECLINED) throw new Declined(body.toString());
    return body;
  }
}

/** The items that follow the request of a call. */
class Items {
  arrived = [];
  haveEnded;
  callHasEnded = false;
  /** The number that the host may still send. */
  #credit = 0;

  constructor(haveEnded) {
    this.haveEnded = haveEnded;
  }

  add(item) {
    if (this.#credit === 0 || this.haveEnded) throw new ProtocolError("an item without credit");
    this.#credit -= 1;
    this.arrived.push(item);
  }

  /** Returns the credit that the host gets now, half a window at a time: each costs a message. */
  newCredit() {
    const more = WINDOW - this.#credit - this.arrived.length;
    if (this.haveEnded || this.callHasEnded || more < WINDOW / 2) return 0;
    this.#credit += more;
    return more;
  }
}

/** The calls of a host: those that wait, and those that are being answered. */
class Calls {
  #handler;
  #reset;
  #concurrency;
  #waiting = [];
  #open = new Map();
  /** Credit that came before its call. */
  #credit = new Map();
  #cancelled = new Set();
  /** Calls that wait, and whose items have ended. */
  #withoutItems = new Set();
  #ended = null;
  #done;

  constructor(channel, handler, { reset, concurrency = 1 }) {
    this.channel = channel;
    this.#handler = handler;
    this.#reset = reset;
    this.#concurrency = concurrency;
  }

  /** Answers calls until the host ends. */
  run() {
    return new Promise((resolve, reject) => {
      this.#done = { resolve, reject };
      this.channel._listen((message, error) => {
        if (message === null) this.#end(error);
        else this.#sort(message);
      });
    });
  }

  #end(error) {
    this.#ended = { error };
    if (error === null) {
      for (const call of this.#open.values()) this.#isLast(call);
      return this.#startNext();
    }
    this.#waiting.length = 0;
    for (const call of this.#open.values()) call._cancel();
    if (error instanceof Disconnected) this.#done.resolve();
    else this.#done.reject(error);
  }

  /** Nothing more arrives for this call. */
  #isLast(call) {
    call._isLast = true;
    call._wake();
  }

  #sort(message) {
    const { kind, id, body } = message;
    const call = this.#open.get(id);
    switch (kind) {
      case MESSAGE:
      case CALL:
      case OPEN_CALL:
      case RESET:
        if (kind !== MESSAGE && this.#waiting.length >= MAX_CALLS) throw new ProtocolError("too many calls at a time");
        this.#waiting.push(message);
        this.channel._count(body.length);
        this.#startNext();
        break;
      case CANCEL:
        // One that comes after the reply would be kept forever. Plain messages and resets have the id 0.
        if (id === 0n) break;
        if (call) call._cancel();
        else if (this.#isWaiting(id)) this.#cancelled.add(id);
        break;
      case CREDIT: {
        const more = body.length >= 4 ? body.readUInt32LE(0) : 0;
        if (call) {
          call._credit = Math.min((call._credit ?? 0) + more, 0xffffffff);
          call._wake();
        } else {
          this.#addCredit(id, more);
        }
        break;
      }
      case ITEM:
        if (call?._items) {
          call._items.add(body);
          call._wake();
        } else if ((call && id !== 0n) || this.#isWaiting(id)) {
          throw new ProtocolError("an item without credit");
        }
        // Another one belongs to a call that has ended.
        break;
      case ITEMS_END:
        if (call?._items) {
          call._items.haveEnded = true;
          call._wake();
        } else if (this.#isWaiting(id)) {
          this.#withoutItems.add(id);
        }
        break;
      case ANSWER:
      case DECLINED:
        // Another one belongs to a call that has ended.
        if (call) {
          call._answer = { kind, body };
          call._wake();
        }
        break;
      default:
        throw new ProtocolError(`a frame of kind ${kind} from a host`);
    }
  }

  #isWaiting(id) {
    return this.#waiting.some((other) => other.id === id);
  }

  #addCredit(id, more) {
    if (!this.#credit.has(id) && this.#credit.size >= MAX_CREDITS) {
      // The oldest of a call that has ended or never came.
      const waiting = new Set(this.#waiting.map((message) => message.id));
      for (const other of this.#credit.keys()) {
        if (waiting.has(other)) continue;
        this.#credit.delete(other);
        break;
      }
    }
    this.#credit.set(id, Math.min((this.#credit.get(id) ?? 0) + more, 0xffffffff));
  }

  #startNext() {
    while (this.#open.size < this.#concurrency && this.#waiting.length > 0) {
      const message = this.#waiting.shift();
      this.channel._count(-(message.body.length + 64));
      // A reset and a plain message belong to no call, and wait for the others.
      this.#answer(message).catch((error) => this.channel._fail(error));
    }
    if (this.#ended?.error === null && this.#open.size === 0 && this.#waiting.length === 0) {
      const said = this.channel._goodbye().catch(() => {});
      said.then(() => this.#done.resolve());
    }
  }

  async #answer({ kind, id, body }) {
    const call = new Call(this, id, body);
    call._credit = this.#credit.get(id) ?? null;
    this.#credit.delete(id);
    if (kind === OPEN_CALL) call._items = new Items(this.#withoutItems.delete(id));
    this.#open.set(id, call);
    if (this.#ended !== null) this.#isLast(call);
    const [last, reply] = await this.#reply(kind, id, call);
    try {
      await this.#send(last, id, reply);
    } catch (error) {
      if (!(error instanceof Disconnected)) throw error;
    } finally {
      if (call._items) call._items.callHasEnded = true;
      this.#open.delete(id);
      this.#cancelled.delete(id);
      this.#withoutItems.delete(id);
    }
    this.#startNext();
  }

  /** Returns the kind and the body of the last message of a call. */
  async #reply(kind, id, call) {
    if (kind === RESET) {
      const isDone = this.#reset !== undefined && (await this.#reset());
      return [isDone ? RESET_DONE : FAILED, Buffer.alloc(0)];
    }
    if (this.#cancelled.has(id)) return [FAILED, Buffer.from("cancelled before the call started")];
    if (kind === MESSAGE) return [MESSAGE, buffer(await this.#handler(call.request, call))];
    try {
      return [REPLY, buffer(await this.#handler(call.request, call))];
    } catch (error) {
      return [FAILED, this.#text(error)];
    }
  }

  async #send(kind, id, reply) {
    try {
      await this.channel._send(kind, id, reply);
    } catch (error) {
      if (!(error instanceof TooLong) || kind === MESSAGE) throw error;
      await this.channel._send(FAILED, id, this.#text(error));
    }
  }

  #text(error) {
    let text;
    try {
      text = String(error instanceof Error ? error.message || error.name : error);
    } catch {
      // An object without a prototype, or whose getters throw.
      text = 'an exception that has no text';
    }
    return Buffer.from(text).subarray(0, this.channel.maxMessageBytes);
  }
}

let claimed = false;

/** Returns true if a host started this process as its worker. Does not connect to it. */
export function isWorker() {
  return claimed || inherited() !== null;
}

/** Returns the number of the socket that the host passed on, or null. */
function inherited() {
  const text = process.env[VARIABLE] ?? "";
  if (!/^[0-9]{1,9}$/.test(text) || Number(text) <= 2 || process.platform === "win32") return null;
  try {
    const found = fs.fstatSync(Number(text), { bigint: true });
    const ident = process.env[`${VARIABLE}_ID`] ?? "";
    // A host that does not set the second variable may leave one of another host behind.
    const isOther = ident.startsWith(`${text}:`) && ident !== `${text}:${found.dev}:${found.ino}`;
    return found.isSocket() && !isOther ? Number(text) : null;
  } catch {
    return null;
  }
}

/**
 * Connects to the host, and answers each request with what the function returns, until the host ends. If the function throws, or
 * its promise rejects, the call fails with the text of the error.
 */
export async function serve(handler, options = {}) {
  const channel = await connect(options);
  try {
    await new Calls(channel, handler, options).run();
  } finally {
    await channel._drop();
  }
}

/** Connects to the host that started this process, for messages in any order. Works once. */
export async function connect(options = {}) {
  const { maxMessageBytes = 256 << 20, handshakeTimeout = 10_000, maxBacklogBytes = 512 << 20 } = options;
  const fd = claimed ? null : inherited();
  if (fd === null) throw new NotAWorker("this process was not started as a worker, or has connected already");
  claimed = true;
  // Children would take themselves for workers.
  delete process.env[VARIABLE];
  delete process.env[`${VARIABLE}_ID`];
  const link = new Link(fd, maxBacklogBytes);
  try {
    return await shakeHands(link, options, Math.min(maxMessageBytes, MAX_MESSAGE_BYTES), handshakeTimeout);
  } catch (error) {
    await link.close();
    throw error;
  }
}

function arch() {
  const names = { x64: "x86_64", arm64: "aarch64", ia32: "x86", ppc64: "powerpc64", loong64: "loongarch64" };
  const bits = ["ia32", "arm"].includes(process.arch) ? 32 : 64;
  return `${names[process.arch] ?? process.arch}-${bits}-${os.endianness() === "LE" ? "little" : "big"}`;
}

/** Returns the value without control characters, as it is sent. */
function clean(value) {
  return value.replace(/[\u0000-\u001f\u007f-\u009f]/g, "");
}

function text(first, fields) {
  return Buffer.from([first, ...Object.entries(fields).map(([key, value]) => `${key}=${clean(value)}`), ""].join("\n"));
}

/** Returns the fields of a body. */
function fields(body, first) {
  let lines;
  try {
    lines = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body).split("\n");
  } catch {
    throw new ProtocolError("a frame of the handshake is not text");
  }
  if (lines[0] !== first) throw new ProtocolError(`a frame without the first line ${JSON.stringify(first)}`);
  const found = new Map();
  for (const line of lines.slice(1)) {
    const at = line.indexOf("=");
    if (at >= 0 && !found.has(line.slice(0, at))) found.set(line.slice(0, at), line.slice(at + 1));
  }
  return found;
}

/** Resolves to the fields of the next frame, which has to be of that kind. */
function receive(link, kind, first, timeout) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => end(reject, new Disconnected("the host was silent during the handshake")), timeout);
    const end = (settle, value) => {
      clearTimeout(timer);
      link.listen(null, null);
      settle(value);
    };
    link.listen(
      (frame) => {
        try {
          if (frame.isLong) throw new ProtocolError("a frame of the handshake is too long");
          if (frame.kind === REJECT) {
            const found = fields(frame.body, "rejected");
            const value = (key) => found.get(key) ?? "";
            throw new Refused(value("by") || "host", value("field"), value("host"), value("worker"));
          }
          if (frame.kind !== kind) throw new ProtocolError(`unexpected frame of kind ${frame.kind}`);
          end(resolve, fields(frame.body, first));
        } catch (error) {
          end(reject, error);
        }
      },
      (error) => end(reject, error),
    );
  });
}

async function shakeHands(link, options, maxMessageBytes, timeout) {
  const { app = "", build = "", salt = "", sharedMemory = "auto" } = options;
  const user = String(process.geteuid());
  const identity = { version: "1", app, build, arch: arch(), user, salt };
  const theirs = await receive(link, HELLO, "pipewright-ipc", timeout);
  const reject = async (field, host, worker) => {
    await link.send(REJECT, 0n, text("rejected", { by: "worker", field, host, worker })).catch(() => {});
    throw new Refused("worker", field, host, worker);
  };
  for (const [key, ours] of Object.entries(identity)) {
    if (theirs.get(key) !== clean(ours)) await reject(key, theirs.get(key) ?? "nothing", clean(ours));
  }
  const most = Number(/^[0-9]{1,15}$/.test(theirs.get("max_message_bytes") ?? "") ? theirs.get("max_message_bytes") : 0);
  await link.send(HELLO, 0n, text("pipewright-ipc", { ...identity, max_message_bytes: String(maxMessageBytes), can: "calls.v1 streams.v1" }));
  const ready = await receive(link, READY, "ready", timeout);
  if (ready.get("shared") === "1") throw new ProtocolError("the host enabled shared memory without proof");
  if (sharedMemory === "required") await reject("shared memory", WITHOUT_RING, WITHOUT_RING);
  return new Channel(link, Math.min(maxMessageBytes, most), sharedMemory === "off" ? "shared memory is off" : WITHOUT_RING);
}
