// A child that writes lines of text:
//   flood BYTES          as many 80-byte lines as fit into that, in writes of 64 KiB
//   stamps MICROSECONDS  lines that contain their time of writing, with that pause before each, until the reader closes
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 80, WRITE_BYTES = 64 << 10, KEPT_BYTES = LINE_BYTES * WRITE_BYTES };

// write(2) to a pipe may be partial.
static void write_all(const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, length);
        if (written <= 0) {
            exit(1);
        }
        bytes += written;
        length -= (size_t)written;
    }
}

static void flood(uint64_t amount) {
    // A multiple of both lengths, so that each write continues where the last one ended. Few writes start with a line.
    static char text[KEPT_BYTES];
    for (size_t at = 0; at < sizeof text; at++) {
        text[at] = at % LINE_BYTES == LINE_BYTES - 1 ? '\n' : (char)('a' + at % 26);
    }
    amount -= amount % LINE_BYTES;
    for (size_t at = 0; amount > 0; at = (at + WRITE_BYTES) % sizeof text) {
        size_t length = amount < WRITE_BYTES ? (size_t)amount : WRITE_BYTES;
        write_all(text + at, length);
        amount -= length;
    }
}

static void stamps(long microseconds) {
    const struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    for (;;) {
        char line[LINE_BYTES];
        struct timespec now;
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t nanoseconds = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        write_all(line, (size_t)snprintf(line, sizeof line, "%ju\n", (uintmax_t)nanoseconds));
    }
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "flood") == 0) {
        flood(strtoull(arguments[2], NULL, 10));
        return 0;
    }
    if (count == 3 && strcmp(arguments[1], "stamps") == 0) {
        stamps(atol(arguments[2]));
    }
    return 2;
}
