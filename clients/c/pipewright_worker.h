/* pipewright_worker.h: workers for pipewright hosts, in C99 (or C++), on Unix systems and Windows. No dependencies.

   A host is a program that uses the Rust crate pipewright-ipc. It starts this program and sends it requests.

   In one file, before any system header:

       #define PIPEWRIGHT_WORKER_IMPLEMENTATION
       #include "pipewright_worker.h"

       static int reverse(pipewright_call *call, void *context) {
           size_t length;
           const unsigned char *request = pipewright_request(call, &length);
           (void)context;
           while (length > 0) pipewright_reply(call, &request[--length], 1);
           return 0;
       }

       int main(void) { return pipewright_serve(reverse, NULL, NULL); }

   Other files include it without the macro. PIPEWRIGHT_WORKER_STATIC makes all functions static.

   FUNCTIONS
     pipewright_serve        answers each request by a function, until the host ends
     pipewright_request      ... the request
     pipewright_reply        ... appends to the reply
     pipewright_fail         ... makes the call fail with a text
     pipewright_is_cancelled ... looks for a cancellation, without waiting
     pipewright_send_item    ... sends a part of the reply before it
     pipewright_next_item    ... waits for the next part of a request that comes in pieces
     pipewright_ask          ... asks the host a question
     pipewright_connect      or, instead of serve: messages in any order
     pipewright_receive, pipewright_take_handles, pipewright_send, pipewright_send_handles, pipewright_close
     pipewright_is_worker    returns 1 if a host started this process as its worker
     pipewright_error        returns the text of the last error

   RESULTS
     Functions that return int return PIPEWRIGHT_OK (0) or another value of pipewright_result. pipewright_serve returns 0 when
     the host has ended, and otherwise prints nothing: print pipewright_error().

   MEMORY
     pipewright_request, pipewright_receive, pipewright_ask and pipewright_next_item return memory of the library, which stays
     until the next call of the same function (for pipewright_request: until the handler returns).

   THREADS
     A connection belongs to one thread. A process connects once.

   The connection has a descriptor of its own, so the program may use stdin, stdout and stderr. Messages go through shared
   memory on 64-bit Linux and Windows with GCC or Clang, and through the socket (on Windows: the pipe) otherwise;
   pipewright_fallback returns the reason. docs/wire.md specifies the protocol.

   WINDOWS
     Handles of messages are the values of HANDLEs: they fit an int. Strings are UTF-8. The program needs advapi32, which MinGW
     links by default.

   LICENSE: MIT or Apache-2.0, at your option. */

#ifndef PIPEWRIGHT_WORKER_H
#define PIPEWRIGHT_WORKER_H

#if defined(PIPEWRIGHT_WORKER_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(PIPEWRIGHT_WORKER_STATIC)
#define PIPEWRIGHT_API extern
#elif defined(__GNUC__)
#define PIPEWRIGHT_API static __attribute__((unused))
#else
#define PIPEWRIGHT_API static
#endif

/* The result of a function. */
typedef enum pipewright_result {
    PIPEWRIGHT_OK = 0,
    PIPEWRIGHT_END = 1,          /* the host has closed the connection, or has ended */
    PIPEWRIGHT_NOT_A_WORKER = 2, /* no host started this process, or it has connected already */
    PIPEWRIGHT_REFUSED = 3,      /* the sides differ: the text names the field */
    PIPEWRIGHT_PROTOCOL = 4,     /* the host violated the protocol */
    PIPEWRIGHT_SYSTEM = 5,       /* a system call failed */
    PIPEWRIGHT_NO_MEMORY = 6,
    PIPEWRIGHT_TOO_LONG = 7,      /* a message exceeds the agreed maximum; nothing was sent */
    PIPEWRIGHT_TIMEOUT = 8,       /* the host was silent during the handshake */
    PIPEWRIGHT_BACKLOG = 9,       /* the host sends too much while this side waits for room */
    PIPEWRIGHT_DECLINED = 10,     /* the host declined a question, or accepts no items */
    PIPEWRIGHT_CANCELLED = 11,    /* the call was cancelled; its reply is discarded */
    PIPEWRIGHT_NO_MORE_ITEMS = 12 /* the request has ended */
} pipewright_result;

/* The use of shared memory. */
typedef enum pipewright_shared_memory {
    PIPEWRIGHT_SHARED_MEMORY_AUTO = 0,
    PIPEWRIGHT_SHARED_MEMORY_OFF = 1,
    PIPEWRIGHT_SHARED_MEMORY_REQUIRED = 2
} pipewright_shared_memory;

/* The options of a connection. Zeros are the defaults. */
typedef struct pipewright_options {
    /* These have to be those of the host, or the connection is refused. NULL: empty. */
    const char *app, *build, *salt;
    uint64_t max_message_bytes; /* the longest message; default: 256 MiB */
    size_t ring_bytes;          /* the size of the ring that this side writes; default: 2 MiB */
    size_t max_backlog_bytes;   /* the most bytes kept while this side waits for room; default: 512 MiB */
    pipewright_shared_memory shared_memory;
    int handshake_timeout_ms; /* of each step; default: 10000 */
    int spin_us;              /* the longest spin before a wait; default: 50; negative: none */
    /* Returns the program to its state right after the start, for pipewright_serve. Returns 0 if it cannot, and the host then
       replaces this worker. NULL: it cannot. */
    int (*reset)(void *context);
} pipewright_options;

typedef struct pipewright_channel pipewright_channel;
typedef struct pipewright_call pipewright_call;

/* Answers a call: 0 sends what pipewright_reply has collected. Any other value makes the call fail with the text of
   pipewright_fail. */
typedef int (*pipewright_handler)(pipewright_call *call, void *context);

/* Returns 1 if a host started this process as its worker. Does not connect to it. */
PIPEWRIGHT_API int pipewright_is_worker(void);

/* Connects to the host and answers calls until the host ends. `options` may be NULL. */
PIPEWRIGHT_API int pipewright_serve(pipewright_handler handler, void *context, const pipewright_options *options);

/* Returns the request and its length. */
PIPEWRIGHT_API const unsigned char *pipewright_request(const pipewright_call *call, size_t *length);

/* Appends to the reply. If there is no memory for it, the call fails. */
PIPEWRIGHT_API int pipewright_reply(pipewright_call *call, const void *data, size_t length);

/* Replaces the reply by the text of an error. Returns 1, so that a handler can `return pipewright_fail(call, "no disk");`. */
PIPEWRIGHT_API int pipewright_fail(pipewright_call *call, const char *text);

/* Returns 1 if the host has cancelled the call or is gone. Never waits. */
PIPEWRIGHT_API int pipewright_is_cancelled(pipewright_call *call);

/* Sends a part of the reply that precedes it. Waits until the host has taken enough of the earlier ones. PIPEWRIGHT_DECLINED: the
   caller accepts no items. PIPEWRIGHT_CANCELLED: it has cancelled the call. */
PIPEWRIGHT_API int pipewright_send_item(pipewright_call *call, const void *data, size_t length);

/* Waits for the next item of a request that comes in pieces. PIPEWRIGHT_NO_MORE_ITEMS: the last one was returned, or the request
   came as a whole. PIPEWRIGHT_CANCELLED: the host has cancelled the call, also because its caller gave up before the last item.
   The host has sent at most 16 items that were not returned yet. A handler may return before the last item. */
PIPEWRIGHT_API int pipewright_next_item(pipewright_call *call, const unsigned char **data, size_t *length);

/* Asks the host a question, and waits for the answer. PIPEWRIGHT_DECLINED: pipewright_error() has the host's reason. */
PIPEWRIGHT_API int pipewright_ask(
    pipewright_call *call, const void *question, size_t length, const unsigned char **answer, size_t *answer_length);

/* Connects to the host, for messages in any order. Returns NULL after an error. */
PIPEWRIGHT_API pipewright_channel *pipewright_connect(const pipewright_options *options);

/* Waits for the next message. PIPEWRIGHT_END: there is none. */
PIPEWRIGHT_API int pipewright_receive(pipewright_channel *channel, const unsigned char **data, size_t *length);

/* Takes the descriptors that came with the last message, which the caller has to close. Returns their number. Those that are
   not taken are closed with the next message. */
PIPEWRIGHT_API int pipewright_take_handles(pipewright_channel *channel, int *handles, int most);

/* Sends a message, and waits for room. */
PIPEWRIGHT_API int pipewright_send(pipewright_channel *channel, const void *data, size_t length);

/* Sends a message with up to 64 descriptors. The host receives copies. */
PIPEWRIGHT_API int pipewright_send_handles(
    pipewright_channel *channel, const void *data, size_t length, const int *handles, int count);

/* Sends GOODBYE, discards what the host still sends, and frees the channel. */
PIPEWRIGHT_API void pipewright_close(pipewright_channel *channel);

/* Returns NULL if messages go through shared memory, and otherwise the reason why they do not. */
PIPEWRIGHT_API const char *pipewright_fallback(const pipewright_channel *channel);

/* Returns the text of the last error of this process: one line. */
PIPEWRIGHT_API const char *pipewright_error(void);

#ifdef __cplusplus
}
#endif
#endif /* PIPEWRIGHT_WORKER_H */

#if defined(PIPEWRIGHT_WORKER_IMPLEMENTATION) && !defined(PIPEWRIGHT_WORKER_IMPLEMENTED)
#define PIPEWRIGHT_WORKER_IMPLEMENTED

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
/* windows.h has to be first. */
#include <sddl.h>
#else
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#endif

#if (defined(__linux__) || defined(_WIN32)) && defined(__GNUC__) && UINTPTR_MAX > 0xffffffffu
#define PW_HAS_RING 1
#else
#define PW_HAS_RING 0
#endif
#if PW_HAS_RING && defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef PIPEWRIGHT_WORKER_STATIC
#define PW_PUBLIC static
#else
#define PW_PUBLIC
#endif

enum {
    PW_HELLO = 1,
    PW_REJECT = 2,
    PW_MEMORY = 3,
    PW_READY = 4,
    PW_PART = 8,
    PW_WAKE = 9,
    PW_GOODBYE = 10,
    PW_PAD = 11,
    PW_MESSAGE = 16,
    PW_CALL = 17,
    PW_REPLY = 18,
    PW_FAILED = 19,
    PW_CANCEL = 20,
    PW_ITEM = 21,
    PW_CREDIT = 22,
    PW_ASK = 23,
    PW_ANSWER = 24,
    PW_DECLINED = 25,
    PW_RESET = 26,
    PW_RESET_DONE = 27,
    PW_OPEN_CALL = 28,
    PW_ITEMS_END = 29
};

enum {
    PW_LONG = 1,
    PW_HEADER_BYTES = 16,
    PW_RECORD_BYTES = 32,
    PW_CONTROL_BYTES = 4096,
    PW_MAX_HELLO_BYTES = 4096,
    PW_MAX_HANDLES = 64,
    PW_MAX_CALLS = 1024,
    PW_MAX_CREDITS = 2048,
    PW_WINDOW = 16, /* items of a request that may be on their way */
    PW_FRAME_BYTES = 64 << 10,
    PW_SHORT_BYTES = 4 << 10,
    PW_READ_BYTES = 64 << 10,
    PW_MIN_RING = 64 << 10,
    PW_MAX_RING = 64 << 20
};

#define PW_MAX_MESSAGE_BYTES UINT64_C(0xffffffff)

/* The words of `can`. */
#define PW_CAN "calls.v1 streams.v1"

static char pw_error_text[512];
static int pw_claimed;

