"""A worker in Python: returns each request backwards."""
import pipewright_worker

pipewright_worker.serve(lambda request: request[::-1])
