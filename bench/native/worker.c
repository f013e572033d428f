// A simulated SGLang worker for load runs: gRPC over HTTP/2, one thread, about 0.3 us of CPU a token.
//
//   worker PORT --ids FILE --replies DIR [--first MS] [--gap MS] [--together]
//
// Generate answers with the token ids of FILE, over and over, one message a token: the first after
// --first, the others --gap apart; 0 is as fast as flow control allows. With --together all streams
// tick on one grid, as a batch on a GPU does. Other calls are answered with the serialised message in
// DIR that has the method's name. PORT 0 takes any free one; it is printed once it listens. SIGUSR1
// prints what was done so far, as a line of JSON.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { GRPC_HEAD = 5, OUT_SIZE = 1 << 16, IN_SIZE = 1 << 18, MOST_IDS = 1 << 20, MOST_REPLIES = 32 };
enum kind { UNKNOWN, REPLY, GENERATION };

typedef struct connection connection;

typedef struct stream {
  connection *owner;
  int32_t id;
  enum kind kind;
  char method[64];
  uint8_t *request;  // the message as it comes in, with its five bytes of gRPC in front
  size_t request_size, request_room;
  char rid[64];
  size_t rid_size;
  uint32_t prompt_tokens, wanted, sent;
  int streams;       // whether the client wants chunks
  uint64_t due;      // when the next token is, in microseconds; 0 is always
  uint8_t *last;     // a message that is sent in pieces: a reply, or the final one
  size_t last_size, last_sent;
  int last_owned, waits, at;  // at: place in the heap, -1 when not in it
} stream;

struct connection {
  int fd, wants_writing, is_touched;
  uint64_t active;
  nghttp2_session *session;
  uint8_t out[OUT_SIZE + 32768];
  size_t out_size, out_sent;
  connection *next_touched;
};

static uint32_t *ids;
static size_t ids_count;
static double first_ms, gap_ms;
static int together;
static struct { char method[256]; uint8_t *message; size_t size; } replies[MOST_REPLIES];
static int replies_count, poller;
static uint64_t requests, tokens, cancelled, active;
static volatile sig_atomic_t is_over, is_asked;
static connection *touched;

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// ---- streams by when they are due: a binary heap ----------------------------------------------
static stream **heap;
static int heap_size, heap_room;

static void place(stream *s, int at) { heap[at] = s; s->at = at; }

static void rise(stream *s) {
  int at = s->at;
  for (; at > 0 && heap[(at - 1) / 2]->due > s->due; at = (at - 1) / 2) place(heap[(at - 1) / 2], at);
  place(s, at);
}

static void sink(stream *s) {
  int at = s->at;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= heap_size) break;
    if (child + 1 < heap_size && heap[child + 1]->due < heap[child]->due) child++;
    if (heap[child]->due >= s->due) break;
    place(heap[child], at);
    at = child;
  }
  place(s, at);
}

static void wait_for(stream *s) {
  if (s->at >= 0) return;
  if (heap_size == heap_room) heap = realloc(heap, (heap_room = heap_room ? 2 * heap_room : 1024) * sizeof *heap);
  place(s, heap_size++);
  rise(s);
}

static void forget(stream *s) {
  if (s->at < 0) return;
  stream *moved = heap[--heap_size];
  if (moved != s) {
    place(moved, s->at);
    rise(moved);
    sink(moved);
  }
  s->at = -1;
}

// ---- protobuf, as far as it goes ---------------------------------------------------------------
static uint8_t *put_varint(uint8_t *to, uint64_t value) {
  for (; value >= 128; value >>= 7) *to++ = (uint8_t)(value | 128);
  *to++ = (uint8_t)value;
  return to;
}

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value >= 128; value >>= 7) size++;
  return size;
}

static uint64_t take_varint(const uint8_t **at, const uint8_t *end) {
  uint64_t value = 0;
  for (int shift = 0; *at < end; shift += 7) {
    uint8_t byte = *(*at)++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) break;
  }
  return value;
}