/* Sets the text of the last error, without control characters. Returns the result. */
static int pw_fail(int result, const char *format, ...) {
    va_list values;
    char *at;
    va_start(values, format);
    vsnprintf(pw_error_text, sizeof pw_error_text, format, values);
    va_end(values);
    for (at = pw_error_text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = ' ';
    return result;
}

PW_PUBLIC const char *pipewright_error(void) { return pw_error_text; }

/* Returns the text of the error of the last system call. */
static const char *pw_reason(void) {
#ifdef _WIN32
    static char text[32];
    snprintf(text, sizeof text, "error %lu", (unsigned long)GetLastError());
    return text;
#else
    return strerror(errno);
#endif
}

static int pw_system(const char *call) { return pw_fail(PIPEWRIGHT_SYSTEM, "%s: %s", call, pw_reason()); }

/* Bytes that grow. */
typedef struct pw_buffer {
    unsigned char *data;
    size_t at, end, room;
} pw_buffer;

/* Makes room for that many more bytes. */
static int pw_reserve(pw_buffer *buffer, size_t more) {
    size_t room;
    unsigned char *data;
    if (buffer->at == buffer->end) buffer->at = buffer->end = 0;
    if (buffer->data && buffer->room - buffer->end >= more) return PIPEWRIGHT_OK;
    if (buffer->at > 0) {
        memmove(buffer->data, buffer->data + buffer->at, buffer->end - buffer->at);
        buffer->end -= buffer->at;
        buffer->at = 0;
        if (buffer->room - buffer->end >= more) return PIPEWRIGHT_OK;
    }
    if (more > SIZE_MAX / 2 - buffer->end) return pw_fail(PIPEWRIGHT_NO_MEMORY, "out of memory");
    room = buffer->end + more;
    /* An empty one gets exactly what it needs: the length of a message is bounded, its double is not. */
    if (buffer->end > 0 && room < buffer->room * 2) room = buffer->room * 2;
    if (room < 64) room = 64;
    data = (unsigned char *)realloc(buffer->data, room);
    if (!data) return pw_fail(PIPEWRIGHT_NO_MEMORY, "out of memory");
    buffer->data = data;
    buffer->room = room;
    return PIPEWRIGHT_OK;
}

static int pw_append(pw_buffer *buffer, const void *data, size_t length) {
    int result = pw_reserve(buffer, length);
    if (result) return result;
    if (length) memcpy(buffer->data + buffer->end, data, length);
    buffer->end += length;
    return PIPEWRIGHT_OK;
}

static void pw_put(unsigned char *place, uint64_t value, int bytes) {
    int at;
    for (at = 0; at < bytes; at++) place[at] = (unsigned char)(value >> (8 * at));
}

static uint64_t pw_get(const unsigned char *place, int bytes) {
    uint64_t value = 0;
    int at;
    for (at = bytes - 1; at >= 0; at--) value = value << 8 | place[at];
    return value;
}

/* The header of a frame, and the place of its body. */
typedef struct pw_frame {
    uint32_t length;
    uint8_t kind, flags;
    uint16_t handles;
    uint64_t id, total, after;
    int in_ring;
    size_t at;    /* the offset of the body in the ring */
    uint64_t end; /* the position after the record */
} pw_frame;

static int pw_check_flags(const pw_frame *frame) {
    if (!(frame->flags & ~PW_LONG)) return PIPEWRIGHT_OK;
    return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame has unknown flags (%#x)", (unsigned)frame->flags);
}

/* A spin before a wait, which adapts to the success of earlier ones. */
typedef struct pw_spin {
    int most_us;
    unsigned credit, until_try, pause;
} pw_spin;

/* Both memory objects: this side writes `ours` and reads `theirs`. */
typedef struct pw_ring {
    unsigned char *ours, *theirs;
    size_t size, their_size;
    int handle;
    uint64_t nonce;
    uint64_t head, free_from, woken; /* of the ring that this side writes */
    uint64_t tail, known_tail, seen_head, sleeps;
    int has_next;
    pw_frame next;
} pw_ring;

typedef struct pw_message {
    uint8_t kind;
    uint64_t id;
    int no_more_items; /* the items of this call have ended before it was begun */
    pw_buffer body;
} pw_message;

typedef struct pw_credit {
    uint64_t id;
    uint32_t count;
} pw_credit;

#ifdef _WIN32
/* The pipe instead of a socket. A read is always in progress, unless bytes are left of the last one. */
typedef struct pw_pipe {
    OVERLAPPED reading, writing; /* each with its event */
    int is_reading;
    unsigned char *data; /* PW_READ_BYTES, of which those from `at` to `end` are not decoded yet */
    size_t at, end;
    unsigned char head[8 + 8 * PW_MAX_HANDLES]; /* the part of a packet before its bytes */
    size_t head_length;
    uint32_t left; /* bytes of the packet that have not been decoded */
    int is_confirmed, is_introduced; /* both sides mean this process, and this one has said so */
    pw_buffer packet;
} pw_pipe;
#endif

struct pipewright_channel {
    int socket; /* or, on Windows, the number of the pipe's handle */
#ifdef _WIN32
    pw_pipe pipe;
#endif
    pw_buffer arrived;
    int handles[PW_MAX_HANDLES]; /* that arrived, and that no frame has taken */
    int handle_count;
    int lost_handles, ended, said_goodbye, heard_goodbye, has_ring;
    int broken; /* the error after which nothing more is received */
    pw_ring ring;
    uint64_t taken, put; /* frames of the socket, without WAKE */
    uint64_t max_message_bytes;
    size_t max_backlog_bytes;
    pw_spin spin;
    int message_handles[PW_MAX_HANDLES];
    int message_handle_count;
    pw_buffer message;
    char fallback[256];
};

struct pipewright_call {
    pipewright_channel *channel;
    uint64_t id;
    pw_buffer request, reply, answer, item;
    int lost_reply; /* there was no memory for a part of it */
    int has_items, no_more_items;
    pw_buffer items[PW_WINDOW]; /* that were not returned yet, from `first_item` on */
    uint32_t first_item, item_count, item_credit;
    pw_message *waiting; /* PW_MAX_CALLS, from `first` on */
    size_t first, count;
    pw_credit credits[PW_MAX_CREDITS];
    size_t credit_count;
    uint64_t cancelled[PW_MAX_CALLS + 1];
    size_t cancelled_count;
    uint64_t answered[PW_MAX_CALLS]; /* more credit for these may be on its way */
    size_t answered_count, answered_next;
};

#ifdef _WIN32

/* ---- The pipe of Windows. ---- */

static HANDLE pw_handle(int number) { return (HANDLE)(intptr_t)number; }

static void pw_close_handle(int number) { CloseHandle(pw_handle(number)); }

static void pw_close_all(int *handles, int *count) {
    while (*count > 0) pw_close_handle(handles[--*count]);
}

/* Returns 1 if the error means that the other end is closed. */
static int pw_is_end(DWORD error) {
    return error == ERROR_BROKEN_PIPE || error == ERROR_PIPE_NOT_CONNECTED || error == ERROR_NO_DATA ||
           error == ERROR_HANDLE_EOF;
}

/* Prepares the pipe. */
static int pw_open_pipe(pipewright_channel *channel) {
    pw_pipe *pipe = &channel->pipe;
    pipe->data = (unsigned char *)malloc(PW_READ_BYTES);
    if (!pipe->data) return pw_fail(PIPEWRIGHT_NO_MEMORY, "out of memory");
    pipe->reading.hEvent = CreateEventA(NULL, TRUE, FALSE, NULL);
    pipe->writing.hEvent = CreateEventA(NULL, TRUE, FALSE, NULL);
    return pipe->reading.hEvent && pipe->writing.hEvent ? PIPEWRIGHT_OK : pw_system("CreateEvent");
}

static void pw_close_socket(pipewright_channel *channel) {
    pw_pipe *pipe = &channel->pipe;
    HANDLE file = pw_handle(channel->socket);
    DWORD count;
    if (pipe->is_reading) {
        CancelIoEx(file, &pipe->reading);
        GetOverlappedResult(file, &pipe->reading, &count, TRUE);
    }
    CloseHandle(file);
    if (pipe->reading.hEvent) CloseHandle(pipe->reading.hEvent);
    if (pipe->writing.hEvent) CloseHandle(pipe->writing.hEvent);
    free(pipe->data);
    free(pipe->packet.data);
}

/* Starts a read, if all bytes of the last one are decoded. */
static int pw_begin_read(pipewright_channel *channel) {
    pw_pipe *pipe = &channel->pipe;
    if (pipe->is_reading || pipe->at < pipe->end || channel->ended) return PIPEWRIGHT_OK;
    pipe->at = pipe->end = 0;
    if (!ReadFile(pw_handle(channel->socket), pipe->data, PW_READ_BYTES, NULL, &pipe->reading)) {
        DWORD error = GetLastError();
        if (pw_is_end(error)) {
            channel->ended = 1;
            return PIPEWRIGHT_OK;
        }
        if (error != ERROR_IO_PENDING) return pw_system("ReadFile");
    }
    pipe->is_reading = 1;
    return PIPEWRIGHT_OK;
}

/* Waits at most that many milliseconds (INFINITE: without end) for bytes to decode. `any` becomes 1 if there are some, or if
   the stream has ended. */
static int pw_finish_read(pipewright_channel *channel, DWORD timeout_ms, int *any) {
    pw_pipe *pipe = &channel->pipe;
    int result = pw_begin_read(channel);
    DWORD count = 0;
    *any = 1;
    if (result || channel->ended || pipe->at < pipe->end) return result;
    if (WaitForSingleObject(pipe->reading.hEvent, timeout_ms) != WAIT_OBJECT_0) {
        *any = 0;
        return PIPEWRIGHT_OK;
    }
    pipe->is_reading = 0;
    if (!GetOverlappedResult(pw_handle(channel->socket), &pipe->reading, &count, FALSE)) {
        if (!pw_is_end(GetLastError())) return pw_system("ReadFile");
        channel->ended = 1;
    }
    pipe->end = count;
    return PIPEWRIGHT_OK;
}

/* Waits for bytes. Returns 0 if there are none in time. */
static int pw_wait_readable(pipewright_channel *channel, int timeout_ms) {
    int any = 0;
    /* An error is found again by the read that follows. */
    return pw_finish_read(channel, (DWORD)timeout_ms, &any) || any;
}

/* Takes what a packet announces before its bytes. */
static int pw_take_head(pipewright_channel *channel) {
    pw_pipe *pipe = &channel->pipe;
    uint32_t bytes = (uint32_t)pw_get(pipe->head, 4);
    int count = (int)pw_get(pipe->head + 4, 2), kind = (int)pw_get(pipe->head + 6, 2), at;
    pipe->head_length = 0;
    if (kind == 1 && count == 0) {
        pipe->is_confirmed = bytes == GetCurrentProcessId();
        return PIPEWRIGHT_OK;
    }
    if (kind != 0 || bytes == 0 || (count > 0 && !pipe->is_confirmed))
        return pw_fail(PIPEWRIGHT_PROTOCOL, "a packet of the pipe is malformed");
    for (at = 0; at < count; at++) {
        uint64_t number = pw_get(pipe->head + 8 + 8 * at, 8);
        if (number == 0 || number % 4 || number > INT32_MAX)
            return pw_fail(PIPEWRIGHT_PROTOCOL, "a packet of the pipe has a number that is no handle");
        if (channel->handle_count == PW_MAX_HANDLES)
            return pw_fail(PIPEWRIGHT_PROTOCOL, "more handles than the frames announce");
        channel->handles[channel->handle_count++] = (int)number;
    }
    pipe->left = bytes;
    return PIPEWRIGHT_OK;
}

/* Decodes bytes into that place, up to the next ones that come with handles. */
static int pw_decode(pipewright_channel *channel, unsigned char *place, size_t room, size_t *count) {
    pw_pipe *pipe = &channel->pipe;
    while (pipe->at < pipe->end && *count < room) {
        size_t there = pipe->end - pipe->at, need = 8, handles;
        if (pipe->left > 0) {
            if (there > pipe->left) there = pipe->left;
            if (there > room - *count) there = room - *count;
            memcpy(place + *count, pipe->data + pipe->at, there);
            pipe->at += there;
            pipe->left -= (uint32_t)there;
            *count += there;
            continue;
        }
        if (pipe->head_length >= 8) {
            handles = (size_t)pw_get(pipe->head + 4, 2);
            /* They belong to the bytes after them, not to those before. */
            if (*count > 0) return PIPEWRIGHT_OK;
            if (handles > PW_MAX_HANDLES || pw_get(pipe->head + 6, 2) != 0)
                return pw_fail(PIPEWRIGHT_PROTOCOL, "a packet of the pipe is malformed");
            need += 8 * handles;
        }
        if (there > need - pipe->head_length) there = need - pipe->head_length;
        memcpy(pipe->head + pipe->head_length, pipe->data + pipe->at, there);
        pipe->at += there;
        pipe->head_length += there;
        if (pipe->head_length == need && (need > 8 || pw_get(pipe->head + 4, 2) == 0)) {
            int result = pw_take_head(channel);
            if (result) return result;
        }
    }
    return PIPEWRIGHT_OK;
}

/* Receives once into that place. `count` becomes 0 if nothing has arrived, or at the end of the stream. */
static int pw_receive_into(pipewright_channel *channel, unsigned char *place, size_t room, int wait, size_t *count) {
    *count = 0;
    for (;;) {
        int any, result = pw_decode(channel, place, room, count);
        if (result || *count > 0 || channel->ended) return result;
        result = pw_finish_read(channel, wait ? INFINITE : 0, &any);
        if (result || !any) return result;
    }
}

static int pw_carries_handles(const pipewright_channel *channel) { return channel->pipe.is_confirmed; }

#else

/* ---- The socket. ---- */

static void pw_close_handle(int number) { close(number); }

static void pw_close_socket(pipewright_channel *channel) {
    if (channel->socket >= 0) close(channel->socket);
}

#ifdef MSG_NOSIGNAL
#define PW_NOSIGNAL MSG_NOSIGNAL
#else
#define PW_NOSIGNAL 0
#endif
#ifdef MSG_CMSG_CLOEXEC
#define PW_CLOEXEC MSG_CMSG_CLOEXEC
#else
#define PW_CLOEXEC 0
#endif

typedef union pw_control {
    struct cmsghdr align;
    unsigned char bytes[CMSG_SPACE(PW_MAX_HANDLES * sizeof(int))];
} pw_control;

static void pw_close_all(int *handles, int *count) {
    while (*count > 0) close(handles[--*count]);
}

/* Takes the descriptors of a message. */
static int pw_take_control(pipewright_channel *channel, struct msghdr *message) {
    struct cmsghdr *header;
    int too_many = 0;
    for (header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        size_t count, at;
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        count = ((size_t)header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (at = 0; at < count; at++) {
            int handle;
            memcpy(&handle, CMSG_DATA(header) + at * sizeof(int), sizeof handle);
            if (!PW_CLOEXEC) fcntl(handle, F_SETFD, FD_CLOEXEC);
            if (channel->handle_count < PW_MAX_HANDLES) {
                channel->handles[channel->handle_count++] = handle;
            } else {
                too_many = 1;
                close(handle);
            }
        }
    }
    if (message->msg_flags & MSG_CTRUNC) channel->lost_handles = 1;
    return too_many ? pw_fail(PIPEWRIGHT_PROTOCOL, "more handles than the frames announce") : PIPEWRIGHT_OK;
}

/* Waits for these events, at most that many milliseconds; a negative number waits without end. Returns the events, or 0. */
static int pw_wait(pipewright_channel *channel, int events, int timeout_ms) {
    struct pollfd one;
    int ready;
    one.fd = channel->socket;
    one.events = (short)events;
    one.revents = 0;
    do ready = poll(&one, 1, timeout_ms);
    while (ready < 0 && errno == EINTR && timeout_ms < 0);
    return ready > 0 ? one.revents : 0;
}

static int pw_wait_readable(pipewright_channel *channel, int timeout_ms) { return pw_wait(channel, POLLIN, timeout_ms); }

static int pw_carries_handles(const pipewright_channel *channel) {
    (void)channel;
    return 1;
}

/* Receives once into that place. `count` becomes 0 if nothing has arrived, or at the end of the stream. */
static int pw_receive_into(pipewright_channel *channel, unsigned char *place, size_t room, int wait, size_t *count) {
    pw_control control;
    struct iovec part;
    struct msghdr message;
    ssize_t received;
    *count = 0;
    for (;;) {
        part.iov_base = place;
        part.iov_len = room;
        memset(&message, 0, sizeof message);
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        received = recvmsg(channel->socket, &message, PW_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
        if (received >= 0) break;
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait) return PIPEWRIGHT_OK;
            pw_wait(channel, POLLIN, -1);
            continue;
        }
        if (errno == ECONNRESET || errno == EPIPE) {
            channel->ended = 1;
            return PIPEWRIGHT_OK;
        }
        return pw_system("recvmsg");
    }
    if (received == 0) channel->ended = 1;
    *count = (size_t)received;
    return pw_take_control(channel, &message);
}

#endif /* _WIN32 */

static uint64_t pw_now_us(void) {
#ifdef _WIN32
    LARGE_INTEGER now, second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&second);
    return (uint64_t)(now.QuadPart / second.QuadPart * 1000000 + now.QuadPart % second.QuadPart * 1000000 / second.QuadPart);
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
#endif
}

/* Receives once into the buffer. `any` becomes 1 if something has arrived. */
static int pw_receive(pipewright_channel *channel, int wait, int *any) {
    size_t count = 0;
    int result;
    *any = 0;
    if (channel->ended) return PIPEWRIGHT_OK;
    result = pw_reserve(&channel->arrived, PW_READ_BYTES);
    if (result) return result;
    result = pw_receive_into(channel, channel->arrived.data + channel->arrived.end, PW_READ_BYTES, wait, &count);
    channel->arrived.end += count;
    *any = count > 0;
    return result;
}

static int pw_gone(void) { return pw_fail(PIPEWRIGHT_END, "the host has ended"); }

/* Moves that many bytes into `to`, and waits for them. */
static int pw_take(pipewright_channel *channel, unsigned char *to, size_t length) {
    pw_buffer *arrived = &channel->arrived;
    size_t count = arrived->end - arrived->at;
    if (count > length) count = length;
    if (count) memcpy(to, arrived->data + arrived->at, count);
    arrived->at += count;
    while (count < length) {
        size_t more;
        int result = pw_receive_into(channel, to + count, length - count, 1, &more);
        if (result) return result;
        if (more == 0) return pw_fail(PIPEWRIGHT_END, "the host has ended in the middle of a message");
        count += more;
    }
    return PIPEWRIGHT_OK;
}

/* Takes the header at the front of the bytes that have arrived. `found` becomes 1 if it is complete. */
static int pw_header(pipewright_channel *channel, pw_frame *frame, int *found) {
    pw_buffer *arrived = &channel->arrived;
    size_t there = arrived->end - arrived->at, size = PW_HEADER_BYTES;
    const unsigned char *bytes;
    int result;
    *found = 0;
    if (there < size) return PIPEWRIGHT_OK;
    bytes = arrived->data + arrived->at;
    memset(frame, 0, sizeof *frame);
    frame->length = (uint32_t)pw_get(bytes, 4);
    frame->kind = bytes[4];
    frame->flags = bytes[5];
    frame->handles = (uint16_t)pw_get(bytes + 6, 2);
    frame->id = pw_get(bytes + 8, 8);
    result = pw_check_flags(frame);
    if (result) return result;
    if (frame->flags & PW_LONG) {
        size += 8;
        if (there < size) return PIPEWRIGHT_OK;
        frame->total = pw_get(bytes + PW_HEADER_BYTES, 8);
    }
    arrived->at += size;
    *found = 1;
    return PIPEWRIGHT_OK;
}

static int pw_backlog(void) {
    return pw_fail(PIPEWRIGHT_BACKLOG, "the host sends more than it receives: the backlog is full");
}

#ifdef _WIN32

/* Writes everything. Receives meanwhile. */
static int pw_write(pipewright_channel *channel, const unsigned char *data, size_t length) {
    pw_pipe *pipe = &channel->pipe;
    HANDLE file = pw_handle(channel->socket), events[2];
    events[0] = pipe->writing.hEvent;
    events[1] = pipe->reading.hEvent;
    while (length > 0) {
        DWORD count = 0;
        int result = PIPEWRIGHT_OK, any;
        if (!WriteFile(file, data, (DWORD)length, NULL, &pipe->writing) && GetLastError() != ERROR_IO_PENDING)
            return pw_is_end(GetLastError()) ? pw_gone() : pw_system("WriteFile");
        for (;;) {
            DWORD first;
            if (!result && !channel->ended) result = pw_begin_read(channel);
            first = WaitForMultipleObjects(pipe->is_reading ? 2 : 1, events, FALSE, pipe->at < pipe->end ? 0 : INFINITE);
            if (first == WAIT_OBJECT_0) break;
            if (!result) result = pw_receive(channel, 0, &any);
            if (!result && channel->arrived.end - channel->arrived.at > channel->max_backlog_bytes) result = pw_backlog();
            if (result) {
                CancelIoEx(file, &pipe->writing);
                break;
            }
        }
        /* The buffer is in use until then. */
        if (!GetOverlappedResult(file, &pipe->writing, &count, TRUE) && !result)
            result = pw_is_end(GetLastError()) ? pw_gone() : pw_system("WriteFile");
        if (result) return result;
        data += count;
        length -= count;
    }
    return PIPEWRIGHT_OK;
}

/* Sends everything, in packets. The host takes the handles from this process, so it gets copies. */
static int pw_send_parts(pipewright_channel *channel, const void *head, size_t head_length, const void *body,
                         size_t body_length, const int *handles, int handle_count) {
    enum { MOST = 256 << 10 };
    const unsigned char *from = (const unsigned char *)body;
    pw_buffer *packet = &channel->pipe.packet;
    int result = PIPEWRIGHT_OK, at;
    if (handle_count > 0 && !channel->pipe.is_confirmed)
        return pw_fail(PIPEWRIGHT_SYSTEM, "handles cannot be passed: another program runs between the host and this worker");
    while (!result && head_length + body_length > 0) {
        size_t part = body_length < MOST ? body_length : MOST;
        unsigned char bytes[8] = {0};
        packet->at = packet->end = 0;
        if (channel->pipe.is_confirmed && !channel->pipe.is_introduced) {
            channel->pipe.is_introduced = 1;
            pw_put(bytes, GetCurrentProcessId(), 4);
            pw_put(bytes + 6, 1, 2);
            result = pw_append(packet, bytes, 8);
        }
        pw_put(bytes, head_length + part, 4);
        pw_put(bytes + 4, (uint64_t)handle_count, 2);
        pw_put(bytes + 6, 0, 2);
        if (!result) result = pw_append(packet, bytes, 8);
        for (at = 0; at < handle_count && !result; at++) {
            HANDLE own = GetCurrentProcess(), copy;
            if (!DuplicateHandle(own, pw_handle(handles[at]), own, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
                return pw_system("DuplicateHandle");
            pw_put(bytes, (uint64_t)(intptr_t)copy, 8);
            result = pw_append(packet, bytes, 8);
        }
        if (!result) result = pw_append(packet, head, head_length);
        if (!result) result = pw_append(packet, from, part);
        if (!result) result = pw_write(channel, packet->data, packet->end);
        if (from) from += part;
        body_length -= part;
        head_length = 0;
        handle_count = 0;
    }
    return result;
}

#else

/* Sends everything. Receives meanwhile: the host may be waiting for room too. */
static int pw_send_parts(pipewright_channel *channel, const void *head, size_t head_length, const void *body,
                         size_t body_length, const int *handles, int handle_count) {
    struct iovec parts[2];
    struct iovec *first = parts;
    struct msghdr message;
    pw_control control;
    int left = 2;
    parts[0].iov_base = (void *)(uintptr_t)head;
    parts[0].iov_len = head_length;
    parts[1].iov_base = (void *)(uintptr_t)body;
    parts[1].iov_len = body_length;
    while (left > 0) {
        ssize_t sent;
        if (first->iov_len == 0) {
            first++;
            left--;
            continue;
        }
        memset(&message, 0, sizeof message);
        message.msg_iov = first;
        message.msg_iovlen = (unsigned)left;
        if (handle_count > 0) {
            struct cmsghdr *header;
            memset(&control, 0, sizeof control);
            message.msg_control = control.bytes;
            message.msg_controllen = CMSG_SPACE((size_t)handle_count * sizeof(int));
            header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN((size_t)handle_count * sizeof(int));
            memcpy(CMSG_DATA(header), handles, (size_t)handle_count * sizeof(int));
        }
        sent = sendmsg(channel->socket, &message, MSG_DONTWAIT | PW_NOSIGNAL);
        if (sent >= 0) {
            handle_count = 0; /* they went with the first byte */
            while (left > 0 && (size_t)sent >= first->iov_len) {
                sent -= (ssize_t)first->iov_len;
                first++;
                left--;
            }
            if (left > 0) {
                first->iov_base = (unsigned char *)first->iov_base + sent;
                first->iov_len -= (size_t)sent;
            }
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
            int any, result, ready = pw_wait(channel, channel->ended ? POLLOUT : POLLOUT | POLLIN, -1);
            if (!(ready & POLLIN) || channel->ended) continue;
            result = pw_receive(channel, 0, &any);
            if (result) return result;
            if (channel->arrived.end - channel->arrived.at > channel->max_backlog_bytes) return pw_backlog();
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return pw_gone();
        } else if (errno != EINTR) {
            return pw_system("sendmsg");
        }
    }
    return PIPEWRIGHT_OK;
}

#endif /* _WIN32 */

/* ---- The ring. ---- */

#if PW_HAS_RING

enum { PW_HEAD = 0, PW_TAIL = 128, PW_SLEEP = 256 };

static uint64_t pw_load(const unsigned char *object, int word) {
    return __atomic_load_n((const uint64_t *)(const void *)(object + word), __ATOMIC_ACQUIRE);
}

static void pw_store(unsigned char *object, int word, uint64_t value) {
    __atomic_store_n((uint64_t *)(void *)(object + word), value, __ATOMIC_RELEASE);
}

static void pw_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

static size_t pw_record_bytes(uint32_t length) { return ((size_t)length + PW_RECORD_BYTES + 63) & ~(size_t)63; }

/* Sets the reason why there is no shared memory. Returns 0. */
static int pw_no_ring(pipewright_channel *channel, const char *reason) {
    snprintf(channel->fallback, sizeof channel->fallback, "%s", reason);
    return 0;
}

static int pw_no_ring_by(pipewright_channel *channel, const char *call) {
    snprintf(channel->fallback, sizeof channel->fallback, "%s: %s", call, pw_reason());
    return 0;
}

#ifdef _WIN32

static void pw_ring_free(pw_ring *ring) {
    if (ring->ours) UnmapViewOfFile(ring->ours);
    if (ring->theirs) UnmapViewOfFile(ring->theirs);
    if (ring->handle >= 0) pw_close_handle(ring->handle);
    memset(ring, 0, sizeof *ring);
    ring->handle = -1;
}

/* Creates the object that this side writes, and a handle of it that can only be read. Returns 1 if there is one. */
static int pw_ring_create(pipewright_channel *channel, size_t bytes) {
    pw_ring *ring = &channel->ring;
    HANDLE section, own = GetCurrentProcess(), readable;
    LARGE_INTEGER now;
    size_t size = PW_MIN_RING, whole;
    while (size < bytes && size < PW_MAX_RING) size *= 2;
    whole = PW_CONTROL_BYTES + size;
    section = CreateFileMappingA(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE | SEC_COMMIT, 0, (DWORD)whole, NULL);
    if (!section) return pw_no_ring_by(channel, "CreateFileMapping");
    ring->ours = (unsigned char *)MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, whole);
    if (ring->ours && DuplicateHandle(own, section, own, &readable, FILE_MAP_READ | SECTION_QUERY, FALSE, 0)) {
        ring->handle = (int)(intptr_t)readable;
    } else {
        pw_no_ring_by(channel, ring->ours ? "DuplicateHandle" : "MapViewOfFile");
    }
    CloseHandle(section);
    if (ring->handle < 0) return 0;
    ring->size = size;
    QueryPerformanceCounter(&now);
    ring->nonce = ((uint64_t)now.QuadPart << 20) ^ GetCurrentProcessId() ^ (uint64_t)(uintptr_t)ring->ours;
    pw_put(ring->ours + PW_CONTROL_BYTES, ring->nonce, 8);
    return 1;
}

/* Maps the host's object. Returns 1 if it can be used. */
static int pw_ring_open(pipewright_channel *channel, int handle, uint64_t size, uint64_t *proof) {
    struct {
        void *base;
        ULONG kind;
        LARGE_INTEGER bytes;
    } info;
    typedef LONG(NTAPI * pw_query)(HANDLE, int, void *, SIZE_T, SIZE_T *);
    const ULONG sec_file = 0x800000;
    HMODULE ntdll = GetModuleHandleA("ntdll.dll");
    pw_query query = ntdll ? (pw_query)(void (*)(void))GetProcAddress(ntdll, "NtQuerySection") : NULL;
    pw_ring *ring = &channel->ring;
    uint64_t whole = PW_CONTROL_BYTES + size;
    if (size < PW_MIN_RING || size > PW_MAX_RING || (size & (size - 1)))
        return pw_no_ring(channel, "the size of the host's ring is not allowed");
    memset(&info, 0, sizeof info);
    if (!query || query(pw_handle(handle), 0, &info, sizeof info, NULL) < 0)
        return pw_no_ring(channel, "shared memory was refused: it is not a section that can be queried");
    /* Others may lose their pages. */
    if ((info.kind & (sec_file | SEC_IMAGE | SEC_RESERVE | SEC_COMMIT)) != SEC_COMMIT)
        return pw_no_ring(channel, "shared memory was refused: it is a file mapping, or not committed");
    if ((uint64_t)info.bytes.QuadPart != whole)
        return pw_no_ring(channel, "shared memory was refused: its size is not the announced one");
    ring->theirs = (unsigned char *)MapViewOfFile(pw_handle(handle), FILE_MAP_READ, 0, 0, (SIZE_T)whole);
    if (!ring->theirs) return pw_no_ring_by(channel, "MapViewOfFile");
    ring->their_size = (size_t)size;
    *proof = pw_get(ring->theirs + PW_CONTROL_BYTES, 8);
    return 1;
}

#else

enum {
    PW_F_ADD_SEALS = 1033,
    PW_F_GET_SEALS = 1034,
    PW_SEALS = 0x01 | 0x02 | 0x04 | 0x10, /* SEAL, SHRINK, GROW, FUTURE_WRITE */
    PW_MFD_CLOEXEC = 0x1,
    PW_MFD_ALLOW_SEALING = 0x2,
    PW_MFD_NOEXEC_SEAL = 0x8,
    PW_MADV_DONTFORK = 10
};

static void pw_ring_free(pw_ring *ring) {
    if (ring->ours) munmap(ring->ours, PW_CONTROL_BYTES + ring->size);
    if (ring->theirs) munmap(ring->theirs, PW_CONTROL_BYTES + ring->their_size);
    if (ring->handle >= 0) close(ring->handle);
    memset(ring, 0, sizeof *ring);
    ring->handle = -1;
}

/* Creates the object that this side writes. Returns 1 if there is one. */
static int pw_ring_create(pipewright_channel *channel, size_t bytes) {
    pw_ring *ring = &channel->ring;
    struct rlimit limit;
    size_t size = PW_MIN_RING, whole;
    void *place;
    unsigned flags = PW_MFD_CLOEXEC | PW_MFD_ALLOW_SEALING;
    while (size < bytes && size < PW_MAX_RING) size *= 2;
    whole = PW_CONTROL_BYTES + size;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < whole)
        return pw_no_ring(channel, "the shared memory is larger than the file size limit (RLIMIT_FSIZE)");
    ring->handle = (int)syscall(SYS_memfd_create, "pipewright", flags | PW_MFD_NOEXEC_SEAL);
    if (ring->handle < 0) ring->handle = (int)syscall(SYS_memfd_create, "pipewright", flags); /* before Linux 6.3 */
    if (ring->handle < 0) return pw_no_ring_by(channel, "memfd_create");
    if (ftruncate(ring->handle, (off_t)whole)) return pw_no_ring_by(channel, "ftruncate");
    place = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, ring->handle, 0);
    if (place == MAP_FAILED) return pw_no_ring_by(channel, "mmap");
    ring->ours = (unsigned char *)place;
    ring->size = size;
    if (fcntl(ring->handle, PW_F_ADD_SEALS, PW_SEALS)) return pw_no_ring_by(channel, "fcntl(F_ADD_SEALS)");
    /* A page that cannot be allocated later would end this process (SIGBUS). */
    if (fallocate(ring->handle, 0, 0, (off_t)whole)) return pw_no_ring_by(channel, "fallocate");
    madvise(place, whole, PW_MADV_DONTFORK);
    if (syscall(SYS_getrandom, &ring->nonce, sizeof ring->nonce, 0) != (long)sizeof ring->nonce) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        ring->nonce = ((uint64_t)now.tv_nsec << 20) ^ (uint64_t)getpid() ^ (uint64_t)(uintptr_t)place;
    }
    pw_put(ring->ours + PW_CONTROL_BYTES, ring->nonce, 8);
    return 1;
}

