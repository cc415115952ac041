"""A worker in Python: adds up the lengths of the items of a request."""
import pipewright_worker

pipewright_worker.serve_calls(lambda call: str(sum(map(len, call.items()))).encode())
