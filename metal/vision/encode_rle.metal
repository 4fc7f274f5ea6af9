// A threadgroup a mask, a thread a range of columns, which are read twice: to count the changes, so that each thread
// knows where its runs go, and to write the runs that end at them.
threadgroup int changes[THREADS], last_change[THREADS];
threadgroup int total;
const int mask = int(group.y), t = int(thread_in_group), capacity = counts.get_extent(0);
const int width = masks.get_extent(0), height = masks.get_extent(1), columns = (width + THREADS - 1) / THREADS;
const int first = min(t * columns, width), end = min(first + columns, width);
const bool before = first > 0 && masks[first - 1, height - 1, mask] != 0;

int mine = 0, at = 0;
bool previous = before;
for (int x = first; x < end; ++x)
  for (int y = 0; y < height; ++y) {
    const bool now = masks[x, y, mask] != 0;
    if (now != previous) {
      ++mine;
      at = x * height + y;
    }
    previous = now;
  }
changes[t] = mine;
last_change[t] = at;
threadgroup_barrier(mem_flags::mem_threadgroup);

int run = 0, start = 0;
for (int other = 0; other < t; ++other) {
  run += changes[other];
  if (changes[other] > 0) start = last_change[other];
}
previous = before;
for (int x = first; mine > 0 && x < end; ++x)
  for (int y = 0; y < height; ++y) {
    const bool now = masks[x, y, mask] != 0;
    if (now != previous) {
      const int change = x * height + y;
      if (run < capacity) counts[run, mask] = change - start;
      start = change;
      ++run;
    }
    previous = now;
  }
if (t == THREADS - 1) {
  if (run < capacity) counts[run, mask] = width * height - start;
  runs[mask] = run + 1;
  total = run + 1;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int i = total + t; i < capacity; i += THREADS) counts[i, mask] = 0;
