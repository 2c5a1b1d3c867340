// The floors of a small response and of a relay: epoll with recv and send, and io_uring.
//   floor serve|relay epoll|epoll-later|uring PORT [UPSTREAM_PORT] [STEPS]
//   floor client PORT CONNECTIONS SECONDS
// A server prints "requests rounds" to standard error when it gets SIGTERM.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FAIL(what) do { perror(what); exit(1); } while (0)
enum { CONNECTIONS = 64, BODY = 1024, BUFFER = 4096, BUFFERS = 512 };

static volatile sig_atomic_t ended;
static unsigned long requests, rounds;
static char response[2048];
static int response_len;
static long steps;

static void end(int signal) { (void)signal; ended = 1; }

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

// Stands for the work of a server between recv and send: dependent multiplications, about 1 ns each.
static void work(void) {
    unsigned long x = requests;
    for (long i = 0; i < steps; i++) {
        x = x * 6364136223846793005UL + 1442695040888963407UL;
        __asm__ volatile("" : "+r"(x));
    }
}

static long run_time(void) {
    long sum = 0, one;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(tasks));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%ld", &one) == 1) sum += one;
        fclose(f);
    }
    closedir(tasks);
    return sum;
}

static int tcp(int port, bool listening) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (listening) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (void *)&at, sizeof at) || listen(fd, 256)) FAIL("listen");
    } else {
        if (connect(fd, (void *)&at, sizeof at)) FAIL("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return fd;
}

static int accepted(int listener) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) { if (ended) return -1; FAIL("accept"); }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// ------------------------------------------------------------------------------------------------------------ epoll
// Edge-triggered; a read that does not fill the buffer has drained the socket.

static void send_all(int fd, const char *bytes, int len) {
    if (send(fd, bytes, len, MSG_NOSIGNAL) == len) return;
    if (errno != EPIPE && errno != ECONNRESET) FAIL("send");
    ended = 1;
}

// `later`: sends follow when each ready connection has been read, as io_uring makes them.
static void epoll_loop(int *fds, int count, int *peer, int of_client, bool later) {
    static char kept[2 * CONNECTIONS][BUFFER];
    int lens[2 * CONNECTIONS];
    int ep = epoll_create1(0);
    struct epoll_event events[256];
    for (int i = 0; i < count; i++) {
        nonblocking(fds[i]);
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = i};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e)) FAIL("epoll_ctl");
    }
    while (!ended) {
        int ready = epoll_wait(ep, events, 256, -1);
        if (ready < 0) { if (errno == EINTR) continue; FAIL("epoll_wait"); }
        rounds++;
        for (int e = 0; e < ready; e++) {
            int i = events[e].data.u32;
            lens[e] = 0;
            if (!(events[e].events & EPOLLIN)) continue;
            char *buffer = kept[later ? e : 0];
            ssize_t got = recv(fds[i], buffer, BUFFER, 0);
            if (got < 0 && errno == EAGAIN) continue;
            if (got < 0 && errno != ECONNRESET) FAIL("recv");
            if (got <= 0) return;
            if (i < of_client) { requests++; work(); }
            lens[e] = peer ? (int)got : response_len;
            if (!later) send_all(fds[peer ? peer[i] : i], peer ? buffer : response, lens[e]);
        }
        for (int e = 0; later && e < ready; e++) {
            int i = events[e].data.u32;
            if (lens[e]) send_all(fds[peer ? peer[i] : i], peer ? kept[e] : response, lens[e]);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- io_uring
// One ring, multishot recv with provided buffers, all sends of a round in the io_uring_enter that waits for the next.

static struct io_uring ring;
static struct io_uring_buf_ring *buffers;
static char *memory;
static const unsigned long RECV = 1, SEND = 2;

static struct io_uring_sqe *sqe(void) {
    struct io_uring_sqe *s = io_uring_get_sqe(&ring);
    if (!s) { io_uring_submit(&ring); s = io_uring_get_sqe(&ring); }
    return s;
}

static void arm(int i) {
    struct io_uring_sqe *s = sqe();
    io_uring_prep_recv_multishot(s, i, NULL, 0, 0);
    s->flags |= IOSQE_BUFFER_SELECT | IOSQE_FIXED_FILE;
    s->ioprio |= IORING_RECVSEND_POLL_FIRST;
    s->buf_group = 0;
    io_uring_sqe_set_data64(s, RECV << 32 | i);
}

static void give(int id) {
    io_uring_buf_ring_add(buffers, memory + id * BUFFER, BUFFER, id, io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(buffers, 1);
}

static void uring_loop(int *fds, int count, int *peer, int of_client) {
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
                                .cq_entries = 1024};
    int failed = io_uring_queue_init_params(512, &ring, &p);
    if (failed) { errno = -failed; FAIL("io_uring_setup"); }
    io_uring_register_ring_fd(&ring);
    if (io_uring_register_files(&ring, fds, count)) FAIL("register_files");
    if (posix_memalign((void **)&buffers, 4096, BUFFERS * sizeof(struct io_uring_buf))) FAIL("memory");
    if (posix_memalign((void **)&memory, 4096, BUFFERS * BUFFER)) FAIL("memory");
    struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)buffers, .ring_entries = BUFFERS, .bgid = 0};
    if (io_uring_register_buf_ring(&ring, &reg, 0)) FAIL("register_buf_ring");
    io_uring_buf_ring_init(buffers);
    for (int b = 0; b < BUFFERS; b++) give(b);
    for (int i = 0; i < count; i++) arm(i);
    while (!ended) {
        int done = io_uring_submit_and_wait(&ring, 1);
        if (done < 0 && done != -EINTR) { errno = -done; FAIL("io_uring_enter"); }
        rounds++;
        unsigned head, seen = 0;
        struct io_uring_cqe *cqe;
        io_uring_for_each_cqe(&ring, head, cqe) {
            seen++;
            unsigned long data = cqe->user_data;
            int i = data & 0xffff, id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
            if (data >> 32 == SEND) {
                if (cqe->res == -EPIPE || cqe->res == -ECONNRESET) return;
                if (cqe->res <= 0) { errno = -cqe->res; FAIL("send"); }
                if (peer) give(data >> 16 & 0xffff);
                continue;
            }
            if (cqe->res == -ENOBUFS) { arm(i); continue; }
            if (cqe->res == 0 || cqe->res == -ECONNRESET) return;
            if (cqe->res < 0) { errno = -cqe->res; FAIL("recv"); }
            if (!(cqe->flags & IORING_CQE_F_MORE)) arm(i);
            if (i < of_client) { requests++; work(); }
            struct io_uring_sqe *s = sqe();
            if (peer) {
                io_uring_prep_send(s, peer[i], memory + id * BUFFER, cqe->res, MSG_NOSIGNAL | MSG_WAITALL);
                s->flags |= IOSQE_FIXED_FILE;
                io_uring_sqe_set_data64(s, SEND << 32 | (unsigned)id << 16 | i);
            } else {
                give(id);
                io_uring_prep_send(s, i, response, response_len, MSG_NOSIGNAL | MSG_WAITALL);
                // A send that succeeds posts no completion: the response is constant.
                s->flags |= IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS;
                io_uring_sqe_set_data64(s, SEND << 32 | i);
            }
        }
        io_uring_cq_advance(&ring, seen);
    }
}

