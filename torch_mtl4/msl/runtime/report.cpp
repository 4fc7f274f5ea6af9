// Findings: collected under a lock, equal ones counted, read by the Python side after the dispatch.
#include "cost.h"
#include "state.h"
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace msl {
constexpr size_t MAX_REPORTS = 200;

void report_list(const char *kind, uintptr_t pc, uintptr_t other_pc, const char *format, va_list arguments) {
  Worker *w = worker;
  if (!w) return;
  Reports &reports = *w->job->reports;
  Lock lock(reports.mutex);
  for (Report &r : reports.list)
    if (r.pc == pc && r.other_pc == other_pc && !strcmp(r.kind, kind)) {
      r.count++;
      return;
    }
  if (reports.list.count >= MAX_REPORTS) return;
  Report r{kind, {}, pc, other_pc, 1, w->current != nullptr, {}, {}};
  vsnprintf(r.message, sizeof r.message, format, arguments);
  if (w->current) {
    r.thread = w->current->thread;
    memcpy(r.threadgroup, w->threadgroup.tg, sizeof r.threadgroup);
  }
  reports.list.push(r);
}

void report(const char *kind, uintptr_t pc, uintptr_t other_pc, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_list(kind, pc, other_pc, format, arguments);
  va_end(arguments);
}
} // namespace msl

extern "C" {
void msl_report(const char *kind, const char *format, ...) {
  using namespace msl;
  va_list arguments;
  va_start(arguments, format);
  report_list(kind, worker && worker->unchecked ? worker->operation_site : MSL_CALLER, 0, format, arguments);
  va_end(arguments);
}

void msl_fail(const char *kind, const char *format, ...) {
  using namespace msl;
  va_list arguments;
  va_start(arguments, format);
  report_list(kind, worker->unchecked ? worker->operation_site : MSL_CALLER, 0, format, arguments);
  va_end(arguments);
  worker->aborted = true;
  leave_to_main();
}

struct MslReportView { // mirrored in native.py
  const char *kind, *message;
  uintptr_t pc, other_pc;
  uint64_t count;
  int has_thread;
  unsigned threadgroup[3], thread[3], simdgroup, lane;
};

int msl_report_count(const msl::Reports *reports) { return (int)reports->list.count; }
int msl_log_count(const msl::Reports *reports) { return (int)reports->log.count; }

static void view(const msl::Report &r, MslReportView *out) {
  *out = {r.kind, r.message, r.pc, r.other_pc, r.count, r.has_thread, {}, {}, r.thread.simdgroup, r.thread.lane};
  memcpy(out->threadgroup, r.threadgroup, sizeof out->threadgroup);
  memcpy(out->thread, r.thread.tid, sizeof out->thread);
}

void msl_report_get(const msl::Reports *reports, int i, MslReportView *out) { view(reports->list[i], out); }
void msl_log_get(const msl::Reports *reports, int i, MslReportView *out) { view(reports->log[i], out); }

void msl_reports_free(msl::Reports *reports) {
  reports->list.release();
  reports->log.release();
  msl::free_cost(reports->cost);
  free(reports);
}
}
