/* The child and a reader of terminals. Child: pty child BYTES. Reader: pty start|stream|loss PROGRAM COUNT BYTES, which starts
 * "PROGRAM child N" on a terminal COUNT times, reads to the end, and prints the number of bytes that were read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[65520];

static int child(long left) {
    for (size_t at = 0; at < sizeof block; at++)
        block[at] = at % 80 == 79 ? '\n' : 'x';
    while (left > 0) {
        long now = left < (long)sizeof block ? left : (long)sizeof block;
        ssize_t done = write(1, block, now);
        if (done < 0)
            return 1;
        left -= done;
    }
    return 0;
}

static long one(const char *program, long bytes) {
    static char buffer[65536];
    char words[32];
    snprintf(words, sizeof words, "%ld", bytes);
    int ours = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlocked = 0;
    if (ours < 0 || ioctl(ours, TIOCSPTLCK, &unlocked) < 0)
        return -1;
    int theirs = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        ioctl(theirs, TIOCSCTTY, 0);
        dup2(theirs, 0), dup2(theirs, 1), dup2(theirs, 2);
        execl(program, program, "child", words, (char *)NULL);
        _exit(127);
    }
    close(theirs);
    long all = 0;
    for (;;) {
        ssize_t count = read(ours, buffer, sizeof buffer);
        if (count <= 0)
            break;
        all += count;
    }
    close(ours);
    int status = 0;
    waitpid(pid, &status, 0);
    return status == 0 ? all : -1;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return child(atol(argv[2]));
    if (argc != 5)
        return 2;
    long count = atol(argv[3]), most = atol(argv[4]), all = 0;
    for (long round = 0; round < count; round++) {
        long bytes = strcmp(argv[1], "loss") == 0 ? round * 7919 % most + 1 : most;
        long got = one(argv[2], bytes);
        if (got < 0)
            return 1;
        all += got;
    }
    printf("%ld\n", all);
    return 0;
}
