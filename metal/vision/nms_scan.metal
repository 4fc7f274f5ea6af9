// Takes boxes in order, 32 at a time: the first simdgroup settles the 32 among themselves, then all threads note whom the
// kept ones suppress. One threadgroup in all.
threadgroup uint removed[WORDS];
threadgroup uint kept_bits;
threadgroup int total;
const int n = order.get_extent(0), words = (n + 31) / 32, t = int(thread_in_group), b = int(lane);
for (int word = t; word < words; word += THREADS) removed[word] = 0;
int kept_before = 0;
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int word = 0; word < words; ++word) {
  const int first = 32 * word;
  if (simdgroup == 0) {
    const bool there = first + b < n;
    const uint row = there ? as_type<uint>(overlaps[(first + b) * words + word]) : 0;
    uint gone = removed[word];
    for (ushort i = 0; i < 32; ++i) {
      const uint suppressed = simd_broadcast(row, i);
      if ((gone >> i & 1) == 0) gone |= suppressed;
    }
    const uint kept = ~gone & (n - first < 32 ? (1u << (n - first)) - 1 : 0xffffffff);
    if (kept >> b & 1) indices[kept_before + int(popcount(kept & ((1u << b) - 1)))] = order[first + b];
    kept_before += int(popcount(kept));
    if (b == 0) kept_bits = kept;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint kept = kept_bits;
  for (int later = word + 1 + t; later < words; later += THREADS) {
    uint suppressed = removed[later];
    for (uint left = kept; left != 0; left &= left - 1)
      suppressed |= as_type<uint>(overlaps[(first + int(ctz(left))) * words + later]);
    removed[later] = suppressed;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (t == 0) {
  total = kept_before;
  count[0] = kept_before;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int at = total + t; at < n; at += THREADS) indices[at] = -1;