/* Maps the host's object. Returns 1 if it can be used. */
static int pw_ring_open(pipewright_channel *channel, int handle, uint64_t size, uint64_t *proof) {
    pw_ring *ring = &channel->ring;
    struct stat stat;
    uint64_t whole = PW_CONTROL_BYTES + size;
    void *place;
    int seals;
    if (size < PW_MIN_RING || size > PW_MAX_RING || (size & (size - 1)))
        return pw_no_ring(channel, "the size of the host's ring is not allowed");
    seals = fcntl(handle, PW_F_GET_SEALS);
    if (seals < 0 || (seals & PW_SEALS) != PW_SEALS)
        return pw_no_ring(channel, "shared memory was refused: it is not sealed");
    if (fstat(handle, &stat) || (uint64_t)stat.st_size != whole)
        return pw_no_ring(channel, "shared memory was refused: its size is not the announced one");
    /* Removes pages behind the end, which would be counted below. */
    if (ftruncate(handle, (off_t)whole)) return pw_no_ring_by(channel, "ftruncate");
    if (fstat(handle, &stat) || (uint64_t)stat.st_blocks * 512 < whole)
        return pw_no_ring(channel, "shared memory was refused: it has holes");
    place = mmap(NULL, (size_t)whole, PROT_READ, MAP_SHARED, handle, 0);
    if (place == MAP_FAILED) return pw_no_ring_by(channel, "mmap");
    madvise(place, (size_t)whole, PW_MADV_DONTFORK);
    ring->theirs = (unsigned char *)place;
    ring->their_size = (size_t)size;
    *proof = pw_get(ring->theirs + PW_CONTROL_BYTES, 8);
    return 1;
}