// ------------------------------------------------------------------------------------------------------------ client

static int by_value(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return x < y ? -1 : x > y;
}

static void client(int port, int connections, double seconds) {
    const char request[] = "GET /1k HTTP/1.1\r\nHost: localhost\r\nUser-Agent: floor\r\nAccept: */*\r\n\r\n";
    int ep = epoll_create1(0), fds[1024], left[1024];
    long began[1024];
    struct epoll_event events[256];
    char buffer[8192];
    static long latencies[1 << 22];
    unsigned long count = 0;
    for (int i = 0; i < connections; i++) {
        fds[i] = tcp(port, false);
        nonblocking(fds[i]);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e);
    }
    usleep(100000);
    long until = now() + (long)(seconds * 1e9);
    for (int i = 0; i < connections; i++) {
        began[i] = now(), left[i] = response_len;
        if (send(fds[i], request, sizeof request - 1, 0) < 0) FAIL("send");
    }
    for (long at = 0; at < until;) {
        int ready = epoll_wait(ep, events, 256, 1000);
        at = now();
        for (int e = 0; e < ready; e++) {
            int i = events[e].data.u32;
            ssize_t got = recv(fds[i], buffer, sizeof buffer, 0);
            if (got <= 0) FAIL("recv");
            if ((left[i] -= got) > 0) continue;
            if (left[i] < 0) { fprintf(stderr, "more than a response\n"); exit(1); }
            latencies[count++ & ((1 << 22) - 1)] = at - began[i];
            began[i] = at, left[i] = response_len;
            if (send(fds[i], request, sizeof request - 1, 0) < 0) FAIL("send");
        }
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    unsigned long kept = count < 1 << 22 ? count : 1 << 22;
    qsort(latencies, kept, sizeof *latencies, by_value);
    printf("%lu %ld %ld %ld\n", count, latencies[kept / 2], latencies[kept * 99 / 100], usage.ru_nvcsw);
}

int main(int argc, char **argv) {
    memset(response, 'x', sizeof response);
    char head[512];
    int head_len = sprintf(head,
        "HTTP/1.1 200 OK\r\nserver: floor\r\ndate: Sat, 28 Nov 2026 09:00:00 GMT\r\ncontent-type: application/octet-stream\r\n"
        "content-length: %d\r\naccept-ranges: bytes\r\nlast-modified: Sat, 28 Nov 2026 08:00:00 GMT\r\netag: \"0123456789abcdef\"\r\n\r\n", BODY);
    memcpy(response, head, head_len);
    response_len = head_len + BODY;
    if (argc == 5 && !strcmp(argv[1], "client")) { client(atoi(argv[2]), atoi(argv[3]), atof(argv[4])); return 0; }
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    bool relay = !strcmp(argv[1], "relay"), uring = !strcmp(argv[2], "uring");
    int listener = tcp(atoi(argv[3]), true), upstream = relay ? atoi(argv[4]) : 0, fds[2 * CONNECTIONS], peer[2 * CONNECTIONS];
    steps = argc > 5 ? atol(argv[5]) : 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        if ((fds[i] = accepted(listener)) < 0) return 0;
        if (relay) fds[CONNECTIONS + i] = tcp(upstream, false), peer[i] = CONNECTIONS + i, peer[CONNECTIONS + i] = i;
    }
    long began_at = run_time();
    int count = relay ? 2 * CONNECTIONS : CONNECTIONS;
    if (uring) uring_loop(fds, count, relay ? peer : NULL, CONNECTIONS);
    else epoll_loop(fds, count, relay ? peer : NULL, CONNECTIONS, !strcmp(argv[2], "epoll-later"));
    // Run time in ns of all threads: the kernel's workers of a ring among them.
    long whole = run_time() - began_at;
    fprintf(stderr, "%lu %lu %ld\n", requests, rounds, whole);
}
