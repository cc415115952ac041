/* The worker of the suite `ipc::clients`: `MODE [KEY=VALUE...]`. The workers in other languages do the same. */
#define PIPEWRIGHT_WORKER_IMPLEMENTATION
#include "pipewright_worker.h"

#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <shellapi.h>
#endif

static int count_of_calls;

static void nap(void) {
#ifdef _WIN32
    Sleep(2);
#else
    poll(NULL, 0, 2);
#endif
}

/* Writes everything into a handle, and closes it. */
static int write_all(int handle, const unsigned char *data, size_t length) {
    while (length > 0) {
#ifdef _WIN32
        DWORD written;
        if (!WriteFile(pw_handle(handle), data, (DWORD)length, &written, NULL)) return pw_system("WriteFile");
#else
        ssize_t written = write(handle, data, length);
        if (written < 0) return pw_system("write");
#endif
        data += written;
        length -= (size_t)written;
    }
    pw_close_handle(handle);
    return PIPEWRIGHT_OK;
}

static int make_pipe(int ends[2]) {
#ifdef _WIN32
    HANDLE reader, writer;
    if (!CreatePipe(&reader, &writer, NULL, 0)) return pw_system("CreatePipe");
    ends[0] = (int)(intptr_t)reader;
    ends[1] = (int)(intptr_t)writer;
#else
    if (pipe(ends)) return pw_system("pipe");
#endif
    return PIPEWRIGHT_OK;
}

static int reset(void *context) {
    (void)context;
    count_of_calls = 0;
    return 1;
}

static unsigned char *body(unsigned long number, size_t *length) {
    unsigned char *bytes = malloc(200000);
    *length = number * 7919 % 200000;
    if (!bytes) abort();
    memset(bytes, (int)(number & 255), *length);
    return bytes;
}

static int echo(pipewright_call *call, void *context) {
    size_t length;
    const unsigned char *request = pipewright_request(call, &length);
    (void)context;
    return pipewright_reply(call, request, length);
}

static int text(pipewright_call *call, const char *text) { return pipewright_reply(call, text, strlen(text)); }

static int number(pipewright_call *call, unsigned long number) {
    char digits[32];
    snprintf(digits, sizeof digits, "%lu", number);
    return text(call, digits);
}

/* Performs an act with the items of a request. */
static int act_with_items(pipewright_call *call, const char *name, const char *rest) {
    const unsigned char *item;
    size_t length;
    unsigned long count = 0, sum = 0;
    int result;
    if (!strcmp(name, "after-cancel")) {
        while (!pipewright_is_cancelled(call)) nap();
        while (!strcmp(rest, "send"))
            if (pipewright_send_item(call, "x", 1)) return pipewright_fail(call, pipewright_error());
    }
    for (; !(result = pipewright_next_item(call, &item, &length)); count++) {
        if (!strcmp(name, "count-items")) {
            size_t expected_length;
            unsigned char *expected = body(count, &expected_length);
            int is_right = length == expected_length && !memcmp(item, expected, length);
            free(expected);
            if (!is_right) return pipewright_fail(call, "an item is wrong");
        }
        sum += length;
        if (!strcmp(name, "first-item")) return pipewright_reply(call, item, length);
        if (!strcmp(name, "exit-at-item")) _exit(3);
        if (!strcmp(name, "echo-items") && pipewright_send_item(call, item, length))
            return pipewright_fail(call, pipewright_error());
    }
    if (result != PIPEWRIGHT_NO_MORE_ITEMS) return pipewright_fail(call, pipewright_error());
    if (pipewright_next_item(call, &item, &length) != PIPEWRIGHT_NO_MORE_ITEMS)
        return pipewright_fail(call, "an item after the end");
    if (!strcmp(name, "count-items")) return number(call, count);
    if (!strcmp(name, "sum")) return number(call, sum);
    if (!strcmp(name, "two-by-two")) return number(call, count / 2 + 1);
    return text(call, "done");
}