#endif /* _WIN32 */

static int pw_bad_record(void) {
    return pw_fail(PIPEWRIGHT_PROTOCOL, "a record does not fit at its position in the ring");
}

/* Finds the next record, which keeps its place until it is released. */
static int pw_peek(pw_ring *ring) {
    while (!ring->has_next) {
        uint64_t words[4];
        unsigned char bytes[PW_RECORD_BYTES];
        pw_frame *next = &ring->next;
        uint64_t there;
        size_t at, left, size;
        int word, result;
        if (ring->tail == ring->seen_head) {
            uint64_t head = pw_load(ring->theirs, PW_HEAD);
            if (head == ring->seen_head) return PIPEWRIGHT_OK;
            if (head < ring->seen_head || head - ring->tail > ring->their_size || head % 64)
                return pw_fail(PIPEWRIGHT_PROTOCOL, "HEAD of the ring is out of range");
            ring->seen_head = head;
        }
        at = (size_t)(ring->tail & (ring->their_size - 1));
        there = ring->seen_head - ring->tail;
        left = ring->their_size - at;
        /* Each word is read once: the host could change it while it is checked. */
        for (word = 0; word < 4; word++)
            words[word] = __atomic_load_n(
                (const uint64_t *)(const void *)(ring->theirs + PW_CONTROL_BYTES + at + 8 * word), __ATOMIC_RELAXED);
        memcpy(bytes, words, sizeof bytes);
        memset(next, 0, sizeof *next);
        next->length = (uint32_t)pw_get(bytes, 4);
        next->kind = bytes[4];
        next->flags = bytes[5];
        next->handles = (uint16_t)pw_get(bytes + 6, 2);
        next->id = pw_get(bytes + 8, 8);
        next->after = pw_get(bytes + 16, 8);
        next->total = pw_get(bytes + 24, 8);
        result = pw_check_flags(next);
        if (result) return result;
        if (next->kind == PW_PAD) {
            if (left >= there) return pw_bad_record();
            ring->tail += left;
            continue;
        }
        size = pw_record_bytes(next->length);
        if (size > left || size > there) return pw_bad_record();
        if (next->handles) return pw_fail(PIPEWRIGHT_PROTOCOL, "a record announces handles");
        next->in_ring = 1;
        next->at = PW_CONTROL_BYTES + at + PW_RECORD_BYTES;
        next->end = ring->tail + size;
        ring->has_next = 1;
    }
    return PIPEWRIGHT_OK;
}

/* Copies the body of the next record, and frees its place. */
static void pw_read_record(pw_ring *ring, unsigned char *to) {
    if (ring->next.length) memcpy(to, ring->theirs + ring->next.at, ring->next.length);
    ring->has_next = 0;
    ring->tail = ring->next.end;
    if (ring->tail == ring->seen_head || ring->tail - ring->known_tail >= ring->their_size / 16) {
        ring->known_tail = ring->tail;
        pw_store(ring->ours, PW_TAIL, ring->tail);
    }
}

static int pw_has_records(const pw_ring *ring) {
    return ring->has_next || pw_load(ring->theirs, PW_HEAD) != ring->tail;
}

static void pw_wake_up(pw_ring *ring) { pw_store(ring->ours, PW_SLEEP, ++ring->sleeps); }

/* Announces a wait for the socket. Returns 0 if a record has arrived meanwhile. */
static int pw_fall_asleep(pw_ring *ring) {
    pw_store(ring->ours, PW_SLEEP, ++ring->sleeps);
    pw_fence();
    if (!pw_has_records(ring)) return 1;
    pw_wake_up(ring);
    return 0;
}

/* Returns the number of the host's sleep, if something in the socket has to end it; else 0. */
static uint64_t pw_sleep_to_end(const pw_ring *ring) {
    uint64_t sleep = pw_load(ring->theirs, PW_SLEEP);
    return sleep & 1 && sleep != ring->woken ? sleep : 0;
}

