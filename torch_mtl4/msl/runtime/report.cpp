// Findings: collected under a lock, equal ones counted, read by the Python side after the dispatch.
#include "state.h"
#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace msl {
namespace {
constexpr size_t MAX_REPORTS = 200;
std::mutex mutex;
std::vector<Report> reports;
} // namespace

void report_list(const char *kind, uintptr_t pc, uintptr_t other_pc, const char *format, va_list arguments) {
  char message[600];
  vsnprintf(message, sizeof message, format, arguments);
  std::lock_guard<std::mutex> lock(mutex);
  for (auto &r : reports)
    if (r.kind == kind && r.pc == pc && r.other_pc == other_pc) {
      r.count++;
      return;
    }
  if (reports.size() >= MAX_REPORTS) return;
  Report r{kind, message, pc, other_pc, 1, false, {}};
  if (worker && worker->current) {
    r.has_thread = true;
    r.thread = worker->current->thread;
  }
  reports.push_back(r);
}

void report(const char *kind, uintptr_t pc, uintptr_t other_pc, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_list(kind, pc, other_pc, format, arguments);
  va_end(arguments);
}

void clear_reports() { reports.clear(); }
} // namespace msl

extern "C" {
void msl_report(const char *kind, const char *format, ...) {
  using namespace msl;
  va_list arguments;
  va_start(arguments, format);
  report_list(kind, worker && worker->unchecked ? worker->operation_site : MSL_CALLER, 0, format, arguments);
  va_end(arguments);
}

struct MslReportView { // mirrored in library.py
  const char *kind, *message;
  uintptr_t pc, other_pc;
  uint64_t count;
  int has_thread;
  unsigned threadgroup[3], thread[3], simdgroup, lane;
};

void msl_report_clear() { msl::clear_reports(); }
int msl_report_count() { return (int)msl::reports.size(); }

void msl_report_get(int i, MslReportView *out) {
  const msl::Report &r = msl::reports[i];
  *out = {r.kind.c_str(), r.message.c_str(), r.pc, r.other_pc, r.count, r.has_thread, {}, {}, 0, 0};
  for (int d = 0; d < 3; d++) {
    out->threadgroup[d] = r.thread.tg[d];
    out->thread[d] = r.thread.tid[d];
  }
  out->simdgroup = r.thread.simdgroup;
  out->lane = r.thread.lane;
}
}
