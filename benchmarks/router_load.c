/* Stand-ins for replicas, and a load generator, for benchmarks/router.py: HTTP/1.1, one thread each.

   router_load replicas COUNT
       COUNT replicas on free ports of the loopback, which are printed. They serve until their
       standard input is closed. A POST gets one JSON answer at once or, where its body begins with
       "stream":true, "chunks":N and "pace_ms":P, N server-sent events, one every P ms. GET /taken
       says how many connections that carried a POST were taken, and how many POSTs there were.

   router_load load PORTS CONNECTIONS REQUESTS RATE RAMP_MS FILE
       Sends the request in FILE; 16 at-signs in it become a number of that request's own. RATE 0:
       each connection sends its next request when it has the answer, and they begin within RAMP_MS.
       RATE > 0: requests are due at random instants (Poisson), and their time counts from then.
       Prints one line of JSON. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MARK = 16, EVENTS = 512, READ_BYTES = 1 << 18, TAIL = 64, MAX_PORTS = 64 };

typedef struct Connection {
    int fd, is_listener, is_counted;
    char *in;               /* what was read and not yet understood */
    size_t in_used, in_room;
    char *out;              /* what is to be written */
    size_t out_used, out_room, out_done;
    int wants_out;
    /* replica: the stream that it is in */
    int chunks_left, pace_ms;
    double due_s;
    struct Connection *next; /* in the queue of those that are due */
    int is_closed, is_queued;
    /* load: the answer that it waits for */
    int is_busy, status, is_chunked, has_head;
    long body_left;
    double since_s;
    char tail[TAIL];
    size_t tail_used;
} Connection;

static int poller;
static char *scratch;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* As epoll_wait, but for a time that need not be whole milliseconds. */
static int wait_for(struct epoll_event *events, double wait_s) {
    struct pollfd ready = {.fd = poller, .events = POLLIN};
    struct timespec time = {.tv_sec = (time_t)fmax(0, wait_s)};
    time.tv_nsec = (long)((fmax(0, wait_s) - time.tv_sec) * 1e9);
    ppoll(&ready, 1, &time, NULL);
    return epoll_wait(poller, events, EVENTS, 0);
}

static void append(char **at, size_t *used, size_t *room, const char *data, size_t length) {
    if (*used + length > *room) {
        *room = (*used + length) * 2;
        *at = realloc(*at, *room);
    }
    memcpy(*at + *used, data, length);
    *used += length;
}

static void watch(Connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(poller, operation, c->fd, &event);
}

static Connection *connection_of(int fd) {
    Connection *c = calloc(1, sizeof *c);
    int on = 1;
    c->fd = fd;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
    return c;
}

/* Writes what can be written; 0 where the other side has gone. */
static int flush(Connection *c) {
    while (c->out_done < c->out_used) {
        ssize_t n = write(c->fd, c->out + c->out_done, c->out_used - c->out_done);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) return 0;
        c->out_done += n;
    }
    if (c->out_done == c->out_used) c->out_done = c->out_used = 0;
    if (c->wants_out != (c->out_used > 0)) {
        c->wants_out = c->out_used > 0;
        watch(c, EPOLL_CTL_MOD, EPOLLIN | (c->wants_out ? EPOLLOUT : 0));
    }
    return 1;
}

