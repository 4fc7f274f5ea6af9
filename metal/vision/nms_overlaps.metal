// Row by row a word for each 32 boxes, in order. Bit b of a row's word says whether its box suppresses the one that is
// (32 * word + b)-th, a later one. The rows are not a dimension, since that of the words may have the size 1, of which
// torch.export makes a case of its own.
// A threadgroup holds the 32 boxes of one word and compares a row a thread with them.
threadgroup float4 later[32];
threadgroup int later_category[32];
const int n = order.get_extent(0), row = int(position.x), word = int(position.y), first = 32 * word;
if (thread_in_group < 32 && first + int(thread_in_group) < n) {
  const int box = order[first + int(thread_in_group)];
  later[thread_in_group] =
      float4(float(boxes[0, box]), float(boxes[1, box]), float(boxes[2, box]), float(boxes[3, box]));
  later_category[thread_in_group] = categories[box];
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (row < n) {
  uint bits = 0;
  if (row < first + 31) {
    const int box = order[row], category = categories[box];
    const float4 mine = float4(float(boxes[0, box]), float(boxes[1, box]), float(boxes[2, box]), float(boxes[3, box]));
    for (int b = max(0, row + 1 - first); b < min(32, n - first); ++b)
      if (category == later_category[b] && nms_suppresses(mine, later[b], threshold[0])) bits |= 1u << b;
  }
  overlaps[row * ((n + 31) / 32) + word] = as_type<int>(bits);
}