/* Writes and publishes a record. `written` becomes 1 if there was room. */
static int pw_write_record(pw_ring *ring, const pw_frame *frame, const void *body, int *written) {
    size_t size = pw_record_bytes(frame->length), at = (size_t)(ring->head & (ring->size - 1));
    size_t pad = size > ring->size - at ? ring->size - at : 0;
    unsigned char *data = ring->ours + PW_CONTROL_BYTES;
    *written = 0;
    if (size + pad > ring->size) return PIPEWRIGHT_OK;
    if (ring->head + pad + size - ring->free_from > ring->size) {
        uint64_t tail = pw_load(ring->theirs, PW_TAIL);
        if (tail < ring->free_from || tail > ring->head || tail % 64)
            return pw_fail(PIPEWRIGHT_PROTOCOL, "TAIL of the ring is out of range");
        ring->free_from = tail;
        if (ring->head + pad + size - tail > ring->size) return PIPEWRIGHT_OK;
    }
    if (pad) {
        memset(data + at, 0, PW_RECORD_BYTES);
        data[at + 4] = PW_PAD;
        at = 0;
    }
    pw_put(data + at, frame->length, 4);
    data[at + 4] = frame->kind;
    data[at + 5] = frame->flags;
    pw_put(data + at + 6, 0, 2);
    pw_put(data + at + 8, frame->id, 8);
    pw_put(data + at + 16, frame->after, 8);
    pw_put(data + at + 24, frame->total, 8);
    if (frame->length) memcpy(data + at + PW_RECORD_BYTES, body, frame->length);
    ring->head += pad + size;
    pw_store(ring->ours, PW_HEAD, ring->head);
    *written = 1;
    return PIPEWRIGHT_OK;
}

static void pw_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Looks for a record for a bounded time. Returns 1 if there is one. A spin that fails costs credit. Without credit there is an
   occasional try, which is the rarer the more of them have failed. */
static int pw_spin_for_record(pipewright_channel *channel) {
    pw_spin *spin = &channel->spin;
    uint64_t until = 0;
    if (spin->most_us <= 0) return 0;
    if (spin->credit == 0) {
        if (--spin->until_try > 0) return 0;
        spin->credit = 1;
    }
    for (;;) {
        int at;
        for (at = 0; at < 32; at++) {
            if (pw_has_records(&channel->ring)) {
                spin->credit = spin->credit + 2 > 8 ? 8 : spin->credit + 2;
                spin->pause = 8;
                return 1;
            }
            pw_relax();
        }
        if (until == 0) {
            until = pw_now_us() + (uint64_t)spin->most_us;
        } else if (pw_now_us() >= until) {
            break;
        }
    }
    if (--spin->credit == 0) {
        if (spin->pause < 1024) spin->pause *= 2;
        spin->until_try = spin->pause;
    }
    return 0;
}

#endif /* PW_HAS_RING */

/* ---- Frames and messages. ---- */

static int pw_send_frame(pipewright_channel *channel, const pw_frame *frame, const void *body, const int *handles) {
    unsigned char head[PW_HEADER_BYTES + 8];
    size_t size = PW_HEADER_BYTES;
#if PW_HAS_RING
    if (channel->has_ring && frame->handles == 0) {
        pw_ring *ring = &channel->ring;
        uint64_t sleep = frame->length < PW_SHORT_BYTES ? pw_sleep_to_end(ring) : 0;
        if (sleep) {
            ring->woken = sleep; /* by this frame */
        } else {
            pw_frame record = *frame;
            int written, result;
            record.after = channel->put;
            result = pw_write_record(ring, &record, body, &written);
            if (result) return result;
            if (written) {
                pw_fence();
                sleep = pw_sleep_to_end(ring);
                if (!sleep) return PIPEWRIGHT_OK;
                ring->woken = sleep;
                memset(head, 0, sizeof head);
                head[4] = PW_WAKE;
                return pw_send_parts(channel, head, PW_HEADER_BYTES, NULL, 0, NULL, 0);
            }
        }
    }
#endif
    pw_put(head, frame->length, 4);
    head[4] = frame->kind;
    head[5] = frame->flags;
    pw_put(head + 6, frame->handles, 2);
    pw_put(head + 8, frame->id, 8);
    if (frame->flags & PW_LONG) {
        pw_put(head + 16, frame->total, 8);
        size += 8;
    }
    channel->put++;
    return pw_send_parts(channel, head, size, body, frame->length, handles, frame->handles);
}

static int pw_send_message(pipewright_channel *channel, int kind, uint64_t id, const void *data, size_t length,
                           const int *handles, int count) {
    const unsigned char *body = (const unsigned char *)data;
    /* The host reads the first frame of a ring while the last is written. A socket needs no such help. */
    size_t step = channel->has_ring && count == 0 ? (size_t)PW_FRAME_BYTES : length, at = 0;
    pw_frame frame;
    if (length > channel->max_message_bytes)
        return pw_fail(PIPEWRIGHT_TOO_LONG, "a message of %llu bytes exceeds the agreed maximum of %llu",
                       (unsigned long long)length, (unsigned long long)channel->max_message_bytes);
    if (channel->said_goodbye) return pw_fail(PIPEWRIGHT_END, "the connection is closed");
    memset(&frame, 0, sizeof frame);
    frame.kind = (uint8_t)kind;
    frame.id = id;
    frame.handles = (uint16_t)count;
    if (length > step) {
        frame.flags = PW_LONG;
        frame.total = length;
    }
    do {
        int result;
        frame.length = (uint32_t)(length - at < step ? length - at : step);
        result = pw_send_frame(channel, &frame, body ? body + at : body, handles);
        if (result) return result;
        at += frame.length;
        frame.kind = PW_PART;
        frame.flags = 0;
        frame.total = 0;
        frame.handles = 0;
    } while (at < length);
    return PIPEWRIGHT_OK;
}

static int pw_unexpected(const pw_frame *frame) {
    return pw_fail(PIPEWRIGHT_PROTOCOL, "unexpected frame of kind %u", (unsigned)frame->kind);
}

/* Finds the next frame in order. Its body stays in the ring or in the socket. `found` becomes 0 if there is none, which only
   happens without `wait`. */
static int pw_next_frame(pipewright_channel *channel, pw_frame *frame, int wait, int *found) {
    for (;;) {
        int result, any, waits_for_socket = 1;
#if PW_HAS_RING
        if (channel->has_ring) {
            pw_ring *ring = &channel->ring;
            result = pw_peek(ring);
            if (result) return result;
            waits_for_socket = ring->has_next;
            if (ring->has_next) {
                if (ring->next.after < channel->taken)
                    return pw_fail(PIPEWRIGHT_PROTOCOL, "a record came too late");
                if (ring->next.after == channel->taken) {
                    *frame = ring->next;
                    *found = 1;
                    return PIPEWRIGHT_OK;
                }
            }
        }
#endif
        /* These bytes arrived before the ring was looked at. */
        result = pw_header(channel, frame, found);
        if (result) return result;
        if (*found) {
            if (frame->kind == PW_WAKE) {
                if (frame->length || frame->flags || frame->handles)
                    return pw_fail(PIPEWRIGHT_PROTOCOL, "a WAKE has a body");
                continue;
            }
            channel->taken++;
            return PIPEWRIGHT_OK;
        }
        if (channel->ended) return pw_gone();
        if (!wait) {
            result = pw_receive(channel, 0, &any);
            if (result || (!any && !channel->ended)) return result;
            continue;
        }
#if PW_HAS_RING
        if (!waits_for_socket) {
            if (pw_spin_for_record(channel) || !pw_fall_asleep(&channel->ring)) continue;
            result = pw_receive(channel, 1, &any);
            pw_wake_up(&channel->ring);
            if (result) return result;
            continue;
        }
#endif
        (void)waits_for_socket;
        result = pw_receive(channel, 1, &any);
        if (result) return result;
    }
}

/* Appends the body of a frame. */
static int pw_body(pipewright_channel *channel, const pw_frame *frame, pw_buffer *to) {
    int result = pw_reserve(to, frame->length);
    if (result) return result;
#if PW_HAS_RING
    if (frame->in_ring) {
        pw_read_record(&channel->ring, to->data + to->end);
        to->end += frame->length;
        return PIPEWRIGHT_OK;
    }
#endif
    result = pw_take(channel, to->data + to->end, frame->length);
    if (!result) to->end += frame->length;
    return result;
}

static int pw_try_receive_message(
    pipewright_channel *channel, int wait, uint8_t *kind, uint64_t *id, pw_buffer *body, int *found) {
    pw_frame frame;
    uint64_t total;
    int result, is_long, at;
    *found = 0;
    body->at = body->end = 0;
    pw_close_all(channel->message_handles, &channel->message_handle_count);
    if (channel->heard_goodbye) return pw_fail(PIPEWRIGHT_END, "the host has closed the connection");
    result = pw_next_frame(channel, &frame, wait, found);
    if (result || !*found) return result;
    is_long = frame.flags & PW_LONG;
    if (frame.kind == PW_GOODBYE) {
        if (frame.length || is_long || frame.handles) return pw_fail(PIPEWRIGHT_PROTOCOL, "a GOODBYE has a body");
        channel->heard_goodbye = 1;
        return pw_fail(PIPEWRIGHT_END, "the host has closed the connection");
    }
    if (frame.kind < PW_MESSAGE || frame.kind > PW_ITEMS_END) return pw_unexpected(&frame);
    total = is_long ? frame.total : frame.length;
    if (total > channel->max_message_bytes)
        return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame or message of %llu bytes exceeds the agreed maximum of %llu",
                       (unsigned long long)total, (unsigned long long)channel->max_message_bytes);
    if (is_long && (total <= frame.length || frame.length == 0))
        return pw_fail(PIPEWRIGHT_PROTOCOL, "the parts of a message do not add up to its length");
    if (frame.handles > channel->handle_count)
        return pw_fail(PIPEWRIGHT_PROTOCOL, channel->lost_handles
                                                ? "the handles of a frame were lost: this process may have no more"
                                                : "a frame announces handles, and none came");
    for (at = 0; at < frame.handles; at++) channel->message_handles[at] = channel->handles[at];
    channel->message_handle_count = frame.handles;
    channel->handle_count -= frame.handles;
    memmove(channel->handles, channel->handles + frame.handles, (size_t)channel->handle_count * sizeof(int));
    *kind = frame.kind;
    *id = frame.id;
    /* One place for the whole message, so that it is not moved. */
    result = pw_reserve(body, (size_t)total);
    if (!result) result = pw_body(channel, &frame, body);
    while (!result && body->end < total) {
        pw_frame part;
        int found_part;
        result = pw_next_frame(channel, &part, 1, &found_part);
        if (result) break;
        if (part.kind != PW_PART) return pw_unexpected(&part);
        if (part.length == 0 || part.length > total - body->end || part.flags || part.handles || part.id != frame.id)
            return pw_fail(PIPEWRIGHT_PROTOCOL, "the parts of a message do not add up to its length");
        result = pw_body(channel, &part, body);
    }
    return result;
}

/* Receives the next message into the buffer, and its handles into the channel. `found` becomes 0 if none has arrived. */
static int pw_receive_message(
    pipewright_channel *channel, int wait, uint8_t *kind, uint64_t *id, pw_buffer *body, int *found) {
    *found = 0;
    if (channel->broken) return channel->broken;
    channel->broken = pw_try_receive_message(channel, wait, kind, id, body, found);
    return channel->broken;
}

static void pw_free(pipewright_channel *channel) {
    if (!channel) return;
#if PW_HAS_RING
    pw_ring_free(&channel->ring);
#endif
    pw_close_all(channel->handles, &channel->handle_count);
    pw_close_all(channel->message_handles, &channel->message_handle_count);
    pw_close_socket(channel);
    free(channel->arrived.data);
    free(channel->message.data);
    free(channel);
}

static int pw_goodbye(pipewright_channel *channel) {
    pw_frame frame;
    if (channel->said_goodbye) return PIPEWRIGHT_OK;
    channel->said_goodbye = 1;
    memset(&frame, 0, sizeof frame);
    frame.kind = PW_GOODBYE;
    return pw_send_frame(channel, &frame, NULL, NULL);
}

/* ---- The handshake. ---- */

#ifdef _WIN32

/* Returns 1 if the pipe was opened for overlapped calls. */
static int pw_is_overlapped(HANDLE file) {
    struct {
        void *status;
        ULONG_PTR information;
    } io;
    typedef LONG(NTAPI * pw_query)(HANDLE, void *, void *, ULONG, int);
    enum { FILE_MODE_INFORMATION_CLASS = 16, SYNCHRONOUS = 0x10 | 0x20 };
    HMODULE ntdll = GetModuleHandleA("ntdll.dll");
    pw_query query = ntdll ? (pw_query)(void (*)(void))GetProcAddress(ntdll, "NtQueryInformationFile") : NULL;
    ULONG mode = SYNCHRONOUS;
    return query && query(file, &io, &mode, sizeof mode, FILE_MODE_INFORMATION_CLASS) >= 0 && !(mode & SYNCHRONOUS);
}

