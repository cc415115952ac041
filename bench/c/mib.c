// A child that writes 1 MiB of zeros to stdout.
#include <unistd.h>

static char block[65536];

int main(void) {
    for (int left = 1 << 20; left > 0;) {
        ssize_t count = write(1, block, left < (int)sizeof block ? (size_t)left : sizeof block);
        if (count <= 0) return 1;
        left -= (int)count;
    }
    return 0;
}
