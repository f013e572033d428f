// Load over HTTP/1.1: posts chats, reads answers whole or as server-sent events, times each piece.
//
//   load PORT BODIES REQUESTS CONCURRENCY RATE [--pids A,B] [--records FILE] [--texts] [--timeout S]
//
// BODIES holds request bodies, one a line, taken in turn. RATE is requests a second at random
// (Poisson) times; 0 sends as fast as answers come. One thread; connections are kept alive. Prints
// one line of JSON: what was done, and the CPU time and the most memory of the processes in --pids
// from before the first request to after the last. --records writes a line of JSON for each request.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_SIZE = 1 << 17, LINE_ROOM = 1 << 16, MOST_PIDS = 64, MOST_BODIES = 100000 };
enum state { IDLE, HEAD, SIZE, PAYLOAD, AFTER_PAYLOAD, TRAILER, PLAIN };

typedef struct { char *bytes; size_t size, room; } text;

typedef struct {
  int fd, is_event_stream, is_chunked, is_done, failed;
  enum state state;
  char digits[20];   // of a chunk's size, as far as they have come
  size_t digit_count;
  size_t left;       // bytes of the chunk, or of the body, that are still to come
  text line, said;   // the line that is being read; all content, escaped as it came
  text gaps;         // as text, with a comma before each
  uint64_t begin, last;
  double first;
  long pieces, input_tokens, output_tokens;
} slot;

static int port, poller, is_recording, keeps_texts;
static char *bodies[MOST_BODIES];
static size_t body_sizes[MOST_BODIES];
static long body_count, issued, done, failed, pieces;
static uint64_t bytes_read, start;
static FILE *records;
static int pids[MOST_PIDS], pid_count;

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void append(text *to, const char *bytes, size_t size) {
  if (to->size + size + 1 > to->room) to->bytes = realloc(to->bytes, to->room = 2 * (to->size + size + 1));
  memcpy(to->bytes + to->size, bytes, size);
  to->bytes[to->size += size] = 0;
}

// ---- one connection ------------------------------------------------------------------------------
static void dial(slot *s) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1;
  s->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(s->fd, (void *)&address, sizeof address)) { perror("connect"); exit(1); }
  setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(s->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event event = {EPOLLIN, {.ptr = s}};
  epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &event);
}

static void submit(slot *s) {
  long at = issued++ % body_count;
  char head[256];
  int size = snprintf(head, sizeof head, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body_sizes[at]);
  static text whole;
  whole.size = 0;
  append(&whole, head, (size_t)size);
  append(&whole, bodies[at], body_sizes[at]);
  s->line.size = s->said.size = s->gaps.size = 0;
  s->is_event_stream = s->is_chunked = s->is_done = s->failed = 0;
  s->digit_count = 0;
  s->pieces = s->input_tokens = s->output_tokens = 0;
  s->first = -1;
  s->state = HEAD;
  s->begin = s->last = now_us();
  for (size_t sent = 0; sent < whole.size;) {
    ssize_t n = write(s->fd, whole.bytes + sent, whole.size - sent);
    if (n < 0 && errno == EAGAIN) { usleep(50); continue; }
    if (n < 0) { s->failed = 1; return; }
    sent += (size_t)n;
  }
}

static void finish(slot *s) {
  uint64_t now = now_us();
  if (!s->is_event_stream && s->first < 0) s->first = (double)(now - s->begin);
  s->failed ? failed++ : done++;
  pieces += s->pieces;
  s->state = IDLE;
  if (!is_recording) return;
  fprintf(records, "{\"begin\":%.6f,\"first\":", (double)(s->begin - start) / 1e6);
  s->first < 0 ? fprintf(records, "null") : fprintf(records, "%.6f", s->first / 1e6);
  fprintf(records, ",\"gaps\":[%s],\"end\":%.6f,\"input_tokens\":%ld,\"output_tokens\":%ld,\"text\":\"%s\",\"error\":%s}\n",
          s->gaps.size ? s->gaps.bytes + 1 : "", (double)(now - s->begin) / 1e6, s->input_tokens, s->output_tokens,
          keeps_texts && s->said.size ? s->said.bytes : "", s->failed ? "\"it failed\"" : "null");
}

// ---- what an answer says -------------------------------------------------------------------------
static long number_after(const char *line, const char *name, long otherwise) {
  const char *at = strstr(line, name);
  return at ? atol(at + strlen(name)) : otherwise;
}

