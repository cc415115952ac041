/* Lower bounds for messages between two processes: a ring in shared memory, a socket, a pipe.
 *
 *   ipc ring|unix|pipe oneway|sum|round|batch|build SIZE COUNT
 *
 * The sender runs on CPU 0, the receiver on CPU 1. Prints nanoseconds: for `round` the median round trip, otherwise the
 * time from the first message after the warm-up to the last, divided by their number. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RING = 1 << 20, SPINS = 2000 };

struct ring {
    _Alignas(128) _Atomic uint32_t head;
    _Alignas(128) _Atomic uint32_t tail;
    _Alignas(128) _Atomic uint32_t reader_sleeps;
    _Alignas(128) _Atomic uint32_t writer_sleeps;
    _Alignas(4096) unsigned char data[RING];
};

static struct ring *rings; /* [0] to the receiver, [1] back */
static int out_fd, in_fd, transport;
static unsigned char *buffer;

static void die(const char *what) { perror(what); exit(1); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("sched_setaffinity");
}

/* Waits until the word differs from `old`. */
static void wait_change(_Atomic uint32_t *word, uint32_t old, _Atomic uint32_t *sleeps) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return;
        __builtin_ia32_pause();
    }
    atomic_store(sleeps, 1);
    while (atomic_load(word) == old)
        syscall(SYS_futex, word, FUTEX_WAIT, old, NULL, NULL, 0);
    atomic_store(sleeps, 0);
}

