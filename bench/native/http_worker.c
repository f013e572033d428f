// A simulated HTTP worker for load runs: OpenAI's API, one thread, one write a chunk.
//
//   http_worker PORT [--first MS] [--gap MS]
//
// A POST is answered by a stream of as many chunks as its max_tokens says, each an event in a chunk of
// its own, as uvicorn sends it: the first after --first, the others --gap apart, all streams on one
// grid, as a batch on a GPU does; 0 is as fast as the client reads. GETs are answered with what routers
// ask: health, models, facts. PORT 0 takes any free one; it is printed once it listens.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_SIZE = 1 << 17, MOST_FILES = 4096, MOST_EVENTS = 256, TURN = 16 };

typedef struct {
  int fd, waits;      // waits: for the client to read
  size_t size;        // of what came in and is not answered
  uint32_t left;      // chunks of the answer that is on its way
  uint64_t due;       // when the next chunk is, in microseconds
  char in[IN_SIZE + 1];
} connection;

static connection *by_fd[MOST_FILES];
static int most_fd = -1;
static int poll_fd;
static double first_us, gap_us;

#define EVENT(delta, finish)                                                                     \
  "data: {\"id\":\"chatcmpl-f04790796d7ba2e3667a041324be3b97\",\"object\":"                       \
  "\"chat.completion.chunk\",\"created\":1795986854,\"model\":\"qwen\",\"choices\":[{\"index\":0," \
  "\"delta\":" delta ",\"logprobs\":null,\"finish_reason\":" finish                               \
  ",\"matched_stop\":null}],\"usage\":null}\n\n"
static const char stream_head[] =
    "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    "transfer-encoding: chunked\r\n\r\n";
