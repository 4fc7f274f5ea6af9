// os_log of kernels: formats a message as printf does, with vectors as %v4f, and keeps it for the host.
#include "state.h"
#include <cstdio>
#include <cstring>

namespace msl {
namespace {
constexpr size_t MAX_MESSAGES = 10000;
const char *const LEVELS[] = {"default", "debug", "info", "error", "fault"};

struct Text { // appends to the message of a report
  Report &report;
  size_t used;
  void add(const char *piece, size_t n) {
    size_t room = sizeof report.message - 1 - used;
    if (n > room) n = room;
    memcpy(report.message + used, piece, n);
    used += n;
    report.message[used] = 0;
  }
  void add(const char *piece) { add(piece, strlen(piece)); }
};

struct Conversion { // one % of a format
  char flags[24];   // what stands between % and the length
  int lanes;
  char letter;
};

const char *parse(const char *p, Conversion &c) {
  size_t n = 0;
  c = {};
  c.flags[n++] = '%';
  while (*p && strchr("-+ #0123456789.", *p)) {
    if (n < sizeof c.flags - 4) c.flags[n++] = *p;
    p++;
  }
  c.lanes = 1;
  if (*p == 'v') {
    c.lanes = 0;
    for (p++; *p >= '0' && *p <= '9'; p++) c.lanes = c.lanes * 10 + (*p - '0');
  }
  while (*p && strchr("hlLjzt", *p)) p++;
  c.letter = *p;
  return *p ? p + 1 : p;
}

bool add_lane(Text &text, Conversion c, const MslLogValue &v, int lane) {
  char piece[80], *end = c.flags + strlen(c.flags);
  if (strchr("fFeEgGaA", c.letter) && v.is_real) {
    *end = c.letter;
    snprintf(piece, sizeof piece, c.flags, v.real[lane]);
  } else if (strchr("diuxXo", c.letter) && !v.is_real) {
    long value = v.whole[lane];
    if (c.letter != 'd' && c.letter != 'i' && v.bytes < 8) value &= (1l << v.bytes * 8) - 1;
    end[0] = 'l';
    end[1] = c.letter;
    snprintf(piece, sizeof piece, c.flags, value);
  } else if (c.letter == 'c' && !v.is_real) {
    *end = 'c';
    snprintf(piece, sizeof piece, c.flags, (int)v.whole[lane]);
  } else if (c.letter == 'p') snprintf(piece, sizeof piece, "%p", (void *)v.whole[lane]);
  else if (c.letter == 's' && v.text) {
    text.add(v.text);
    return true;
  } else return false;
  text.add(piece);
  return true;
}

void format(Text &text, const char *p, const MslLogValue *values, int n, uintptr_t pc) {
  int next = 0;
  while (*p) {
    const char *percent = strchr(p, '%');
    if (!percent) {
      text.add(p);
      return;
    }
    text.add(p, percent - p);
    p = percent + 1;
    if (*p == '%') {
      text.add("%");
      p++;
      continue;
    }
    Conversion c;
    p = parse(p, c);
    if (next >= n || c.lanes > values[next].lanes) {
      report("log-format", pc, 0, "os_log: the format asks for more values than were given");
      return;
    }
    for (int lane = 0; lane < c.lanes; lane++) {
      if (lane) text.add(",");
      if (!add_lane(text, c, values[next], lane)) {
        report("log-format", pc, 0, "os_log: %%%c does not fit value %d", c.letter, next);
        text.add("?");
      }
    }
    next++;
  }
}
} // namespace
} // namespace msl

extern "C" {
__attribute__((noinline)) void msl_log(int level, const char *subsystem, const char *category, const char *text_format,
                                       const MslLogValue *values, int n) {
  using namespace msl;
  Worker *w = worker;
  Report r{LEVELS[level], {}, MSL_CALLER, 0, 1, true, w->current->thread, {}};
  memcpy(r.threadgroup, w->threadgroup.tg, sizeof r.threadgroup);
  Text text{r, 0};
  if (*subsystem || *category) {
    text.add("[");
    text.add(subsystem);
    text.add(":");
    text.add(category);
    text.add("] ");
  }
  format(text, text_format, values, n, r.pc);
  Reports &reports = *w->job->reports;
  Lock lock(reports.mutex);
  if (reports.log.count < MAX_MESSAGES) reports.log.push(r);
}
}