typedef void (*on_field)(stream *s, int field, uint64_t value, const uint8_t *bytes, size_t size);

static void walk(stream *s, const uint8_t *at, const uint8_t *end, on_field visit) {
  while (at < end) {
    uint64_t key = take_varint(&at, end);
    if ((key & 7) == 0) {
      visit(s, (int)(key >> 3), take_varint(&at, end), NULL, 0);
    } else if ((key & 7) == 2) {
      uint64_t size = take_varint(&at, end);
      if (size > (uint64_t)(end - at)) return;
      visit(s, (int)(key >> 3), 0, at, size);
      at += size;
    } else {
      at += (key & 7) == 5 ? 4 : 8;
    }
  }
}

static void on_prompt(stream *s, int field, uint64_t value, const uint8_t *bytes, size_t size) {
  (void)value;
  for (size_t i = 0; field == 2 && i < size; i++) s->prompt_tokens += bytes[i] < 128;
}

static void on_sampling(stream *s, int field, uint64_t value, const uint8_t *bytes, size_t size) {
  (void)bytes, (void)size;
  if (field == 8) s->wanted = (uint32_t)value;
}

static void on_request(stream *s, int field, uint64_t value, const uint8_t *bytes, size_t size) {
  if (field == 1 && bytes) memcpy(s->rid, bytes, s->rid_size = size < sizeof s->rid ? size : sizeof s->rid);
  if (field == 2 && bytes) walk(s, bytes, bytes + size, on_prompt);
  if (field == 4 && bytes) walk(s, bytes, bytes + size, on_sampling);
  if (field == 17) s->streams = value != 0;
}

// A GenerateResponse: its id, and the field of the chunk (2) or of the end (3) with *size* bytes.
static uint8_t *put_response(uint8_t *to, stream *s, int field, size_t size) {
  size_t whole = 1 + varint_size(s->rid_size) + s->rid_size + 1 + varint_size(size) + size;
  *to++ = 0;
  for (int shift = 24; shift >= 0; shift -= 8) *to++ = (uint8_t)(whole >> shift);
  *to++ = 1 << 3 | 2;
  to = put_varint(to, s->rid_size);
  memcpy(to, s->rid, s->rid_size);
  to += s->rid_size;
  *to++ = (uint8_t)(field << 3 | 2);
  return put_varint(to, size);
}

static size_t put_chunk(stream *s, uint8_t *to) {
  uint32_t id = ids[s->sent % ids_count], count = ++s->sent;
  size_t packed = varint_size(id);
  uint8_t *at = put_response(to, s, 2, 2 + packed + 2 + varint_size(s->prompt_tokens) + varint_size(count));
  *at++ = 1 << 3 | 2;
  *at++ = (uint8_t)packed;
  at = put_varint(at, id);
  *at++ = 2 << 3;
  at = put_varint(at, s->prompt_tokens);
  *at++ = 3 << 3;
  at = put_varint(at, count);
  tokens++;
  return (size_t)(at - to);
}

// The last message: all ids, or the last one again when there were chunks.
static void make_end(stream *s) {
  uint32_t from = s->streams ? s->wanted - 1 : 0;
  size_t packed = 0;
  for (uint32_t i = from; i < s->wanted; i++) packed += varint_size(ids[i % ids_count]);
  size_t size = 1 + varint_size(packed) + packed + 8 + 2 + varint_size(s->prompt_tokens) + varint_size(s->wanted);
  uint8_t *at = s->last = malloc(size + 128);
  s->last_owned = 1;
  at = put_response(at, s, 3, size);
  *at++ = 1 << 3 | 2;
  at = put_varint(at, packed);
  for (uint32_t i = from; i < s->wanted; i++) at = put_varint(at, ids[i % ids_count]);
  *at++ = 2 << 3 | 2;
  *at++ = 6;
  memcpy(at, "length", 6);
  at += 6;
  *at++ = 3 << 3;
  at = put_varint(at, s->prompt_tokens);
  *at++ = 4 << 3;
  at = put_varint(at, s->wanted);
  s->last_size = (size_t)(at - s->last);
  if (!s->streams) tokens += s->wanted;
}