static void put(Connection *c, const char *data, size_t length) {
    append(&c->out, &c->out_used, &c->out_room, data, length);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static long number_after(const char *text, const char *name, long otherwise) {
    const char *found = strcasestr(text, name);
    return found ? atol(found + strlen(name)) : otherwise;
}

/* Replicas. */

static Connection *first_due, *last_due;
static long taken, posts;

static const char ANSWER[] =
    "{\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion\",\"created\":1700000000,"
    "\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
    "\"All happy families are alike; each unhappy family is unhappy in its own way.\"},"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":256,\"completion_tokens\":16,"
    "\"total_tokens\":272}}";
static const char DATED[] = "date: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n";
static const char EVENT[] =
    "data: {\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":"
    "1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" alike\"},"
    "\"finish_reason\":null}]}\n\n";
static const char LAST_EVENT[] =
    "data: {\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":"
    "1700000000,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":256,"
    "\"completion_tokens\":64,\"total_tokens\":320}}\n\ndata: [DONE]\n\n";

static void put_chunk(Connection *c, const char *text) {
    char size[32];
    put(c, size, sprintf(size, "%zx\r\n", strlen(text)));
    put(c, text, strlen(text));
    put(c, "\r\n", 2);
}

static void put_json(Connection *c, const char *json) {
    char head[256];
    put(c, head, sprintf(head, "HTTP/1.1 200 OK\r\n%scontent-length: %zu\r\n"
                         "content-type: application/json\r\n\r\n", DATED, strlen(json)));
    put(c, json, strlen(json));
}

static void queue_due(Connection *c, double due_s) {
    c->due_s = due_s;
    c->next = NULL;
    c->is_queued = 1;
    if (last_due) last_due->next = c; else first_due = c;
    last_due = c;
}

static void forget(Connection *c) { /* who is queued is freed when it is due */
    if (!c->is_closed) close(c->fd);
    c->is_closed = 1;
    if (c->is_queued) return;
    free(c->in);
    free(c->out);
    free(c);
}

static void begin_stream(Connection *c, const char *body) {
    char head[256];
    c->chunks_left = number_after(body, "\"chunks\":", 64);
    c->pace_ms = number_after(body, "\"pace_ms\":", 20);
    put(c, head, sprintf(head, "HTTP/1.1 200 OK\r\n%scontent-type: text/event-stream; "
                         "charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n", DATED));
    queue_due(c, now_s() + c->pace_ms / 1e3);
}

static void answer(Connection *c, const char *head, const char *body) {
    if (memcmp(head, "POST ", 5) == 0) {
        taken += !c->is_counted;
        c->is_counted = 1;
        posts++;
        if (strstr(body, "\"stream\":true")) begin_stream(c, body);
        else put_json(c, ANSWER);
    } else if (memcmp(head, "GET /taken", 10) == 0) {
        char counts[96];
        sprintf(counts, "{\"connections\":%ld,\"posts\":%ld}", taken, posts);
        put_json(c, counts);
    } else if (memcmp(head, "GET /v1/models", 14) == 0) {
        put_json(c, "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}");
    } else {
        put_json(c, "{\"status\":\"ok\"}");
    }
}

/* One request after the other; 0 where the connection is to be closed. */
static int understand(Connection *c) {
    for (;;) {
        char *end = c->in_used ? memmem(c->in, c->in_used, "\r\n\r\n", 4) : NULL;
        if (!end) return 1;
        char kept = end[2];
        end[2] = 0;
        size_t whole = (end + 4 - c->in) + number_after(c->in, "\r\ncontent-length:", 0);
        int closes = strcasestr(c->in, "\r\nconnection: close") != NULL;
        end[2] = kept;
        if (c->in_used < whole) return 1;
        char start[256] = "";
        size_t length = c->in + whole - (end + 4);
        memcpy(start, end + 4, length < sizeof start - 1 ? length : sizeof start - 1);
        answer(c, c->in, start);
        memmove(c->in, c->in + whole, c->in_used -= whole);
        if (!flush(c) || closes) return 0;
    }
}

static void serve(Connection *c, uint32_t events) {
    if (c->is_listener) {
        int fd;
        while ((fd = accept(c->fd, NULL, NULL)) >= 0) connection_of(fd);
        return;
    }
    int lives = !(events & EPOLLOUT) || flush(c);
    while (lives && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = read(c->fd, scratch, READ_BYTES);
        if (n < 0 && errno == EAGAIN) break;
        if (n > 0) append(&c->in, &c->in_used, &c->in_room, scratch, n);
        lives = n > 0 && understand(c);
    }
    if (!lives) forget(c);
}

static void emit_due(double at_s) {
    while (first_due && first_due->due_s <= at_s) {
        Connection *c = first_due;
        first_due = c->next;
        if (!first_due) last_due = NULL;
        c->is_queued = 0;
        if (c->is_closed) {
            forget(c);
            continue;
        }
        if (--c->chunks_left > 0) {
            put_chunk(c, EVENT);
            queue_due(c, c->due_s + c->pace_ms / 1e3);
        } else {
            put_chunk(c, LAST_EVENT);
            put(c, "0\r\n\r\n", 5);
        }
        flush(c); /* a failure shows at the next read */
    }
}

static void listen_on_a_free_port(void) {
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (void *)&address, length) || listen(fd, 4096)) die("listen");
    getsockname(fd, (void *)&address, &length);
    connection_of(fd)->is_listener = 1;
    printf("%d ", ntohs(address.sin_port));
}

