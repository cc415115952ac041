// The peer without a library: vfork or posix_spawn, read and wait4. It has the command line of `peers`:
//   peer PEER OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]
// PEER is c_vfork, c_epoll or c_posix_spawn; the first two only support the operation `status`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { STREAM_READ_BYTES = 64 << 10, COLLECT_FIRST_BYTES = 64 << 10 };

static long child_peak_kib = 0;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static pid_t start_vfork(char **command) {
    pid_t pid = vfork();
    if (pid == 0) {
        execve(command[0], command, environ);
        _exit(127);
    }
    if (pid < 0) {
        fail("vfork");
    }
    return pid;
}

static pid_t start_posix_spawn(char **command, posix_spawn_file_actions_t *actions) {
    pid_t pid;
    errno = posix_spawn(&pid, command[0], actions, NULL, command, environ);
    if (errno != 0) {
        fail("posix_spawn");
    }
    return pid;
}

// The peak includes the child's memory before exec, which after a vfork is this program's. This program is small for
// that reason.
static void wait_for(pid_t pid) {
    int status;
    struct rusage usage;
    if (wait4(pid, &status, 0, &usage) != pid) {
        fail("wait4");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the child ended with wait status %d\n", status);
        exit(1);
    }
    if (usage.ru_maxrss > child_peak_kib) {
        child_peak_kib = usage.ru_maxrss;
    }
}

// Learns of the exit as a runtime does: from an epoll instance, which could watch other descriptors too.
static void wait_by_epoll(pid_t pid) {
    static int epoll = -1;
    if (epoll < 0 && (epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        fail("epoll_create1");
    }
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (pidfd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, pidfd, &event) != 0) {
        fail("pidfd_open");
    }
    if (epoll_wait(epoll, &event, 1, -1) != 1) {
        fail("epoll_wait");
    }
    epoll_ctl(epoll, EPOLL_CTL_DEL, pidfd, NULL);
    close(pidfd);
    wait_for(pid);
}

static pid_t start_piped(char **command, int *output) {
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        fail("pipe2");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t pid = start_posix_spawn(command, &actions);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *output = ends[0];
    return pid;
}

static size_t read_some(int from, char *into, size_t room) {
    ssize_t got = read(from, into, room);
    if (got < 0) {
        fail("read");
    }
    return (size_t)got;
}

static uint64_t stream(char **command) {
    static char buffer[STREAM_READ_BYTES];
    int output;
    pid_t pid = start_piped(command, &output);
    uint64_t total = 0;
    for (size_t got; (got = read_some(output, buffer, sizeof buffer)) > 0;) {
        total += got;
    }
    close(output);
    wait_for(pid);
    return total;
}

static uint64_t collect(char **command, char **kept) {
    int output;
    pid_t pid = start_piped(command, &output);
    size_t room = COLLECT_FIRST_BYTES, total = 0;
    char *buffer = malloc(room);
    for (;;) {
        if (total == room) {
            room *= 2;
            buffer = realloc(buffer, room);
        }
        if (buffer == NULL) {
            fail("malloc");
        }
        size_t got = read_some(output, buffer + total, room - total);
        if (got == 0) {
            break;
        }
        total += got;
    }
    close(output);
    wait_for(pid);
    *kept = buffer;
    return total;
}

// Waits for the child's exit and reads then. This is correct only if the output fits in a pipe. It is the lower bound
// for a capture, because no line wakes the reader.
static uint64_t capture_after_the_end(char **command) {
    static char buffer[STREAM_READ_BYTES];
    int output;
    pid_t pid = start_piped(command, &output);
    wait_for(pid);
    uint64_t total = 0;
    for (size_t got; (got = read_some(output, buffer, sizeof buffer)) > 0;) {
        total += got;
    }
    close(output);
    return total;
}

// Runs one operation and returns the number of bytes received.
static uint64_t operate(const char *peer, const char *operation, char **command, char **kept) {
    int by_vfork = strcmp(peer, "c_posix_spawn") != 0;
    if (strcmp(operation, "status") == 0) {
        pid_t pid = by_vfork ? start_vfork(command) : start_posix_spawn(command, NULL);
        if (strcmp(peer, "c_epoll") == 0) {
            wait_by_epoll(pid);
        } else {
            wait_for(pid);
        }
        return 0;
    }
    if (!by_vfork && strcmp(operation, "capture") == 0) {
        return capture_after_the_end(command);
    }
    if (!by_vfork && strcmp(operation, "stream") == 0) {
        return stream(command);
    }
    if (!by_vfork && strcmp(operation, "collect") == 0) {
        return collect(command, kept);
    }
    fprintf(stderr, "no such operation: %s\n", operation);
    exit(2);
}

int main(int count, char **arguments) {
    if (count < 7) {
        fputs("usage: peer PEER OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]\n",
              stderr);
        return 2;
    }
    long samples = atol(arguments[3]), warm_up = atol(arguments[4]);
    uint64_t expected = strtoull(arguments[5], NULL, 10);
    uint64_t *taken = malloc(sizeof *taken * (size_t)(samples + 1));
    if (taken == NULL) {
        fail("malloc");
    }
    for (long index = -warm_up; index < samples; index++) {
        char *kept = NULL;
        uint64_t before = now_nanoseconds();
        uint64_t bytes = operate(arguments[1], arguments[2], arguments + 6, &kept);
        uint64_t after = now_nanoseconds();
        if (bytes != expected) {
            fprintf(stderr, "received %ju bytes instead of %ju\n", (uintmax_t)bytes,
                    (uintmax_t)expected);
            return 1;
        }
        if (kept != NULL && (kept[0] != 'f' || kept[bytes - 1] != 'f')) {
            fputs("received bytes that the child did not write\n", stderr);
            return 1;
        }
        free(kept);
        if (index >= 0) {
            taken[index] = after - before;
        }
    }
    for (long index = 0; index < samples; index++) {
        printf("%ju\n", (uintmax_t)taken[index]);
    }
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    printf("peak_rss_bytes=%ld\n", own.ru_maxrss * 1024);
    printf("child_peak_rss_bytes=%ld\n", child_peak_kib * 1024);
    return 0;
}
