// A worker in Node: adds up the lengths of the items of a request.
import { serve } from "../pipewright_worker.mjs";

await serve(async (request, call) => {
  let sum = 0;
  for await (const item of call.items()) sum += item.length;
  return String(sum);
});