/* Returns the number of the pipe that the host passed on, or -1. */
static int pw_inherited(void) {
    char text[16];
    DWORD length = GetEnvironmentVariableA("PIPEWRIGHT_IPC", text, sizeof text), flags;
    long number = 0;
    const char *at;
    if (length == 0 || length > 9) return -1;
    for (at = text; *at; at++) {
        if (*at < '0' || *at > '9') return -1;
        number = number * 10 + (*at - '0');
    }
    /* Handles are multiples of 4, and the system ignores the lower two bits. */
    if (number <= 2 || number % 4 || !GetHandleInformation(pw_handle((int)number), &flags)) return -1;
    if (!(flags & HANDLE_FLAG_INHERIT) || GetFileType(pw_handle((int)number)) != FILE_TYPE_PIPE) return -1;
    return pw_is_overlapped(pw_handle((int)number)) ? (int)number : -1;
}

/* Keeps children from inheriting the pipe. */
static void pw_claim(int number) { SetHandleInformation(pw_handle(number), HANDLE_FLAG_INHERIT, 0); }

/* Writes the user's security identifier. */
static void pw_user(char *to, size_t room) {
    HANDLE token;
    union {
        TOKEN_USER user;
        unsigned char bytes[256];
    } info;
    DWORD length;
    char *text;
    to[0] = 0;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token)) return;
    if (GetTokenInformation(token, TokenUser, &info, sizeof info, &length) &&
        ConvertSidToStringSidA(info.user.User.Sid, &text)) {
        snprintf(to, room, "%s", text);
        LocalFree(text);
    }
    CloseHandle(token);
}

static long pw_processors(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (long)info.dwNumberOfProcessors;
}

#else

static int pw_open_pipe(pipewright_channel *channel) {
    (void)channel;
    return PIPEWRIGHT_OK;
}

static void pw_claim(int number) {
    fcntl(number, F_SETFD, FD_CLOEXEC);
#ifndef __linux__
    /* macOS ignores MSG_DONTWAIT when it sends. The end is ours alone. */
    fcntl(number, F_SETFL, fcntl(number, F_GETFL) | O_NONBLOCK);
#endif
}

static void pw_user(char *to, size_t room) { snprintf(to, room, "%lu", (unsigned long)geteuid()); }

static long pw_processors(void) { return sysconf(_SC_NPROCESSORS_ONLN); }

/* Returns 1 if the address is that of a Unix socket without a name. */
static int pw_is_unnamed(int got, const struct sockaddr_un *address, socklen_t length) {
    return got == 0 && address->sun_family == AF_UNIX &&
           (length <= (socklen_t)offsetof(struct sockaddr_un, sun_path) || address->sun_path[0] == 0);
}

/* Returns the number of the socket that the host passed on, or -1. */
static int pw_inherited(void) {
    const char *text = getenv("PIPEWRIGHT_IPC"), *ident = getenv("PIPEWRIGHT_IPC_ID");
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    struct stat stat;
    char expected[96];
    long number = 0;
    int flags, kind = 0;
    const char *at;
    if (!text || !*text || strlen(text) > 9) return -1;
    for (at = text; *at; at++) {
        if (*at < '0' || *at > '9') return -1;
        number = number * 10 + (*at - '0');
    }
    if (number <= 2) return -1;
    flags = fcntl((int)number, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) || fstat((int)number, &stat) || !S_ISSOCK(stat.st_mode)) return -1;
    snprintf(expected, sizeof expected, "%ld:%llu:%llu", number, (unsigned long long)stat.st_dev,
             (unsigned long long)stat.st_ino);
    /* A host that does not set the second variable may leave one of another host behind. */
    if (ident && strncmp(ident, text, strlen(text)) == 0 && ident[strlen(text)] == ':' && strcmp(ident, expected) != 0)
        return -1;
    memset(&address, 0, sizeof address);
    if (!pw_is_unnamed(getsockname((int)number, (struct sockaddr *)&address, &length), &address, length)) return -1;
    length = sizeof address;
    memset(&address, 0, sizeof address);
    if (!pw_is_unnamed(getpeername((int)number, (struct sockaddr *)&address, &length), &address, length)) return -1;
    length = sizeof kind;
    if (getsockopt((int)number, SOL_SOCKET, SO_TYPE, &kind, &length) || kind != SOCK_STREAM) return -1;
    return (int)number;
}

#endif /* _WIN32 */

PW_PUBLIC int pipewright_is_worker(void) { return pw_claimed || pw_inherited() >= 0; }

static const char *pw_arch(void) {
#if defined(__x86_64__) || defined(_M_X64)
    return "x86_64";
#elif defined(__aarch64__) || defined(_M_ARM64)
    return "aarch64";
#elif defined(__i386__) || defined(_M_IX86)
    return "x86";
#elif defined(__arm__)
    return "arm";
#elif defined(__riscv) && UINTPTR_MAX > 0xffffffffu
    return "riscv64";
#elif defined(__powerpc64__)
    return "powerpc64";
#elif defined(__s390x__)
    return "s390x";
#elif defined(__loongarch64)
    return "loongarch64";
#else
    return "unknown";
#endif
}

/* Appends `key=value`, without control characters. */
static int pw_add_field(pw_buffer *body, const char *key, const char *value) {
    int result = pw_append(body, key, strlen(key));
    const unsigned char *at;
    if (!result) result = pw_append(body, "=", 1);
    for (at = (const unsigned char *)value; !result && *at; at++) {
        if (*at < ' ' || *at == 127) continue;
        if (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f) {
            at++;
            continue;
        }
        result = pw_append(body, at, 1);
    }
    return result ? result : pw_append(body, "\n", 1);
}

/* Finds the value of a field in a body. Returns NULL if there is none. */
static const char *pw_field(const pw_buffer *body, const char *key, size_t *length) {
    const char *at = (const char *)body->data, *end = at + body->end;
    size_t key_length = strlen(key);
    while (at < end) {
        const char *line_end = (const char *)memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((line_end ? line_end : end) - at);
        if (line > key_length && memcmp(at, key, key_length) == 0 && at[key_length] == '=') {
            *length = line - key_length - 1;
            return at + key_length + 1;
        }
        at += line + 1;
    }
    return NULL;
}

/* Copies a value, cut to the size of the place. */
static void pw_copy_field(const pw_buffer *body, const char *key, char *to, size_t room, const char *otherwise) {
    size_t length;
    const char *value = pw_field(body, key, &length);
    if (!value) {
        value = otherwise;
        length = strlen(otherwise);
    }
    if (length >= room) length = room - 1;
    memcpy(to, value, length);
    to[length] = 0;
}

/* Returns 1 if the field is a number of 64 bits. */
static int pw_number(const pw_buffer *body, const char *key, uint64_t *number) {
    size_t length, at;
    const char *value = pw_field(body, key, &length);
    *number = 0;
    if (!value || length == 0 || length > 20) return 0;
    for (at = 0; at < length; at++) {
        unsigned digit = (unsigned)(value[at] - '0');
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10) return 0;
        *number = *number * 10 + digit;
    }
    return 1;
}

static int pw_send_text(pipewright_channel *channel, int kind, const pw_buffer *body, const int *handles, int count) {
    unsigned char head[PW_HEADER_BYTES];
    memset(head, 0, sizeof head);
    pw_put(head, body->end, 4);
    head[4] = (unsigned char)kind;
    pw_put(head + 6, (uint64_t)count, 2);
    return pw_send_parts(channel, head, sizeof head, body->data, body->end, handles, count);
}

static int pw_refused(const char *by, const char *field, const char *host, const char *worker) {
    return pw_fail(PIPEWRIGHT_REFUSED, "the %s refused the connection: %s differs (host \"%s\", worker \"%s\")", by, field,
                   host, worker);
}

/* Sends REJECT. */
static int pw_reject(pipewright_channel *channel, const char *field, const char *host, const char *worker) {
    pw_buffer body;
    memset(&body, 0, sizeof body);
    if (!pw_append(&body, "rejected\n", 9) && !pw_add_field(&body, "by", "worker") &&
        !pw_add_field(&body, "field", field) && !pw_add_field(&body, "host", host) &&
        !pw_add_field(&body, "worker", worker))
        pw_send_text(channel, PW_REJECT, &body, NULL, 0);
    free(body.data);
    return pw_refused("worker", field, host, worker);
}

/* Returns 1 if the bytes are UTF-8. */
static int pw_is_text(const unsigned char *at, size_t length) {
    const unsigned char *end = at + length;
    while (at < end) {
        unsigned first = *at++, more, least;
        uint32_t letter;
        if (first < 0x80) continue;
        if (first >= 0xc2 && first <= 0xdf) more = 1, least = 0x80, letter = first & 0x1f;
        else if (first >= 0xe0 && first <= 0xef) more = 2, least = 0x800, letter = first & 0x0f;
        else if (first >= 0xf0 && first <= 0xf4) more = 3, least = 0x10000, letter = first & 0x07;
        else return 0;
        for (; more > 0; more--) {
            if (at == end || (*at & 0xc0) != 0x80) return 0;
            letter = letter << 6 | (*at++ & 0x3f);
        }
        if (letter < least || letter > 0x10ffff || (letter >= 0xd800 && letter <= 0xdfff)) return 0;
    }
    return 1;
}

/* Receives a frame of the handshake of one of two kinds. `handle` becomes -1, or the handle that came with it. */
static int pw_receive_text(pipewright_channel *channel, int timeout_ms, const int kinds[2], const char *const firsts[2],
                           int *kind, pw_buffer *body, int *handle) {
    uint64_t until = pw_now_us() / 1000 + (uint64_t)timeout_ms;
    const char *first = NULL;
    size_t length;
    pw_frame frame;
    int found = 0, any, result, at;
    *handle = -1;
    for (;;) {
        if (!found) {
            result = pw_header(channel, &frame, &found);
            if (result) return result;
        }
        if (found) {
            if (frame.length > PW_MAX_HELLO_BYTES || frame.flags)
                return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame of the handshake is too long");
            if (channel->arrived.end - channel->arrived.at >= frame.length) break;
        }
        if (channel->ended) return pw_fail(PIPEWRIGHT_END, "the host has ended during the handshake");
        {
            uint64_t now = pw_now_us() / 1000;
            if (now >= until) return pw_fail(PIPEWRIGHT_TIMEOUT, "the host was silent during the handshake");
            if (!pw_wait_readable(channel, (int)(until - now))) continue;
        }
        result = pw_receive(channel, 0, &any);
        if (result) return result;
    }
    body->at = body->end = 0;
    result = pw_reserve(body, frame.length + 1);
    if (!result) result = pw_take(channel, body->data, frame.length);
    if (result) return result;
    body->end = frame.length;
    if (frame.kind == PW_REJECT) first = "rejected";
    for (at = 0; at < 2; at++)
        if (frame.kind == kinds[at]) first = firsts[at];
    if (!first) return pw_unexpected(&frame);
    length = strlen(first);
    if (body->end < length || memcmp(body->data, first, length) || (body->end > length && body->data[length] != '\n') ||
        !pw_is_text(body->data, body->end))
        return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame without the first line \"%s\"", first);
    if (frame.kind == PW_REJECT) {
        char by[16], field[64], host[128], worker[128];
        pw_copy_field(body, "by", by, sizeof by, "host");
        pw_copy_field(body, "field", field, sizeof field, "");
        pw_copy_field(body, "host", host, sizeof host, "");
        pw_copy_field(body, "worker", worker, sizeof worker, "");
        return pw_refused(by, field, host, worker);
    }
    if (frame.handles > 1) return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame of the handshake has more than one handle");
    if (frame.handles == 1) {
        if (channel->handle_count > 0) {
            *handle = channel->handles[0];
            memmove(channel->handles, channel->handles + 1, (size_t)--channel->handle_count * sizeof(int));
        } else if (!channel->lost_handles) {
            return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame announces handles, and none came");
        }
    }
    channel->lost_handles = 0;
    *kind = frame.kind;
    return PIPEWRIGHT_OK;
}

