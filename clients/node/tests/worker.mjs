// The worker of the suite `ipc::clients`: `MODE [KEY=VALUE...]`. The workers in other languages do the same.
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { WorkerError, Disconnected, connect, serve } from "../pipewright_worker.mjs";

const body = (number) => Buffer.alloc((number * 7919) % 200000, number % 256);

/** A request that fails. A plain message has no reply for that, so the worker ends with this error. */
class RequestError extends Error {}

let count = 0;

async function act(request, call) {
  count += 1;
  const end = request.indexOf(" ") < 0 ? request.length : request.indexOf(" ");
  const rest = request.subarray(end + 1);
  const number = () => Number(rest.toString());
  switch (request.subarray(0, end).toString()) {
    case "echo":
      return rest;
    case "pid":
      return String(process.pid);
    case "count":
      return String(count);
    case "long":
      return "x".repeat(number());
    case "fail":
      throw new RequestError(rest.toString());
    case "fail-without-text":
      throw Object.create(null);
    case "exit":
      process.stderr.write("a line before\nthe last line\n");
      process.exit(number());
      break;
    case "print":
      for (let line = 0; line < number(); line++) console.log(`line ${line} on stdout`);
      break;
    case "wait":
      await sleep(number(), undefined, { signal: call.signal });
      break;
    case "items":
      for (let item = 0, most = number(); item < most; item++) await call.sendItem(String(item));
      break;
    case "ask":
      return call.ask(rest);
    case "asks": {
      let sum = 0;
      for (let question = 0; question < number(); question++) sum += Number(await call.ask(String(question)));
      return String(sum);
    }
    case "count-items": {
      let number = 0;
      for await (const item of call.items()) {
        if (!item.equals(body(number))) throw new RequestError(`item ${number} is wrong`);
        number += 1;
      }
      for await (const _ of call.items()) throw new RequestError("an item after the end");
      return String(number);
    }
    case "take-items":
      for await (const _ of call.items());
      break;
    case "sum": {
      let sum = 0;
      for await (const item of call.items()) sum += item.length;
      return String(sum);
    }
    case "first-item":
      for await (const item of call.items()) return item;
      throw new RequestError("no item");
    case "two-by-two": {
      // Each iterator continues after the items of the one before.
      let pairs = 0;
      for (let taken = 2; taken === 2; pairs++) {
        taken = 0;
        for await (const _ of call.items()) if (++taken === 2) break;
      }
      return String(pairs);
    }
    case "echo-items":
      for await (const item of call.items()) await call.sendItem(item);
      break;
    case "exit-at-item":
      for await (const _ of call.items()) process.exit(3);
      break;
    case "after-cancel":
      while (!call.signal.aborted) await sleep(2);
      if (rest.toString() === "send") for (;;) await call.sendItem("x");
      for await (const _ of call.items());
      break;
    default:
      throw new RequestError("unknown request");
  }
  return "done";
}

/** Sends that many messages, then receives as many. */
async function both(channel, messages) {
  for (let number = 0; number < messages; number++) await channel.send(body(number));
  for (let number = 0; number < messages; number++) {
    const message = await channel.recv();
    if (message === null || !message.equals(body(number))) throw new Error(`message ${number} is wrong`);
  }
  await channel.send("right");
}

/** Sends until the host is gone. */
async function source(channel) {
  for (let number = 0; ; number++) await channel.send(body(number));
}

async function main() {
  const [mode, ...pairs] = process.argv.slice(2);
  const values = new Map(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
  const options = {};
  for (const key of ["app", "build", "salt"]) if (values.has(key)) options[key] = values.get(key);
  if (values.has("most")) options.maxMessageBytes = Number(values.get("most"));
  if (values.has("shm")) options.sharedMemory = values.get("shm");
  if (mode === "echo") return serve((request) => request, options);
  if (mode === "calls") return serve(act, { ...options, reset: () => ((count = 0), true) });
  const channel = await connect(options);
  if (mode === "both") await both(channel, Number(values.get("count")));
  else if (mode === "source") await source(channel);
  // No handles come with the messages.
  else if (mode === "handles") for await (const _ of channel) await channel.send(Buffer.from([0]));
  await channel.close();
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Disconnected)) {
    // The stack of any other error shows a mistake of the library.
    const isExpected = error instanceof WorkerError || error instanceof RequestError;
    process.stderr.write(`worker: ${isExpected ? `${error.name}: ${error.message}` : error.stack}\n`);
    process.exitCode = 1;
  }
}
