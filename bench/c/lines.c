// A child that writes:
//   each N              N lines, one write(2) for each
//   block N             the same bytes in a single write(2)
//   flood BYTES         that many bytes, in writes of 64 KiB
//   pause MILLISECONDS  two lines with that pause between them
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 9, FLOOD_WRITE_BYTES = 64 << 10 };

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

int main(int count, char **arguments) {
    if (count != 3) {
        return 2;
    }
    const char *mode = arguments[1];
    size_t amount = strtoull(arguments[2], NULL, 10);
    if (strcmp(mode, "flood") == 0) {
        static char block[FLOOD_WRITE_BYTES];
        memset(block, 'f', sizeof block);
        while (amount > 0) {
            size_t length = amount < sizeof block ? amount : sizeof block;
            write_all(block, length);
            amount -= length;
        }
        return 0;
    }
    if (strcmp(mode, "pause") == 0) {
        const struct timespec pause = {(time_t)(amount / 1000), (long)(amount % 1000) * 1000000};
        write_all("line 000\n", LINE_BYTES);
        nanosleep(&pause, NULL);
        write_all("line 001\n", LINE_BYTES);
        return 0;
    }
    // Formats all lines before the first write, so that `each` and `block` differ only in their writes.
    char *lines = malloc(amount * LINE_BYTES + 1);
    if (lines == NULL) {
        return 1;
    }
    for (size_t index = 0; index < amount; index++) {
        snprintf(lines + index * LINE_BYTES, LINE_BYTES + 1, "line %03zu\n", index % 1000);
    }
    if (strcmp(mode, "each") == 0) {
        for (size_t index = 0; index < amount; index++) {
            write_all(lines + index * LINE_BYTES, LINE_BYTES);
        }
    } else if (strcmp(mode, "block") == 0) {
        write_all(lines, amount * LINE_BYTES);
    } else {
        return 2;
    }
    return 0;
}