static int serve_replicas(int count) {
    struct epoll_event events[EVENTS], input = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &input);
    for (int i = 0; i < count; i++) listen_on_a_free_port();
    printf("\n");
    fflush(stdout);
    for (;;) {
        int ready = wait_for(events, first_due ? first_due->due_s - now_s() : 1.0);
        for (int i = 0; i < ready; i++) {
            if (!events[i].data.ptr) return 0; /* standard input was closed */
            serve(events[i].data.ptr, events[i].events);
        }
        emit_due(now_s());
    }
}

/* Load. */

static char *pattern;
static size_t pattern_bytes, marks[8];
static int mark_count, ports[MAX_PORTS], port_count;
static int open_now, opened; /* connections */
static long sent, done, errors, wanted;
static double *took_s;
static Connection **idle;
static int idle_count;
static double next_due_s;

static void read_pattern(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) die(name);
    pattern = malloc(64 << 20);
    pattern_bytes = fread(pattern, 1, 64 << 20, file);
    fclose(file);
    char *at = pattern;
    while (mark_count < 8 && (at = memmem(at, pattern + pattern_bytes - at, "@@@@@@@@@@@@@@@@", MARK))) {
        marks[mark_count++] = at - pattern;
        at += MARK;
    }
}

static Connection *new_connection(void) {
    struct sockaddr_in address = loopback(ports[opened++ % port_count]);
    open_now++;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) die("socket");
    if (connect(fd, (void *)&address, sizeof address) && errno != EINPROGRESS) die("connect");
    return connection_of(fd);
}

static void send_request(Connection *c, double since_s) {
    static uint64_t id;
    char number[MARK + 1];
    if (!id) id = (uint64_t)getpid() << 32;
    sprintf(number, "%016llx", (unsigned long long)++id);
    c->out_used = c->out_done = 0;
    put(c, pattern, pattern_bytes);
    for (int i = 0; i < mark_count; i++) memcpy(c->out + marks[i], number, MARK);
    c->is_busy = 1;
    c->has_head = c->in_used = c->tail_used = 0;
    c->since_s = since_s;
    sent++;
    flush(c); /* a failure shows at the next read */
}

static void keep_tail(Connection *c, const char *data, size_t length) {
    if (length >= TAIL) {
        memcpy(c->tail, data + length - TAIL, TAIL);
        c->tail_used = TAIL;
        return;
    }
    size_t keep = c->tail_used + length > TAIL ? TAIL - length : c->tail_used;
    memmove(c->tail, c->tail + c->tail_used - keep, keep);
    memcpy(c->tail + keep, data, length);
    c->tail_used = keep + length;
}

static void read_head(Connection *c) {
    char *end = memmem(c->in, c->in_used, "\r\n\r\n", 4);
    if (!end) return;
    *end = 0;
    c->has_head = 1;
    c->status = atoi(c->in + 9);
    c->is_chunked = strcasestr(c->in, "\r\ntransfer-encoding: chunked") != NULL;
    c->body_left = number_after(c->in, "\r\ncontent-length:", 0);
    size_t body = c->in_used - (end + 4 - c->in);
    c->body_left -= body;
    keep_tail(c, end + 4, body);
}

static int is_answered(Connection *c) {
    if (!c->has_head) return 0;
    if (!c->is_chunked) return c->body_left <= 0;
    return c->tail_used >= 5 && memcmp(c->tail + c->tail_used - 5, "0\r\n\r\n", 5) == 0;
}