static void publish(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleeps) {
    atomic_store(word, value);
    if (atomic_load(sleeps)) syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Copies at most a sixteenth of the ring at once, so that both sides work at the same time. A copy that wraps around
 * has two pieces. */
static void ring_send(struct ring *r, const unsigned char *bytes, size_t count) {
    while (count) {
        uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
        uint32_t room = RING - (head - tail);
        size_t piece = count < RING / 16 ? count : RING / 16;
        if (room < piece) {
            wait_change(&r->tail, tail, &r->writer_sleeps);
            continue;
        }
        size_t at = head % RING, first = piece < RING - at ? piece : RING - at;
        memcpy(r->data + at, bytes, first);
        memcpy(r->data, bytes + first, piece - first);
        publish(&r->head, head + piece, &r->reader_sleeps);
        bytes += piece;
        count -= piece;
    }
}

static void ring_receive(struct ring *r, unsigned char *bytes, size_t count) {
    while (count) {
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
        uint32_t available = head - tail;
        if (!available) {
            wait_change(&r->head, head, &r->reader_sleeps);
            continue;
        }
        size_t piece = count < available ? count : available;
        size_t at = tail % RING, first = piece < RING - at ? piece : RING - at;
        memcpy(bytes, r->data + at, first);
        memcpy(bytes + first, r->data, piece - first);
        publish(&r->tail, tail + piece, &r->writer_sleeps);
        bytes += piece;
        count -= piece;
    }
}

static void put(int direction, const void *bytes, size_t count) {
    if (transport == 'r') return ring_send(&rings[direction], bytes, count);
    while (count) {
        ssize_t done = write(out_fd, bytes, count);
        if (done < 0) die("write");
        bytes = (const char *)bytes + done;
        count -= done;
    }
}

static void get(int direction, void *bytes, size_t count) {
    if (transport == 'r') return ring_receive(&rings[direction], bytes, count);
    while (count) {
        ssize_t done = read(in_fd, bytes, count);
        if (done <= 0) die("read");
        bytes = (char *)bytes + done;
        count -= done;
    }
}

/* Sends one message: its length, then the body, which follows 8 free bytes. A socket takes both in one call. */
static void send_message(int direction, unsigned char *message, uint64_t length) {
    memcpy(message, &length, 8);
    put(direction, message, 8 + length);
}

static uint64_t receive_message(int direction, unsigned char *to) {
    uint64_t length;
    get(direction, &length, 8);
    get(direction, to, length);
    return length;
}

/* The length of a packet of a build. Most packets are small, most bytes are in large ones; 5000 packets have 434 MB. */
static uint64_t length_of(uint64_t number, uint64_t size, int build) {
    if (!build) return size;
    uint64_t kind = number * 7 % 20;
    return kind < 14 ? size * 23 / 100 : kind < 19 ? size * 173 / 100 : size * 807 / 100;
}

static void stamp(unsigned char *body, uint64_t number, uint64_t length) {
    memcpy(body, &number, 8);
    memcpy(body + length - 8, &number, 8);
}

static void check(const unsigned char *body, uint64_t number, uint64_t length, uint64_t expected) {
    uint64_t first, last;
    memcpy(&first, body, 8);
    memcpy(&last, body + length - 8, 8);
    if (length != expected || first != number || last != number) {
        fprintf(stderr, "message %lu is wrong\n", (unsigned long)number);
        exit(1);
    }
    for (uint64_t i = 1; i <= 3; i++)
        if (length > 64 && body[length / 4 * i] != 7) exit(1);
}

/* Reads every byte, and returns the sum of the 8-byte words. */
static uint64_t sum_of(const unsigned char *bytes, uint64_t count) {
    uint64_t sum = 0, word;
    for (uint64_t i = 0; i + 8 <= count; i += 8) {
        memcpy(&word, bytes + i, 8);
        sum += word;
    }
    return sum;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sends small messages in batches of 64 KiB for each call, and receives up to as many in each call. */
static void batch(int sends, uint64_t size, uint64_t count) {
    enum { BATCH = 64 << 10 };
    static unsigned char kept[BATCH + 65536];
    size_t have = 0, at = 0;
    double start = 0;
    for (uint64_t number = 0; number < count; number++) {
        if (sends) {
            memcpy(kept + have, &size, 8);
            memcpy(kept + have + 8, buffer + 8, size);
            stamp(kept + have + 8, number, size);
            have += 8 + size;
            if (have >= BATCH || number + 1 == count) {
                put(0, kept, have);
                have = 0;
            }
            continue;
        }
        if (number == count / 20) start = now();
        while (have - at < 8 + size) {
            memmove(kept, kept + at, have - at);
            have -= at;
            at = 0;
            ssize_t done = read(in_fd, kept + have, BATCH);
            if (done <= 0) die("read");
            have += done;
        }
        memcpy(buffer, kept + at + 8, size);
        check(buffer, number, size, size);
        at += 8 + size;
    }
    if (!sends) printf("%.1f\n", (now() - start) / (count - count / 20));
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    transport = argv[1][0];
    int mode = argv[2][0];
    uint64_t size = strtoull(argv[3], 0, 0), count = strtoull(argv[4], 0, 0);
    size_t room = 16 + size * 9;
    buffer = malloc(room);
    memset(buffer, 7, room);
    rings = mmap(0, 2 * sizeof *rings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (rings == MAP_FAILED) die("mmap");
    int there[2], back[2];
    if (transport == 'p' ? pipe(there) || pipe(back) : socketpair(AF_UNIX, SOCK_STREAM, 0, there)) die("pair");
    pid_t child = fork();
    if (child < 0) die("fork");
    int sends = child != 0;
    pin(sends ? 0 : 1);
    if (transport == 'p') {
        out_fd = sends ? there[1] : back[1];
        in_fd = sends ? back[0] : there[0];
    } else {
        out_fd = in_fd = sends ? there[0] : there[1];
    }
    if (mode == 'b' && argv[2][1] == 'a') {
        batch(sends, size, count);
    } else if (mode == 'r') {
        double *samples = malloc(count * sizeof *samples);
        for (uint64_t number = 0; number < count; number++) {
            double start = now();
            if (sends) {
                stamp(buffer + 8, number, size);
                send_message(0, buffer, size);
                check(buffer + 8, number, receive_message(1, buffer + 8), size);
                samples[number] = now() - start;
            } else {
                check(buffer + 8, number, receive_message(0, buffer + 8), size);
                send_message(1, buffer, size);
            }
        }
        if (sends) {
            qsort(samples + count / 20, count - count / 20, sizeof *samples, compare);
            printf("%.1f\n", samples[count / 20 + (count - count / 20) / 2]);
        }
    } else {
        int build = mode == 'b';
        double start = 0;
        uint64_t sum = 0;
        for (uint64_t number = 0; number < count; number++) {
            uint64_t length = length_of(number, size, build);
            if (sends) {
                stamp(buffer + 8, number, length);
                send_message(0, buffer, length);
                buffer[8 + length - 1] = buffer[8 + length - 2] = 7;
                memset(buffer + 8 + length - 8, 7, 8);
                continue;
            }
            if (number == count / 20) start = now();
            check(buffer + 8, number, receive_message(0, buffer + 8), length);
            if (mode == 's') sum += sum_of(buffer + 8, length);
        }
        if (!sends) {
            if (mode == 's' && !sum) exit(1);
            printf("%.1f\n", (now() - start) / (count - count / 20));
        }
    }
    fflush(stdout);
    if (!sends) return 0;
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
