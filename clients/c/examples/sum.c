/* A worker in C: adds up the lengths of the items of a request. */
#define PIPEWRIGHT_WORKER_IMPLEMENTATION
#include "pipewright_worker.h"

static int sum(pipewright_call *call, void *context) {
    const unsigned char *item;
    size_t length, total = 0;
    char digits[32];
    int result;
    (void)context;
    while (!(result = pipewright_next_item(call, &item, &length))) total += length;
    if (result != PIPEWRIGHT_NO_MORE_ITEMS) return pipewright_fail(call, pipewright_error());
    snprintf(digits, sizeof digits, "%zu", total);
    return pipewright_reply(call, digits, strlen(digits));
}

int main(void) {
    int result = pipewright_serve(sum, NULL, NULL);
    if (result) fprintf(stderr, "%s\n", pipewright_error());
    return result;
}