static int act(pipewright_call *call, void *context) {
    size_t length, at = 0;
    const unsigned char *request = pipewright_request(call, &length);
    char name[16] = "", rest[256] = "";
    unsigned long value, index, sum = 0;
    (void)context;
    count_of_calls++;
    while (at < length && request[at] != ' ' && at + 1 < sizeof name) {
        name[at] = (char)request[at];
        at++;
    }
    if (at < length) at++;
    for (index = 0; at + index < length && index + 1 < sizeof rest; index++) rest[index] = (char)request[at + index];
    value = strtoul(rest, NULL, 10);
    if (!strcmp(name, "echo")) return pipewright_reply(call, request + at, length - at);
    if (!strcmp(name, "pid")) return number(call, (unsigned long)getpid());
    if (!strcmp(name, "count")) return number(call, (unsigned long)count_of_calls);
    if (!strcmp(name, "fail")) return pipewright_fail(call, rest);
    if (!strcmp(name, "long")) {
        while (value--) pipewright_reply(call, "x", 1);
        return 0;
    }
    if (!strcmp(name, "exit")) {
        fprintf(stderr, "a line before\nthe last line\n");
        _exit((int)value);
    }
    if (!strcmp(name, "print")) {
        for (index = 0; index < value; index++) printf("line %lu on stdout\n", index);
        fflush(stdout);
    } else if (!strcmp(name, "wait")) {
        for (index = 0; index < value; index += 2) {
            if (pipewright_is_cancelled(call)) return pipewright_fail(call, "cancelled");
            nap();
        }
    } else if (!strcmp(name, "items")) {
        for (index = 0; index < value; index++) {
            char digits[32];
            snprintf(digits, sizeof digits, "%lu", index);
            if (pipewright_send_item(call, digits, strlen(digits))) return pipewright_fail(call, pipewright_error());
        }
    } else if (!strcmp(name, "ask") || !strcmp(name, "asks")) {
        const unsigned char *answer;
        size_t answer_length;
        if (!strcmp(name, "ask")) {
            if (pipewright_ask(call, request + at, length - at, &answer, &answer_length))
                return pipewright_fail(call, pipewright_error());
            return pipewright_reply(call, answer, answer_length);
        }
        for (index = 0; index < value; index++) {
            char digits[32];
            snprintf(digits, sizeof digits, "%lu", index);
            if (pipewright_ask(call, digits, strlen(digits), &answer, &answer_length))
                return pipewright_fail(call, pipewright_error());
            snprintf(digits, sizeof digits, "%.*s", (int)answer_length, (const char *)answer);
            sum += strtoul(digits, NULL, 10);
        }
        return number(call, sum);
    } else if (strstr(name, "-item") || !strcmp(name, "sum") || !strcmp(name, "after-cancel") || !strcmp(name, "two-by-two")) {
        return act_with_items(call, name, rest);
    } else {
        return pipewright_fail(call, "unknown request");
    }
    return text(call, "done");
}

/* Writes each message into the handles that come with it, and answers with their number. */
static int handles(pipewright_channel *channel) {
    const unsigned char *data;
    size_t length;
    int result;
    while (!(result = pipewright_receive(channel, &data, &length))) {
        int taken[64], count = pipewright_take_handles(channel, taken, 64), at;
        unsigned char byte = (unsigned char)count;
        for (at = 0; at < count && !result; at++) result = write_all(taken[at], data, length);
        if (result) break;
        result = pipewright_send(channel, &byte, 1);
        if (result) break;
    }
    return result;
}

/* Answers each message with the end of a pipe, through which the message comes back. */
static int gives(pipewright_channel *channel) {
    const unsigned char *data;
    size_t length;
    int result;
    while (!(result = pipewright_receive(channel, &data, &length))) {
        int ends[2];
        result = make_pipe(ends);
        if (!result) result = pipewright_send_handles(channel, "read it", 7, ends, 1);
        if (result) break;
        pw_close_handle(ends[0]);
        result = write_all(ends[1], data, length);
        if (result) break;
    }
    return result;
}