/* Sends MEMORY: an object of this side, and the number found in that of the host. */
static int pw_exchange_memory(
    pipewright_channel *channel, const pw_buffer *theirs, int handle, size_t ring_bytes, int *has_ring) {
    pw_buffer body;
    int result, own = -1;
    *has_ring = 0;
    memset(&body, 0, sizeof body);
    result = pw_append(&body, "memory\n", 7);
#if PW_HAS_RING
    if (!channel->fallback[0]) {
        uint64_t size, proof = 0;
        char text[32];
        if (!pw_ring_create(channel, ring_bytes)) {
        } else if (handle < 0 || !pw_number(theirs, "bytes", &size)) {
            pw_copy_field(theirs, "why", channel->fallback, sizeof channel->fallback, "no memory was passed");
            if (!channel->fallback[0]) pw_no_ring(channel, "no memory was passed");
        } else if (pw_ring_open(channel, handle, size, &proof)) {
            *has_ring = 1;
            own = channel->ring.handle;
            snprintf(text, sizeof text, "%llu", (unsigned long long)channel->ring.size);
            if (!result) result = pw_add_field(&body, "bytes", text);
            snprintf(text, sizeof text, "%llu", (unsigned long long)proof);
            if (!result) result = pw_add_field(&body, "proof", text);
        }
        if (!*has_ring) pw_ring_free(&channel->ring);
    }
#else
    (void)theirs;
    (void)handle;
    (void)ring_bytes;
#endif
    if (!*has_ring && !result) result = pw_add_field(&body, "why", channel->fallback);
    if (!result) result = pw_send_text(channel, PW_MEMORY, &body, &own, own >= 0);
    free(body.data);
    return result;
}

static int pw_shake_hands(pipewright_channel *channel, const pipewright_options *options) {
    static const int hello_kinds[2] = {PW_HELLO, PW_HELLO}, memory_kinds[2] = {PW_MEMORY, PW_READY},
                     ready_kinds[2] = {PW_READY, PW_READY};
    static const char *const hello_lines[2] = {"pipewright-ipc", "pipewright-ipc"},
                            *const memory_lines[2] = {"memory", "ready"}, *const ready_lines[2] = {"ready", "ready"};
    static const char *const keys[6] = {"version", "app", "build", "arch", "user", "salt"};
    const uint16_t order = 1;
    int timeout = options->handshake_timeout_ms > 0 ? options->handshake_timeout_ms : 10000;
    uint64_t most = options->max_message_bytes ? options->max_message_bytes : UINT64_C(256) << 20, theirs, number;
    char arch[64], user[256], text[32];
    const char *values[6], *can = PW_CAN " handles.v1 shm.v1";
    pw_buffer body, ours;
    int kind = 0, handle = -1, has_ring = 0, result, at;
    memset(&body, 0, sizeof body);
    memset(&ours, 0, sizeof ours);
    snprintf(arch, sizeof arch, "%s-%u-%s", pw_arch(), (unsigned)(sizeof(void *) * 8),
             *(const unsigned char *)&order ? "little" : "big");
    pw_user(user, sizeof user);
    values[0] = "1";
    values[1] = options->app ? options->app : "";
    values[2] = options->build ? options->build : "";
    values[3] = arch;
    values[4] = user;
    values[5] = options->salt ? options->salt : "";
    if (options->shared_memory == PIPEWRIGHT_SHARED_MEMORY_OFF)
        snprintf(channel->fallback, sizeof channel->fallback, "shared memory is off");
    else if (!PW_HAS_RING)
        snprintf(channel->fallback, sizeof channel->fallback, "the C worker has shared memory on 64-bit Linux and Windows, with GCC or Clang");

    result = pw_receive_text(channel, timeout, hello_kinds, hello_lines, &kind, &body, &handle);
    if (handle >= 0) pw_close_handle(handle);
    if (result) goto done;
    if (!pw_carries_handles(channel) && !channel->fallback[0])
        snprintf(channel->fallback, sizeof channel->fallback, "another program runs between the host and this worker");
    if (most > PW_MAX_MESSAGE_BYTES) most = PW_MAX_MESSAGE_BYTES;
    result = pw_append(&ours, "pipewright-ipc\n", 15);
    for (at = 0; at < 6 && !result; at++) result = pw_add_field(&ours, keys[at], values[at]);
    snprintf(text, sizeof text, "%llu", (unsigned long long)most);
    if (!result) result = pw_add_field(&ours, "max_message_bytes", text);
    if (!pw_carries_handles(channel)) can = PW_CAN;
    else if (channel->fallback[0]) can = PW_CAN " handles.v1";
    if (!result) result = pw_add_field(&ours, "can", can);
    if (result) goto done;
    for (at = 0; at < 6; at++) {
        /* Values are sent without control characters, so they are compared without them. */
        size_t own_length = 0, length = 0;
        const char *own = pw_field(&ours, keys[at], &own_length), *value = pw_field(&body, keys[at], &length);
        if (!own || !value || length != own_length || memcmp(own, value, length)) {
            char host_value[256], own_value[256];
            pw_copy_field(&body, keys[at], host_value, sizeof host_value, "nothing");
            pw_copy_field(&ours, keys[at], own_value, sizeof own_value, "");
            result = pw_reject(channel, keys[at], host_value, own_value);
            goto done;
        }
    }
    pw_number(&body, "max_message_bytes", &theirs);
    channel->max_message_bytes = theirs < most ? theirs : most;
    result = pw_send_text(channel, PW_HELLO, &ours, NULL, 0);
    if (result) goto done;

    result = pw_receive_text(channel, timeout, memory_kinds, memory_lines, &kind, &body, &handle);
    if (!result && kind == PW_MEMORY) {
        result = pw_exchange_memory(channel, &body, handle, options->ring_bytes ? options->ring_bytes : (size_t)2 << 20, &has_ring);
        if (handle >= 0) pw_close_handle(handle);
        handle = -1;
        if (!result) result = pw_receive_text(channel, timeout, ready_kinds, ready_lines, &kind, &body, &handle);
    }
    if (handle >= 0) pw_close_handle(handle);
    if (result) goto done;
    if (pw_number(&body, "shared", &number) && number == 1) {
        if (!has_ring || !pw_number(&body, "proof", &number) || number != channel->ring.nonce) {
            result = pw_fail(PIPEWRIGHT_PROTOCOL, "the host enabled shared memory without proof");
            goto done;
        }
        pw_close_handle(channel->ring.handle);
        channel->ring.handle = -1;
        channel->has_ring = 1;
        channel->fallback[0] = 0;
        goto done;
    }
    if (!channel->fallback[0])
        pw_copy_field(&body, "why", channel->fallback, sizeof channel->fallback, "the host has shared memory off");
    if (!channel->fallback[0]) snprintf(channel->fallback, sizeof channel->fallback, "the host has shared memory off");
#if PW_HAS_RING
    pw_ring_free(&channel->ring);
#endif
    if (options->shared_memory == PIPEWRIGHT_SHARED_MEMORY_REQUIRED)
        result = pw_reject(channel, "shared memory", channel->fallback, channel->fallback);
done:
    free(body.data);
    free(ours.data);
    return result;
}