// ---- HTTP/2, by nghttp2 ------------------------------------------------------------------------
#define HEADER(name, value) {(uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, 0}

static void touch(connection *c) {
  if (c->is_touched) return;
  c->is_touched = 1;
  c->next_touched = touched;
  touched = c;
}

// Give the rest of the last message; with its end comes the status.
static size_t put_last(stream *s, uint8_t *to, size_t room, uint32_t *flags) {
  size_t left = s->last_size - s->last_sent, size = left < room ? left : room;
  memcpy(to, s->last + s->last_sent, size);
  s->last_sent += size;
  if (s->last_sent == s->last_size) {
    nghttp2_nv status = HEADER("grpc-status", "0");
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_submit_trailer(s->owner->session, s->id, &status, 1);
  }
  return size;
}

static ssize_t read_stream(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                           nghttp2_data_source *source, void *user) {
  (void)session, (void)id, (void)user;
  stream *s = source->ptr;
  if (s->last) return (ssize_t)put_last(s, to, room, flags);
  if (s->due > now_us() || room < 128) {
    s->waits = 1;
    wait_for(s);
    return NGHTTP2_ERR_DEFERRED;
  }
  if (!s->streams || s->sent == s->wanted) {
    make_end(s);
    return (ssize_t)put_last(s, to, room, flags);
  }
  size_t size = put_chunk(s, to);
  if (s->due && s->sent < s->wanted) s->due += (uint64_t)(gap_ms * 1000);
  return (ssize_t)size;
}

static void schedule(stream *s) {
  if (first_ms == 0 && gap_ms == 0) return;
  uint64_t grid = (uint64_t)(gap_ms * 1000);
  s->due = now_us() + (uint64_t)(first_ms * 1000);
  if (!s->streams) s->due += grid * (s->wanted - 1);
  if (together && grid) s->due = (s->due + grid - 1) / grid * grid;
}

static void answer(stream *s) {
  nghttp2_nv head[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc"),
                       HEADER("grpc-status", "12")};
  nghttp2_data_provider body = {.source.ptr = s, .read_callback = read_stream};
  if (!strcmp(s->method, "Generate") && s->request_size > GRPC_HEAD) {
    s->kind = GENERATION;
    s->wanted = 16;
    walk(s, s->request + GRPC_HEAD, s->request + s->request_size, on_request);
    requests++;
    active++;
    s->owner->active++;
    schedule(s);
    nghttp2_submit_response(s->owner->session, s->id, head, 2, &body);
    return;
  }
  for (int i = 0; i < replies_count; i++) {
    if (strcmp(replies[i].method, s->method)) continue;
    s->kind = REPLY;
    s->last = replies[i].message;
    s->last_size = replies[i].size;
    nghttp2_submit_response(s->owner->session, s->id, head, 2, &body);
    return;
  }
  nghttp2_submit_response(s->owner->session, s->id, head, 3, NULL);
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  stream *s = calloc(1, sizeof *s);
  s->owner = user;
  s->id = frame->hd.stream_id;
  s->at = -1;
  return nghttp2_session_set_stream_user_data(session, s->id, s);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t size, uint8_t flags, void *user) {
  (void)flags, (void)user;
  stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (!s || name_size != 5 || memcmp(name, ":path", 5)) return 0;
  const uint8_t *slash = memrchr(value, '/', size);
  snprintf(s->method, sizeof s->method, "%.*s", slash ? (int)(value + size - slash - 1) : 0, slash ? (char *)slash + 1 : "");
  return 0;
}