/* Reads; 1 where the answer is complete, -1 where the other side has gone. */
static int receive(Connection *c) {
    for (;;) {
        ssize_t n = read(c->fd, scratch, READ_BYTES);
        if (n < 0 && errno == EAGAIN) return is_answered(c);
        if (n <= 0) return -1;
        if (!c->has_head) {
            append(&c->in, &c->in_used, &c->in_room, scratch, n);
            read_head(c);
        } else {
            c->body_left -= n;
            keep_tail(c, scratch, n);
        }
        if (n < READ_BYTES) return is_answered(c);
    }
}

static void finish(Connection *c, int outcome) {
    int whole = outcome > 0 && c->status == 200 &&
                (!c->is_chunked || memmem(c->tail, c->tail_used, "[DONE]", 6));
    took_s[done++] = now_s() - c->since_s;
    errors += !whole;
    c->is_busy = 0;
}

static void lose(Connection *c) {
    close(c->fd);
    open_now--;
    for (int i = 0; i < idle_count; i++)
        if (idle[i] == c) idle[i] = idle[--idle_count];
    free(c->in);
    free(c->out);
    free(c);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(double fraction) {
    return 1e3 * took_s[(long)(fraction * (done - 1))];
}

static void report(double seconds) {
    qsort(took_s, done, sizeof *took_s, compare);
    printf("{\"requests\":%ld,\"errors\":%ld,\"connections\":%d,\"seconds\":%.3f,\"p50_ms\":%.4f,"
           "\"p90_ms\":%.4f,\"p99_ms\":%.4f,\"max_ms\":%.4f}\n", done, errors, opened, seconds,
           quantile_ms(0.5), quantile_ms(0.9), quantile_ms(0.99), quantile_ms(1));
}

static double next_gap_s(double rate) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return -log1p(-((state >> 11) * 0x1p-53)) / rate;
}

/* A closed loop makes all of its connections first; an open one only those that it needs. */
static void send_due(int connections, double rate, double ramp_s) {
    static double start_s, due_s;
    if (!start_s) due_s = start_s = now_s();
    double at_s = now_s();
    while (sent < wanted && due_s <= at_s && (idle_count || open_now < connections)) {
        int is_new = !idle_count || (rate == 0 && open_now < connections);
        send_request(is_new ? new_connection() : idle[--idle_count], rate > 0 ? due_s : at_s);
        if (rate > 0) due_s += next_gap_s(rate);
        else if (open_now < connections) due_s = start_s + ramp_s * open_now / connections;
    }
    next_due_s = sent < wanted && due_s > at_s ? due_s : at_s + 1;
}

static void give_load(int connections, double rate, double ramp_s) {
    struct epoll_event events[EVENTS];
    double start_s = now_s();
    while (done < wanted) {
        send_due(connections, rate, ramp_s);
        int ready = wait_for(events, next_due_s - now_s());
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) flush(c);
            int outcome = receive(c);
            if (!outcome) continue;
            if (c->is_busy) finish(c, outcome);
            if (outcome < 0) lose(c);
            else if (rate == 0 && sent < wanted) send_request(c, now_s());
            else idle[idle_count++] = c;
        }
    }
    report(now_s() - start_s);
}

int main(int count, char **words) {
    poller = epoll_create1(0);
    scratch = malloc(READ_BYTES);
    if (count == 3 && strcmp(words[1], "replicas") == 0) return serve_replicas(atoi(words[2]));
    if (count != 8 || strcmp(words[1], "load")) {
        fprintf(stderr, "see the head of router_load.c\n");
        return 2;
    }
    for (char *port = strtok(words[2], ","); port && port_count < MAX_PORTS; port = strtok(NULL, ","))
        ports[port_count++] = atoi(port);
    wanted = atol(words[4]);
    took_s = calloc(wanted, sizeof *took_s);
    idle = calloc(atoi(words[3]), sizeof *idle);
    read_pattern(words[7]);
    give_load(atoi(words[3]), atof(words[5]), atof(words[6]) / 1e3);
    return 0;
}