static void take_usage(slot *s, const char *line) {
  s->input_tokens = number_after(line, "\"prompt_tokens\":", s->input_tokens);
  s->output_tokens = number_after(line, "\"completion_tokens\":", s->output_tokens);
}

// Take the content of a frame or of a whole answer: what is between its quotes.
static void take_content(slot *s, const char *line, uint64_t now) {
  const char *at = strstr(line, "\"content\":\"");
  if (!at) return;
  const char *end = at += 11;
  while (*end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
  if (end == at) return;
  if (keeps_texts) append(&s->said, at, (size_t)(end - at));
  s->pieces++;
  if (s->first < 0) {
    s->first = (double)(now - s->begin);
  } else if (is_recording) {
    char gap[32];
    append(&s->gaps, gap, (size_t)snprintf(gap, sizeof gap, ",%.6f", (double)(now - s->last) / 1e6));
  }
  s->last = now;
}

static void take_line(slot *s, uint64_t now) {
  const char *line = s->line.bytes;
  if (s->line.size < 6 || strncmp(line, "data:", 5)) return;
  if (strstr(line, "[DONE]")) { s->is_done = 1; return; }
  if (strstr(line, "\"error\":{")) s->failed = 1;
  take_content(s, line, now);
  if (strstr(line, "\"usage\":{")) take_usage(s, line);
}

static void take_payload(slot *s, const char *bytes, size_t size, uint64_t now) {
  if (!s->is_event_stream) { append(&s->line, bytes, size); return; }
  while (size) {
    const char *end = memchr(bytes, '\n', size);
    size_t part = end ? (size_t)(end - bytes) : size;
    append(&s->line, bytes, part);
    if (!end) return;
    take_line(s, now);
    s->line.size = 0;
    bytes += part + 1;
    size -= part + 1;
  }
}

static void take_head(slot *s) {
  const char *head = s->line.bytes, *length = strcasestr(head, "\r\ncontent-length:");
  if (strncmp(head + 9, "200", 3)) {
    s->failed = 1;
    static int told;
    if (told++ < 3) fprintf(stderr, "%.400s\n", head);
  }
  s->is_event_stream = strcasestr(head, "text/event-stream") != NULL;
  s->is_chunked = strcasestr(head, "transfer-encoding: chunked") != NULL;
  s->left = length ? strtoul(length + 17, NULL, 10) : 0;
  s->state = s->is_chunked ? SIZE : PLAIN;
  s->line.size = 0;
}

static int end_answer(slot *s) {
  if (!s->is_event_stream && s->line.size) {
    take_content(s, s->line.bytes, now_us());
    take_usage(s, s->line.bytes);
  }
  if (s->is_event_stream && !s->is_done) s->failed = 1;
  finish(s);
  return 1;
}

// Take bytes of an answer; returns 1 when it is complete.
static int feed(slot *s, const char *bytes, size_t size, uint64_t now) {
  while (size) {
    size_t part = 1;
    switch (s->state) {
      case IDLE:
        return 0;
      case HEAD:
        append(&s->line, bytes, 1);
        if (s->line.size >= 4 && !memcmp(s->line.bytes + s->line.size - 4, "\r\n\r\n", 4)) {
          take_head(s);
          if (s->state == PLAIN && !s->left) return end_answer(s);
        }
        break;
      case SIZE:
        if (*bytes == '\n') {
          s->digits[s->digit_count] = 0;
          s->left = strtoul(s->digits, NULL, 16);
          s->digit_count = 0;
          s->state = s->left ? PAYLOAD : TRAILER;
        } else if (s->digit_count < sizeof s->digits - 1) {
          s->digits[s->digit_count++] = *bytes;
        }
        break;
      case PAYLOAD:
      case PLAIN:
        part = size < s->left ? size : s->left;
        take_payload(s, bytes, part, now);
        s->left -= part;
        if (!s->left && s->state == PLAIN) return end_answer(s);
        if (!s->left) s->state = AFTER_PAYLOAD;
        break;
      case AFTER_PAYLOAD:
        if (*bytes == '\n') s->state = SIZE;
        break;
      case TRAILER:
        if (*bytes == '\n') return end_answer(s);
        break;
    }
    bytes += part;
    size -= part;
  }
  return 0;
}

static void redial(slot *s) {
  if (s->state != IDLE) { s->failed = 1; finish(s); }
  close(s->fd);
  dial(s);
}

static void hear(slot *s) {
  static char in[IN_SIZE];
  ssize_t n = read(s->fd, in, sizeof in);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) return redial(s);
  bytes_read += (uint64_t)n;
  feed(s, in, (size_t)n, now_us());
}