static int on_body(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t size, void *user) {
  (void)flags, (void)user;
  stream *s = nghttp2_session_get_stream_user_data(session, id);
  if (!s) return 0;
  if (s->request_size + size > s->request_room) s->request = realloc(s->request, s->request_room = 2 * (s->request_size + size));
  memcpy(s->request + s->request_size, bytes, size);
  s->request_size += size;
  return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  (void)user;
  if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
  if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) return 0;
  stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (s) answer(s);
  return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
  (void)user;
  stream *s = nghttp2_session_get_stream_user_data(session, id);
  if (!s) return 0;
  if (s->kind == GENERATION) {
    active--;
    s->owner->active--;
    cancelled += code != 0;
  }
  forget(s);
  if (s->last_owned) free(s->last);
  free(s->request);
  free(s);
  return nghttp2_session_set_stream_user_data(session, id, NULL);
}

// ---- connections -------------------------------------------------------------------------------
static void watch(connection *c, int writing) {
  if (c->wants_writing == writing) return;
  struct epoll_event event = {EPOLLIN | (writing ? EPOLLOUT : 0), {.ptr = c}};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
  c->wants_writing = writing;
}

static void hang_up(connection *c) {
  close(c->fd);
  c->fd = -1;
  for (int i = 0; i < heap_size;) {
    if (heap[i]->owner == c) forget(heap[i]), i = 0;
    else i++;
  }
  active -= c->active;
  cancelled += c->active;
  // Closes no stream and frees none: this process ends with the run.
  nghttp2_session_del(c->session);
}

static void flush(connection *c) {
  for (;;) {
    while (c->out_sent < c->out_size) {
      ssize_t n = write(c->fd, c->out + c->out_sent, c->out_size - c->out_sent);
      if (n < 0 && errno == EAGAIN) return watch(c, 1);
      if (n < 0) return hang_up(c);
      c->out_sent += (size_t)n;
    }
    c->out_size = c->out_sent = 0;
    while (c->out_size < OUT_SIZE) {
      const uint8_t *bytes;
      ssize_t n = nghttp2_session_mem_send(c->session, &bytes);
      if (n < 0) return hang_up(c);
      if (n == 0) break;
      memcpy(c->out + c->out_size, bytes, (size_t)n);
      c->out_size += (size_t)n;
    }
    if (!c->out_size) return watch(c, 0);
  }
}

static void welcome(int listener, const nghttp2_session_callbacks *callbacks) {
  int fd, on = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection *c = calloc(1, sizeof *c);
    c->fd = fd;
    nghttp2_session_server_new(&c->session, callbacks, c);
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 100000},
                                         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20}};
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, 1 << 24);
    struct epoll_event event = {EPOLLIN, {.ptr = c}};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    touch(c);
  }
}

static void hear(connection *c) {
  static uint8_t in[IN_SIZE];
  if (c->fd < 0) return;
  ssize_t n = read(c->fd, in, sizeof in);
  if (n < 0 && errno == EAGAIN) return touch(c);
  if (n <= 0 || nghttp2_session_mem_recv(c->session, in, (size_t)n) < 0) return hang_up(c);
  touch(c);
}

// ---- start -------------------------------------------------------------------------------------
static void load_ids(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) { perror(path); exit(2); }
  ids = malloc(MOST_IDS * sizeof *ids);
  while (ids_count < MOST_IDS && fscanf(file, "%u", &ids[ids_count]) == 1) ids_count++;
  fclose(file);
  if (!ids_count) { fprintf(stderr, "%s holds no ids\n", path); exit(2); }
}