static int pw_connect(pipewright_channel **connected, const pipewright_options *options) {
    pipewright_options defaults;
    pipewright_channel *channel;
    int number = pw_claimed ? -1 : pw_inherited(), result;
    *connected = NULL;
    if (number < 0)
        return pw_fail(PIPEWRIGHT_NOT_A_WORKER, "this process was not started as a worker, or has connected already");
    memset(&defaults, 0, sizeof defaults);
    if (!options) options = &defaults;
    channel = (pipewright_channel *)calloc(1, sizeof *channel);
    if (!channel) return pw_fail(PIPEWRIGHT_NO_MEMORY, "out of memory");
    pw_claimed = 1;
    pw_claim(number);
    channel->socket = number;
    channel->ring.handle = -1;
    channel->max_backlog_bytes = options->max_backlog_bytes ? options->max_backlog_bytes : (size_t)512 << 20;
    channel->spin.most_us = options->spin_us ? options->spin_us : 50;
    channel->spin.credit = 4;
    channel->spin.pause = channel->spin.until_try = 8;
    if (pw_processors() < 2) channel->spin.most_us = 0;
#ifdef SO_NOSIGPIPE
    {
        int on = 1;
        setsockopt(number, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    }
#endif
    result = pw_open_pipe(channel);
    if (!result) result = pw_shake_hands(channel, options);
    if (result) {
        pw_free(channel);
        return result;
    }
    *connected = channel;
    return PIPEWRIGHT_OK;
}

PW_PUBLIC pipewright_channel *pipewright_connect(const pipewright_options *options) {
    pipewright_channel *channel;
    pw_connect(&channel, options);
    return channel;
}

PW_PUBLIC int pipewright_receive(pipewright_channel *channel, const unsigned char **data, size_t *length) {
    uint8_t kind = 0;
    uint64_t id;
    int found;
    int result = pw_receive_message(channel, 1, &kind, &id, &channel->message, &found);
    if (result) return result;
    if (kind != PW_MESSAGE) return pw_fail(PIPEWRIGHT_PROTOCOL, "unexpected frame of kind %u", (unsigned)kind);
    *data = channel->message.data;
    *length = channel->message.end;
    return PIPEWRIGHT_OK;
}

PW_PUBLIC int pipewright_take_handles(pipewright_channel *channel, int *handles, int most) {
    int count = channel->message_handle_count < most ? channel->message_handle_count : most;
    if (count <= 0) return 0;
    memcpy(handles, channel->message_handles, (size_t)count * sizeof(int));
    channel->message_handle_count -= count;
    memmove(channel->message_handles, channel->message_handles + count,
            (size_t)channel->message_handle_count * sizeof(int));
    return count;
}

PW_PUBLIC int pipewright_send(pipewright_channel *channel, const void *data, size_t length) {
    return pw_send_message(channel, PW_MESSAGE, 0, data, length, NULL, 0);
}

PW_PUBLIC int pipewright_send_handles(
    pipewright_channel *channel, const void *data, size_t length, const int *handles, int count) {
    if (count < 0 || count > PW_MAX_HANDLES) return pw_fail(PIPEWRIGHT_TOO_LONG, "at most 64 handles go with one message");
    return pw_send_message(channel, PW_MESSAGE, 0, data, length, handles, count);
}

PW_PUBLIC void pipewright_close(pipewright_channel *channel) {
    int result;
    if (!channel) return;
    result = pw_goodbye(channel);
    while (!result) {
        uint8_t kind;
        uint64_t id;
        int found;
        result = pw_receive_message(channel, 1, &kind, &id, &channel->message, &found);
    }
    pw_free(channel);
}

PW_PUBLIC const char *pipewright_fallback(const pipewright_channel *channel) {
    return channel->has_ring ? NULL : channel->fallback;
}

/* ---- Calls. ---- */

static int pw_is_open(const pipewright_call *call, uint64_t id) {
    size_t at;
    if (id == call->id) return 1;
    for (at = 0; at < call->count; at++)
        if (call->waiting[(call->first + at) % PW_MAX_CALLS].id == id) return 1;
    return 0;
}

static pw_credit *pw_credit_of(pipewright_call *call, uint64_t id) {
    size_t at;
    for (at = 0; at < call->credit_count; at++)
        if (call->credits[at].id == id) return &call->credits[at];
    return NULL;
}

static void pw_drop_credit(pipewright_call *call, size_t at) {
    call->credit_count--;
    memmove(&call->credits[at], &call->credits[at + 1], (call->credit_count - at) * sizeof(pw_credit));
}

static int pw_add_credit(pipewright_call *call, uint64_t id, const pw_buffer *body) {
    uint32_t more = body->end >= 4 ? (uint32_t)pw_get(body->data, 4) : 0;
    pw_credit *credit = pw_credit_of(call, id);
    size_t at;
    for (at = 0; at < call->answered_count; at++)
        if (call->answered[at] == id) return PIPEWRIGHT_OK;
    if (!credit) {
        if (call->credit_count == PW_MAX_CREDITS) {
            /* The oldest of a call that never came: the host has withdrawn it. */
            for (at = 0; at + 1 < call->credit_count && pw_is_open(call, call->credits[at].id); at++) {
            }
            pw_drop_credit(call, at);
        }
        credit = &call->credits[call->credit_count++];
        credit->id = id;
        credit->count = 0;
    }
    credit->count = more > UINT32_MAX - credit->count ? UINT32_MAX : credit->count + more;
    return PIPEWRIGHT_OK;
}

static int pw_was_cancelled(const pipewright_call *call, uint64_t id) {
    size_t at;
    for (at = 0; at < call->cancelled_count; at++)
        if (call->cancelled[at] == id) return 1;
    return 0;
}

static pw_message *pw_waiting_of(pipewright_call *call, uint64_t id) {
    size_t at;
    for (at = 0; at < call->count; at++) {
        pw_message *message = &call->waiting[(call->first + at) % PW_MAX_CALLS];
        if (message->id == id) return message;
    }
    return NULL;
}

/* Takes an item of a request. */
static int pw_add_item(pipewright_call *call, uint64_t id, pw_buffer *body) {
    pw_buffer *place;
    int is_current = call->has_items && id == call->id;
    /* One that comes after the reply is ignored. Plain messages and resets have the id 0. */
    if (!is_current && (id == 0 || id != call->id) && !pw_waiting_of(call, id)) return PIPEWRIGHT_OK;
    if (!is_current || call->no_more_items || call->item_credit == 0)
        return pw_fail(PIPEWRIGHT_PROTOCOL, "an item without credit");
    call->item_credit--;
    place = &call->items[(call->first_item + call->item_count++) % PW_WINDOW];
    *place = *body;
    memset(body, 0, sizeof *body);
    return PIPEWRIGHT_OK;
}

static void pw_end_items(pipewright_call *call, uint64_t id) {
    pw_message *waiting = pw_waiting_of(call, id);
    if (call->has_items && id == call->id) call->no_more_items = 1;
    else if (waiting) waiting->no_more_items = 1;
}

/* Forgets the items of the call. */
static void pw_drop_items(pipewright_call *call) {
    for (; call->item_count > 0; call->item_count--) {
        free(call->items[call->first_item].data);
        memset(&call->items[call->first_item], 0, sizeof call->items[0]);
        call->first_item = (call->first_item + 1) % PW_WINDOW;
    }
    call->has_items = call->no_more_items = 0;
    call->item_credit = 0;
}

/* Sorts a message of the host, and takes its body. `answer` becomes its kind if it answers a question of the call. */
static int pw_sort(pipewright_call *call, uint8_t kind, uint64_t id, pw_buffer *body, uint8_t *answer) {
    pw_message *place;
    *answer = 0;
    switch (kind) {
    case PW_MESSAGE:
    case PW_CALL:
    case PW_OPEN_CALL:
    case PW_RESET:
        if (call->count == PW_MAX_CALLS) return pw_fail(PIPEWRIGHT_PROTOCOL, "too many calls at a time");
        place = &call->waiting[(call->first + call->count++) % PW_MAX_CALLS];
        place->kind = kind;
        place->id = id;
        place->no_more_items = 0;
        place->body = *body;
        memset(body, 0, sizeof *body);
        return PIPEWRIGHT_OK;
    case PW_CANCEL:
        /* One that comes after the reply would be kept forever. Plain messages, resets and a worker without a call have the id
           0: more than the open calls would then be cancelled. */
        if (id == 0 || !pw_is_open(call, id) || pw_was_cancelled(call, id)) return PIPEWRIGHT_OK;
        if (call->cancelled_count == PW_MAX_CALLS + 1) return pw_fail(PIPEWRIGHT_PROTOCOL, "too many cancellations");
        call->cancelled[call->cancelled_count++] = id;
        return PIPEWRIGHT_OK;
    case PW_CREDIT: return pw_add_credit(call, id, body);
    case PW_ITEM: return pw_add_item(call, id, body);
    case PW_ITEMS_END: pw_end_items(call, id); return PIPEWRIGHT_OK;
    case PW_ANSWER:
    case PW_DECLINED:
        /* Another one belongs to a call that has ended. */
        if (id == call->id) {
            pw_buffer before = call->answer;
            call->answer = *body;
            *body = before;
            *answer = kind;
        }
        return PIPEWRIGHT_OK;
    default: return pw_fail(PIPEWRIGHT_PROTOCOL, "a frame of kind %u from a host", (unsigned)kind);
    }
}

/* Receives a message, and sorts it. */
static int pw_receive_for(pipewright_call *call, int wait, uint8_t *answer, int *found) {
    pipewright_channel *channel = call->channel;
    uint8_t kind = 0;
    uint64_t id = 0;
    int result = pw_receive_message(channel, wait, &kind, &id, &channel->message, found);
    *answer = 0;
    pw_close_all(channel->message_handles, &channel->message_handle_count);
    if (result || !*found) return result;
    /* A handler may ignore the error. */
    channel->broken = pw_sort(call, kind, id, &channel->message, answer);
    return channel->broken;
}

static int pw_receive_available(pipewright_call *call) {
    int found, result;
    uint8_t answer;
    do result = pw_receive_for(call, 0, &answer, &found);
    while (!result && found);
    return result;
}

PW_PUBLIC const unsigned char *pipewright_request(const pipewright_call *call, size_t *length) {
    static const unsigned char nothing = 0;
    *length = call->request.end;
    return call->request.data ? call->request.data : &nothing;
}

PW_PUBLIC int pipewright_reply(pipewright_call *call, const void *data, size_t length) {
    int result = pw_append(&call->reply, data, length);
    if (result) call->lost_reply = 1;
    return result;
}

PW_PUBLIC int pipewright_fail(pipewright_call *call, const char *text) {
    call->reply.at = call->reply.end = 0;
    pw_append(&call->reply, text, strlen(text));
    call->lost_reply = 0;
    return 1;
}

PW_PUBLIC int pipewright_is_cancelled(pipewright_call *call) {
    return pw_receive_available(call) != PIPEWRIGHT_OK || pw_was_cancelled(call, call->id);
}

static int pw_cancelled_result(void) { return pw_fail(PIPEWRIGHT_CANCELLED, "the call was cancelled"); }

PW_PUBLIC int pipewright_send_item(pipewright_call *call, const void *data, size_t length) {
    for (;;) {
        pw_credit *credit = pw_credit_of(call, call->id);
        uint8_t answer;
        int found, result;
        if (!credit) return pw_fail(PIPEWRIGHT_DECLINED, "the caller accepts no items");
        if (credit->count > 0) {
            credit->count--;
            return pw_send_message(call->channel, PW_ITEM, call->id, data, length, NULL, 0);
        }
        if (pw_was_cancelled(call, call->id)) return pw_cancelled_result();
        result = pw_receive_for(call, 1, &answer, &found);
        if (result) return result;
    }
}

/* Lets the host send more items, half a window at a time: each CREDIT costs a message. */
static int pw_send_credit(pipewright_call *call) {
    unsigned char body[4];
    uint32_t more = PW_WINDOW - call->item_credit - call->item_count;
    if (call->no_more_items || more < PW_WINDOW / 2) return PIPEWRIGHT_OK;
    call->item_credit += more;
    pw_put(body, more, 4);
    return pw_send_message(call->channel, PW_CREDIT, call->id, body, sizeof body, NULL, 0);
}

PW_PUBLIC int pipewright_next_item(pipewright_call *call, const unsigned char **data, size_t *length) {
    static const unsigned char nothing = 0;
    free(call->item.data);
    memset(&call->item, 0, sizeof call->item);
    for (;;) {
        uint8_t answer;
        int found, result, has_item = call->item_count > 0;
        if (has_item) {
            call->item = call->items[call->first_item];
            memset(&call->items[call->first_item], 0, sizeof call->item);
            call->first_item = (call->first_item + 1) % PW_WINDOW;
            call->item_count--;
        } else if (!call->has_items || call->no_more_items) {
            return pw_fail(PIPEWRIGHT_NO_MORE_ITEMS, "the request has ended");
        } else if (pw_was_cancelled(call, call->id)) {
            return pw_cancelled_result();
        }
        result = pw_send_credit(call);
        if (result) return result;
        if (has_item) {
            *data = call->item.data ? call->item.data : &nothing;
            *length = call->item.end;
            return PIPEWRIGHT_OK;
        }
        result = pw_receive_for(call, 1, &answer, &found);
        if (result) return result;
    }
}

PW_PUBLIC int pipewright_ask(
    pipewright_call *call, const void *question, size_t length, const unsigned char **answer, size_t *answer_length) {
    static const unsigned char nothing = 0;
    int result;
    if (pw_was_cancelled(call, call->id)) return pw_cancelled_result();
    result = pw_send_message(call->channel, PW_ASK, call->id, question, length, NULL, 0);
    while (!result) {
        uint8_t kind;
        int found;
        result = pw_receive_for(call, 1, &kind, &found);
        if (result) break;
        if (kind == PW_ANSWER) {
            *answer = call->answer.data ? call->answer.data : &nothing;
            *answer_length = call->answer.end;
            return PIPEWRIGHT_OK;
        }
        if (kind == PW_DECLINED)
            return pw_fail(PIPEWRIGHT_DECLINED, "%.*s", (int)(call->answer.end < 400 ? call->answer.end : 400),
                           call->answer.data ? (const char *)call->answer.data : "");
        if (pw_was_cancelled(call, call->id)) return pw_cancelled_result();
    }
    return result;
}

/* Sends the last message of a call. */
static int pw_end_call(pipewright_call *call, int kind, uint64_t id, const void *data, size_t length) {
    pw_credit *credit = pw_credit_of(call, id);
    pipewright_channel *channel = call->channel;
    size_t at;
    int result;
    pw_drop_items(call);
    if (credit) {
        pw_drop_credit(call, (size_t)(credit - call->credits));
        call->answered[call->answered_next] = id;
        call->answered_next = (call->answered_next + 1) % PW_MAX_CALLS;
        if (call->answered_count < PW_MAX_CALLS) call->answered_count++;
    }
    for (at = 0; at < call->cancelled_count; at++) {
        if (call->cancelled[at] == id) {
            call->cancelled[at] = call->cancelled[--call->cancelled_count];
            break;
        }
    }
    if (kind == PW_FAILED && length > channel->max_message_bytes) length = (size_t)channel->max_message_bytes;
    result = pw_send_message(channel, kind, id, data, length, NULL, 0);
    if (result != PIPEWRIGHT_TOO_LONG || kind == PW_MESSAGE) return result;
    length = strlen(pw_error_text);
    if (length > channel->max_message_bytes) length = (size_t)channel->max_message_bytes;
    return pw_send_message(channel, PW_FAILED, id, pw_error_text, length, NULL, 0);
}

/* Waits for the next call, and answers it. */
static int pw_answer_next(
    pipewright_call *call, pipewright_handler handler, void *context, int (*reset)(void *context)) {
    static const char unstarted[] = "cancelled before the call started";
    pw_message *next;
    uint8_t kind, answer;
    int found, result;
    call->id = 0;
    while (call->count == 0) {
        result = pw_receive_for(call, 1, &answer, &found);
        if (result) return result;
    }
    next = &call->waiting[call->first];
    kind = next->kind;
    call->id = next->id;
    /* Before the next message: it may be the end of the items. */
    call->has_items = kind == PW_OPEN_CALL;
    call->no_more_items = next->no_more_items;
    free(call->request.data);
    call->request = next->body;
    memset(next, 0, sizeof *next);
    call->first = (call->first + 1) % PW_MAX_CALLS;
    call->count--;
    if (kind == PW_RESET) {
        int done = reset && reset(context);
        return pw_end_call(call, done ? PW_RESET_DONE : PW_FAILED, call->id, NULL, 0);
    }
    result = pw_receive_available(call);
    if (result) return result;
    if (pw_was_cancelled(call, call->id))
        return pw_end_call(call, PW_FAILED, call->id, unstarted, sizeof unstarted - 1);
    call->reply.at = call->reply.end = 0;
    call->lost_reply = 0;
    if (handler(call, context) || (call->lost_reply && pipewright_fail(call, "out of memory"))) {
        if (kind == PW_MESSAGE)
            return pw_fail(PIPEWRIGHT_SYSTEM, "the handler failed: %.*s",
                           (int)(call->reply.end < 400 ? call->reply.end : 400),
                           call->reply.data ? (const char *)call->reply.data : "");
        return pw_end_call(call, PW_FAILED, call->id, call->reply.data, call->reply.end);
    }
    return pw_end_call(call, kind == PW_MESSAGE ? PW_MESSAGE : PW_REPLY, call->id, call->reply.data, call->reply.end);
}

PW_PUBLIC int pipewright_serve(pipewright_handler handler, void *context, const pipewright_options *options) {
    pipewright_channel *channel;
    pipewright_call *call;
    int result = pw_connect(&channel, options);
    size_t at;
    if (result) return result;
    call = (pipewright_call *)calloc(1, sizeof *call);
    if (call) call->waiting = (pw_message *)calloc(PW_MAX_CALLS, sizeof *call->waiting);
    if (!call || !call->waiting) {
        free(call);
        pw_free(channel);
        return pw_fail(PIPEWRIGHT_NO_MEMORY, "out of memory");
    }
    call->channel = channel;
    do result = pw_answer_next(call, handler, context, options ? options->reset : NULL);
    while (!result);
    if (result == PIPEWRIGHT_END) {
        if (channel->heard_goodbye) pw_goodbye(channel);
        result = PIPEWRIGHT_OK;
    }
    for (at = 0; at < call->count; at++) free(call->waiting[(call->first + at) % PW_MAX_CALLS].body.data);
    free(call->waiting);
    free(call->request.data);
    free(call->reply.data);
    free(call->answer.data);
    free(call->item.data);
    pw_drop_items(call);
    free(call);
    pw_free(channel);
    return result;
}

#ifdef __cplusplus
}
#endif
#endif /* PIPEWRIGHT_WORKER_IMPLEMENTATION */