// ---- the processes that are measured ---------------------------------------------------------------
static double cpu_us(int pid) {
  char path[64], content[2048], *at;
  unsigned long user = 0, system = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  content[fread(content, 1, sizeof content - 1, file)] = 0;
  fclose(file);
  if ((at = strrchr(content, ')'))) sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static long memory_kb(int pid) {
  char path[64], line[256];
  long found = 0;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file)) if (sscanf(line, "VmRSS: %ld", &found) == 1) break;
  if (file) fclose(file);
  return found;
}

static double all_cpu_us(void) {
  double sum = 0;
  for (int i = 0; i < pid_count; i++) sum += cpu_us(pids[i]);
  return sum;
}

static long all_memory_kb(void) {
  long sum = 0;
  for (int i = 0; i < pid_count; i++) sum += memory_kb(pids[i]);
  return sum;
}

// ---- the run -----------------------------------------------------------------------------------------
static void load_bodies(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) { perror(path); exit(2); }
  char *line = NULL;
  size_t room = 0;
  for (ssize_t size; body_count < MOST_BODIES && (size = getline(&line, &room, file)) > 1;) {
    bodies[body_count] = strndup(line, (size_t)size - 1);
    body_sizes[body_count++] = (size_t)size - 1;
  }
  fclose(file);
  if (!body_count) { fprintf(stderr, "%s holds no bodies\n", path); exit(2); }
}

static void run(slot *slots, long wanted, int concurrency, double rate, double timeout) {
  double due = (double)now_us();
  long arrived = 0;
  struct epoll_event events[256];
  srand48(42);
  start = now_us();
  while (done + failed < wanted) {
    uint64_t now = now_us();
    if ((double)(now - start) > timeout * 1e6) { fprintf(stderr, "too slow: %ld of %ld\n", done, wanted); return; }
    if (rate <= 0) arrived = wanted;
    for (; arrived < wanted && due <= (double)now; arrived++) due -= log(1 - drand48()) / rate * 1e6;
    for (int i = 0; i < concurrency && issued < arrived; i++) {
      if (slots[i].state == IDLE) submit(&slots[i]);
    }
    double wait = arrived < wanted ? (due - (double)now) / 1e3 : 100;
    int count = epoll_wait(poller, events, 256, wait < 0 ? 0 : wait > 100 ? 100 : (int)wait);
    for (int i = 0; i < count; i++) hear(events[i].data.ptr);
  }
}

int main(int count, char **given) {
  double timeout = 600;
  if (count < 6) { fprintf(stderr, "load PORT BODIES REQUESTS CONCURRENCY RATE [--pids A,B] [--records FILE] [--texts] [--timeout S]\n"); return 2; }
  for (int i = 6; i < count; i++) {
    if (!strcmp(given[i], "--texts")) keeps_texts = 1;
    else if (i + 1 == count) break;
    else if (!strcmp(given[i], "--timeout")) timeout = atof(given[++i]);
    else if (!strcmp(given[i], "--records")) { records = fopen(given[++i], "w"); is_recording = records != NULL; }
    else if (!strcmp(given[i], "--pids")) {
      for (char *pid = strtok(given[++i], ","); pid && pid_count < MOST_PIDS; pid = strtok(NULL, ",")) pids[pid_count++] = atoi(pid);
    }
  }
  port = atoi(given[1]);
  load_bodies(given[2]);
  int concurrency = atoi(given[4]);
  signal(SIGPIPE, SIG_IGN);
  poller = epoll_create1(0);
  slot *slots = calloc((size_t)concurrency, sizeof *slots);
  for (int i = 0; i < concurrency; i++) dial(&slots[i]);
  usleep(200000);  // so that what accepting costs is not counted
  double before = all_cpu_us();
  run(slots, atol(given[3]), concurrency, atof(given[5]), timeout);
  double seconds = (double)(now_us() - start) / 1e6, cpu = all_cpu_us() - before;
  struct rusage own;
  getrusage(RUSAGE_SELF, &own);
  double own_us = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) * 1e6 + (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec);
  printf("{\"done\":%ld,\"failed\":%ld,\"seconds\":%.6f,\"pieces\":%ld,\"bytes\":%lu,\"cpu_us\":%.0f,\"memory_kb\":%ld,\"own_cpu_us\":%.0f}\n",
         done, failed, seconds, pieces, bytes_read, cpu, all_memory_kb(), own_us);
  if (records) fclose(records);
  return failed || done < atol(given[3]);
}