/* Sends that many messages, then receives as many. */
static int both(pipewright_channel *channel, unsigned long count) {
    unsigned long index;
    size_t length, expected_length;
    int result;
    for (index = 0; index < count; index++) {
        unsigned char *expected = body(index, &expected_length);
        result = pipewright_send(channel, expected, expected_length);
        free(expected);
        if (result) return result;
    }
    for (index = 0; index < count; index++) {
        const unsigned char *data;
        unsigned char *expected = body(index, &expected_length);
        result = pipewright_receive(channel, &data, &length);
        if (!result && (length != expected_length || memcmp(data, expected, length)))
            result = pw_fail(PIPEWRIGHT_PROTOCOL, "message %lu is wrong", index);
        free(expected);
        if (result) return result;
    }
    return pipewright_send(channel, "right", 5);
}

/* Sends until the host is gone. */
static int source(pipewright_channel *channel) {
    unsigned long index;
    for (index = 0;; index++) {
        size_t length;
        unsigned char *bytes = body(index, &length);
        int result = pipewright_send(channel, bytes, length);
        free(bytes);
        if (result) return result;
    }
}

static int run(int count, char **arguments) {
    pipewright_options options;
    unsigned long messages = 0;
    pipewright_channel *channel;
    const char *mode = count > 1 ? arguments[1] : "echo";
    int at, result;
    memset(&options, 0, sizeof options);
    for (at = 2; at < count; at++) {
        const char *value = strchr(arguments[at], '=') + 1;
        if (!strncmp(arguments[at], "app=", 4)) options.app = value;
        if (!strncmp(arguments[at], "build=", 6)) options.build = value;
        if (!strncmp(arguments[at], "salt=", 5)) options.salt = value;
        if (!strncmp(arguments[at], "most=", 5)) options.max_message_bytes = strtoul(value, NULL, 10);
        if (!strncmp(arguments[at], "ring=", 5)) options.ring_bytes = strtoul(value, NULL, 10);
        if (!strncmp(arguments[at], "count=", 6)) messages = strtoul(value, NULL, 10);
        if (!strncmp(arguments[at], "shm=", 4))
            options.shared_memory = !strcmp(value, "off")        ? PIPEWRIGHT_SHARED_MEMORY_OFF
                                    : !strcmp(value, "required") ? PIPEWRIGHT_SHARED_MEMORY_REQUIRED
                                                                 : PIPEWRIGHT_SHARED_MEMORY_AUTO;
    }
    if (!strcmp(mode, "echo")) return pipewright_serve(echo, NULL, &options);
    if (!strcmp(mode, "calls")) {
        options.reset = reset;
        return pipewright_serve(act, NULL, &options);
    }
    channel = pipewright_connect(&options);
    if (!channel) return PIPEWRIGHT_REFUSED;
    result = !strcmp(mode, "both")      ? both(channel, messages)
             : !strcmp(mode, "source")  ? source(channel)
             : !strcmp(mode, "handles") ? handles(channel)
                                        : gives(channel);
    pipewright_close(channel);
    return result == PIPEWRIGHT_END ? PIPEWRIGHT_OK : result;
}

int main(int count, char **arguments) {
    int result;
#ifdef _WIN32
    /* In UTF-8, which the system's own would not be. */
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &count);
    int at;
    for (at = 0; at < count; at++) {
        char *text = malloc(4096);
        if (!text || !WideCharToMultiByte(CP_UTF8, 0, wide[at], -1, text, 4096, NULL, NULL)) abort();
        arguments[at] = text;
    }
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
#endif
    result = run(count, arguments);
    if (result) fprintf(stderr, "worker: %s\n", pipewright_error());
    return result;
}