static void load_replies(const char *folder) {
  DIR *listing = opendir(folder);
  if (!listing) { perror(folder); exit(2); }
  for (struct dirent *entry; (entry = readdir(listing)) && replies_count < MOST_REPLIES;) {
    if (entry->d_name[0] == '.') continue;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    FILE *file = fopen(path, "r");
    uint8_t *message = calloc(1, 1 << 20);
    size_t size = fread(message + GRPC_HEAD, 1, (1 << 20) - GRPC_HEAD, file);
    fclose(file);
    for (int i = 0; i < 4; i++) message[1 + i] = (uint8_t)(size >> (24 - 8 * i));
    snprintf(replies[replies_count].method, sizeof replies[0].method, "%s", entry->d_name);
    replies[replies_count].message = message;
    replies[replies_count++].size = size + GRPC_HEAD;
  }
  closedir(listing);
}

static int listen_on(int port) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (void *)&address, size) || listen(listener, 1024)) { perror("listen"); exit(2); }
  getsockname(listener, (void *)&address, &size);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return listener;
}

static void end(int number) { (void)number; is_over = 1; }
static void ask(int number) { (void)number; is_asked = 1; }

static void tell(void) {
  is_asked = 0;  // first: who has read the line may ask again at once
  printf("{\"requests\":%lu,\"tokens\":%lu,\"cancelled\":%lu,\"active\":%lu}\n", requests, tokens, cancelled, active);
  fflush(stdout);
}

static void serve(int listener, const nghttp2_session_callbacks *callbacks) {
  static int at_listener, at_timer;
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct epoll_event events[256], event = {EPOLLIN, {.ptr = &at_listener}};
  poller = epoll_create1(0);
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
  event.data.ptr = &at_timer;
  epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
  while (!is_over) {
    if (heap_size) {
      uint64_t due = heap[0]->due ? heap[0]->due : 1;
      struct itimerspec when = {.it_value = {(time_t)(due / 1000000), (long)(due % 1000000) * 1000}};
      timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
    }
    int count = epoll_wait(poller, events, 256, 100);  // a signal may come just before
    if (is_asked) tell();
    for (int i = 0; i < count; i++) {
      uint64_t ticks;
      if (events[i].data.ptr == &at_listener) welcome(listener, callbacks);
      else if (events[i].data.ptr == &at_timer) { if (read(timer, &ticks, sizeof ticks) < 0) continue; }
      else hear(events[i].data.ptr);
    }
    for (uint64_t now = now_us(); heap_size && heap[0]->due <= now;) {
      stream *s = heap[0];
      forget(s);
      s->waits = 0;
      nghttp2_session_resume_data(s->owner->session, s->id);
      touch(s->owner);
    }
    connection *c = touched, *next;
    for (touched = NULL; c; c = next) {
      next = c->next_touched;
      c->is_touched = 0;
      if (c->fd >= 0) flush(c);
    }
  }
}

int main(int count, char **given) {
  const char *ids_path = NULL, *replies_path = NULL;
  for (int i = 2; i < count; i++) {
    if (!strcmp(given[i], "--together")) together = 1;
    else if (i + 1 == count) break;
    else if (!strcmp(given[i], "--ids")) ids_path = given[++i];
    else if (!strcmp(given[i], "--replies")) replies_path = given[++i];
    else if (!strcmp(given[i], "--first")) first_ms = atof(given[++i]);
    else if (!strcmp(given[i], "--gap")) gap_ms = atof(given[++i]);
  }
  if (!ids_path || !replies_path) { fprintf(stderr, "worker PORT --ids FILE --replies DIR [--first MS] [--gap MS] [--together]\n"); return 2; }
  struct sigaction ending = {.sa_handler = end}, asking = {.sa_handler = ask};
  signal(SIGPIPE, SIG_IGN);
  sigaction(SIGTERM, &ending, NULL);
  sigaction(SIGINT, &ending, NULL);
  sigaction(SIGUSR1, &asking, NULL);
  load_ids(ids_path);
  load_replies(replies_path);
  nghttp2_session_callbacks *callbacks;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_body);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  serve(listen_on(atoi(given[1])), callbacks);
  tell();
  return 0;
}
