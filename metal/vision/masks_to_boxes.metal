// A threadgroup a mask, a simdgroup a row at a time.
threadgroup int4 found[32];
const int mask = int(group.y), width = masks.get_extent(0), height = masks.get_extent(1);
int4 box = int4(width, height, -1, -1);
for (int y = int(simdgroup); y < height; y += int(simdgroups))
  for (int x = int(lane); x < width; x += 32)
    if (masks[x, y, mask] != 0) box = int4(min(box.x, x), min(box.y, y), max(box.z, x), max(box.w, y));
box = int4(simd_min(box.x), simd_min(box.y), simd_max(box.z), simd_max(box.w));
if (lane == 0) found[simdgroup] = box;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (thread_in_group == 0) {
  for (int i = 1; i < int(simdgroups); ++i) box = int4(min(box.xy, found[i].xy), max(box.zw, found[i].zw));
  if (box.z < 0) box = 0;
  for (int i = 0; i < 4; ++i) boxes[i, mask] = float(box[i]);
}
