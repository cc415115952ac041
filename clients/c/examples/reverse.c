/* A worker in C: returns each request backwards. */
#define PIPEWRIGHT_WORKER_IMPLEMENTATION
#include "pipewright_worker.h"

static int reverse(pipewright_call *call, void *context) {
    size_t length;
    const unsigned char *request = pipewright_request(call, &length);
    (void)context;
    while (length > 0) pipewright_reply(call, &request[--length], 1);
    return 0;
}

int main(void) {
    int result = pipewright_serve(reverse, NULL, NULL);
    if (result) fprintf(stderr, "%s\n", pipewright_error());
    return result;
}