static const char said[] = EVENT("{\"content\":\" word\"}", "null");
static const char last[] = EVENT("{\"content\":\"\"}", "\"length\"") "data: [DONE]\n\n";
static const char whole[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1795986854,\"model\":\"qwen\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"word\"},"
    "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":500,\"completion_tokens\":1,"
    "\"total_tokens\":501}}";
static const char models[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"qwen\",\"object\":\"model\",\"created\":1795986854,"
    "\"owned_by\":\"sglang\",\"root\":\"qwen\",\"max_model_len\":40960}]}";
static const char facts[] =
    "{\"model_path\":\"qwen\",\"served_model_name\":\"qwen\",\"model_id\":\"qwen\","
    "\"is_generation\":true,\"version\":\"0.5.23\",\"tp_size\":1,\"dp_size\":1}";

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void watch(connection *c) {
  struct epoll_event event = {EPOLLIN | (c->waits ? EPOLLOUT : 0u), {.ptr = c}};
  epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

static void drop(connection *c) {
  by_fd[c->fd] = NULL;
  close(c->fd);
  free(c);
}

// Returns whether all of it went out; what does not fit at once is tried again whole: chunks are small,
// and a socket that has room takes them in one piece or not at all.
static int put(connection *c, const char *bytes, size_t size) {
  ssize_t sent = send(c->fd, bytes, size, MSG_NOSIGNAL);
  if (sent == (ssize_t)size) return 1;
  if (sent > 0) {  // the rest of a chunk must follow, whatever it takes
    while ((size_t)sent < size) {
      ssize_t more = send(c->fd, bytes + sent, size - (size_t)sent, MSG_NOSIGNAL);
      if (more > 0) sent += more;
      else if (errno != EAGAIN) return 1;  // the client is gone: the next read says so
    }
    return 1;
  }
  if (errno != EAGAIN) return 1;
  c->waits = 1;
  watch(c);
  return 0;
}

static int put_chunk(connection *c, const char *event, size_t size, int is_last) {
  char out[2048];
  int n = snprintf(out, sizeof out, "%zx\r\n", size);
  memcpy(out + n, event, size);
  n += (int)size;
  n += snprintf(out + n, sizeof out - (size_t)n, is_last ? "\r\n0\r\n\r\n" : "\r\n");
  return put(c, out, (size_t)n);
}

static void put_body(connection *c, const char *body) {
  char out[2048];
  int n = snprintf(out, sizeof out,
                   "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                   strlen(body), body);
  put(c, out, (size_t)n);
}

// The next instant of the grid that all streams share.
static uint64_t on_grid(uint64_t at) {
  if (gap_us < 1) return at;
  uint64_t step = (uint64_t)gap_us;
  return (at + step - 1) / step * step;
}

static void go_on(connection *c, uint64_t at) {
  for (int turn = 0; c->left && !c->waits && c->due <= at && (turn < TURN || gap_us > 0); turn++) {
    int is_last = c->left == 1;
    if (!(is_last ? put_chunk(c, last, sizeof last - 1, 1) : put_chunk(c, said, sizeof said - 1, 0)))
      return;
    c->left--;
    c->due = gap_us < 1 ? at : c->due + (uint64_t)gap_us;
  }
}

static long number_after(const char *where, const char *name, long otherwise) {
  const char *found = strcasestr(where, name);
  return found ? strtol(found + strlen(name) + strspn(found + strlen(name), "\": "), NULL, 10) : otherwise;
}

static void answer(connection *c, char *head, char *body) {
  if (!strncmp(head, "GET /v1/models", 14)) put_body(c, models);
  else if (!strncmp(head, "GET ", 4)) put_body(c, facts);
  else if (!strcasestr(body, "\"stream\":true") && !strcasestr(body, "\"stream\": true")) put_body(c, whole);
  else {
    put(c, stream_head, sizeof stream_head - 1);
    c->left = (uint32_t)number_after(body, "\"max_tokens\"", 16) + 1;
    c->due = on_grid(now() + (uint64_t)first_us);
  }
}

static void take(connection *c) {
  for (;;) {
    c->in[c->size] = 0;
    char *end = c->left ? NULL : strstr(c->in, "\r\n\r\n");
    if (!end) return;
    *end = 0;
    size_t head = (size_t)(end - c->in) + 4, body = (size_t)number_after(c->in, "content-length:", 0);
    if (c->size < head + body) {
      *end = '\r';
      return;
    }
    char kept = c->in[head + body];
    c->in[head + body] = 0;
    answer(c, c->in, c->in + head);
    c->in[head + body] = kept;
    c->size -= head + body;
    memmove(c->in, c->in + head + body, c->size);
  }
}

static void hear(connection *c) {
  for (;;) {
    ssize_t got = recv(c->fd, c->in + c->size, IN_SIZE - c->size, 0);
    if (got > 0) {
      c->size += (size_t)got;
      take(c);
      if (c->size < IN_SIZE) continue;
    }
    if (got < 0 && errno == EAGAIN) return;
    drop(c);
    return;
  }
}

static void welcome(int listener) {
  int fd, one = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    if (fd >= MOST_FILES) {
      close(fd);
      continue;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection *c = calloc(1, sizeof *c);
    if (!c) fail("calloc");
    c->fd = fd;
    by_fd[fd] = c;
    if (fd > most_fd) most_fd = fd;
    struct epoll_event event = {EPOLLIN, {.ptr = c}};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
  }
}

// Milliseconds until the next chunk is due: -1 when nobody waits for one.
static int rest(void) {
  uint64_t next = UINT64_MAX, at = now();
  for (int fd = 0; fd <= most_fd; fd++) {
    connection *c = by_fd[fd];
    if (c && c->left && !c->waits && c->due < next) next = c->due;
  }
  if (next == UINT64_MAX) return -1;
  return next <= at ? 0 : (int)((next - at + 999) / 1000);
}

int main(int count, char **given) {
  if (count < 2) return fprintf(stderr, "http_worker PORT [--first MS] [--gap MS]\n"), 2;
  for (int i = 2; i + 1 < count; i += 2) {
    if (!strcmp(given[i], "--first")) first_us = atof(given[i + 1]) * 1000;
    if (!strcmp(given[i], "--gap")) gap_us = atof(given[i + 1]) * 1000;
  }
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  struct sockaddr_in place = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(given[1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof place;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&place, sizeof place) || listen(listener, 1024)) fail("listen");
  getsockname(listener, (struct sockaddr *)&place, &size);
  printf("%d\n", ntohs(place.sin_port));
  fflush(stdout);
  poll_fd = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {.ptr = NULL}}, events[MOST_EVENTS];
  epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    int got = epoll_wait(poll_fd, events, MOST_EVENTS, rest());
    for (int i = 0; i < got; i++) {
      connection *c = events[i].data.ptr;
      if (!c) {
        welcome(listener);
        continue;
      }
      if (events[i].events & EPOLLOUT && c->waits) {
        c->waits = 0;
        watch(c);
      }
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) hear(c);
    }
    uint64_t at = now();
    for (int fd = 0; fd <= most_fd; fd++)
      if (by_fd[fd] && by_fd[fd]->left) go_on(by_fd[fd], at);
  }
}
