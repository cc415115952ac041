/* A hostile host in front of the worker in C: random frames of calls, in the order that a seed makes. Compiled with the address
   and undefined behaviour sanitizers (ci/clients.sh). `hostile_host SECONDS [SEED]`: each round forks a worker, plays the
   host, and fails if the worker did anything but return from pipewright_serve. */
#define PIPEWRIGHT_WORKER_IMPLEMENTATION
#include "pipewright_worker.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>


static uint64_t state;

static uint64_t below(uint64_t most) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % most;
}

/* Does what the request says: each way in which a handler uses its call. */
static int handle(pipewright_call *call, void *context) {
    size_t length;
    const unsigned char *request = pipewright_request(call, &length), *data;
    (void)context;
    switch (length ? request[0] % 7 : 0) {
    case 0: break;
    case 1:
        while (!pipewright_is_cancelled(call)) poll(NULL, 0, 0);
        break;
    case 2:
        while (pipewright_next_item(call, &data, &length) == PIPEWRIGHT_OK) pipewright_reply(call, data, length);
        break;
    case 3:
        for (length = 0; length < 20; length++)
            if (pipewright_send_item(call, "item", 4)) break;
        break;
    case 4: pipewright_ask(call, "question", 8, &data, &length); break;
    case 5: return pipewright_fail(call, "failed");
    default: pipewright_next_item(call, &data, &length); pipewright_is_cancelled(call);
    }
    return pipewright_reply(call, request, length < 16 ? length : 16);
}

static void put_frame(unsigned char *at, uint32_t length, int kind, int flags, uint64_t id) {
    memset(at, 0, 16);
    pw_put(at, length, 4);
    at[4] = (unsigned char)kind;
    at[5] = (unsigned char)flags;
    pw_put(at + 8, id, 8);
}

/* Sends what the worker takes, and throws away what it sends. Returns 0 once it has gone. */
static int exchange(int host, const unsigned char *data, size_t length) {
    static unsigned char junk[1 << 16];
    while (length > 0) {
        struct pollfd wait = {host, POLLIN | POLLOUT, 0};
        ssize_t sent;
        if (poll(&wait, 1, 2000) <= 0) return 0;
        while (recv(host, junk, sizeof junk, MSG_DONTWAIT) > 0) {}
        sent = send(host, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return 0;
        if (sent > 0) {
            data += sent;
            length -= (size_t)sent;
        }
    }
    return 1;
}

static int send_text(int host, int kind, const char *text) {
    unsigned char frame[1024];
    size_t length = strlen(text);
    put_frame(frame, (uint32_t)length, kind, 0, 0);
    memcpy(frame + 16, text, length);
    return exchange(host, frame, 16 + length);
}

/* As many calls as a worker may have, the first of which waits, and their cancellations, that of the first as the last. */
static int cancel_all(int host) {
    unsigned char frame[17];
    uint64_t id, calls = 1020 + below(8);
    put_frame(frame, 0, 20, 0, 0);
    if (below(2) && !exchange(host, frame, 16)) return 0;
    for (id = 1; id <= calls; id++) {
        put_frame(frame, 1, 17, 0, id);
        frame[16] = (unsigned char)(id == 1);
        if (!exchange(host, frame, 17)) return 0;
    }
    for (id = calls; id > 0; id--) {
        put_frame(frame, 0, 20, 0, id);
        if (!exchange(host, frame, 16)) return 0;
    }
    return 1;
}

static void play(int host) {
    static const unsigned char kinds[] = {17, 17, 17, 28, 28, 20, 20, 20, 21, 22, 24, 25, 26, 29, 16};
    char hello[512];
    unsigned char frame[4096];
    uint64_t rounds = 1 + below(60), calls = below(8) ? 4 : 1200;
    snprintf(hello, sizeof hello,
             "pipewright-ipc\nversion=1\napp=\nbuild=\narch=%s-%d-little\nuser=%lu\nsalt=\nmax_message_bytes=65536\n"
             "can=calls.v1 streams.v1\n",
             pw_arch(), (int)sizeof(void *) * 8, (unsigned long)geteuid());
    if (!send_text(host, 1, hello) || !send_text(host, 4, "ready\nshared=0\nwhy=\n")) return;
    if (below(10) == 0 && !cancel_all(host)) return;
    while (rounds-- > 0) {
        /* One frame, or a burst with ids in order: as many calls as a worker may have, and more. */
        uint64_t burst = below(10) ? 1 : 1 + below(1100), first = below(calls), at;
        int kind = below(40) ? kinds[below(sizeof kinds)] : (int)below(40);
        for (at = 0; at < burst; at++) {
            uint32_t length = (uint32_t)below(12), byte;
            uint64_t id = burst > 1 ? first + at : below(calls);
            int is_long = burst == 1 && below(30) == 0;
            put_frame(frame, length, kind, below(400) ? is_long : (int)below(4), id);
            if (is_long) pw_put(frame + 16, length + below(5), 8);
            for (byte = 0; byte < length; byte++) frame[16 + 8 * is_long + byte] = (unsigned char)below(256);
            if (!exchange(host, frame, 16 + 8 * (size_t)is_long + length)) return;
        }
    }
    if (below(2)) {
        put_frame(frame, 0, 10, 0, 0);
        exchange(host, frame, 16);
    }
}

int main(int count, char **arguments) {
    time_t end = time(NULL) + (count > 1 ? atol(arguments[1]) : 10);
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : (uint64_t)time(NULL) << 20, rounds = 0;
    printf("the first seed is %llu\n", (unsigned long long)seed);
    for (; rounds == 0 || time(NULL) < end; rounds++, seed++) {
        int ends[2], status = 0;
        pid_t worker;
        state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
        fflush(NULL);
        worker = fork();
        if (worker < 0) return 1;
        if (worker == 0) {
            char number[16];
            alarm(30);
            close(ends[0]);
            snprintf(number, sizeof number, "%d", ends[1]);
            setenv("PIPEWRIGHT_IPC", number, 1);
            unsetenv("PIPEWRIGHT_IPC_ID");
            _exit(pipewright_serve(handle, NULL, NULL) ? 1 : 0);
        }
        close(ends[1]);
        play(ends[0]);
        close(ends[0]);
        if (waitpid(worker, &status, 0) != worker) return 1;
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
            printf("FAILED: the worker of seed %llu ended with status %#x\n", (unsigned long long)seed, status);
            return 1;
        }
    }
    printf("%llu rounds\n", (unsigned long long)rounds);
    return 0;
}
