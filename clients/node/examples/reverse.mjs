// A worker in Node: returns each request backwards.
import { serve } from "../pipewright_worker.mjs";

await serve((request) => request.reverse());
