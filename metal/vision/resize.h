// Bilinear resizing with the arithmetic of torch's F.interpolate (align_corners=False): every step rounds as there.

struct resize_axis {
  int first, second;
  float first_weight, second_weight;
};

inline resize_axis resize_at(int position, int from, int to) {
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
  if (from == to) return {position, position, 1.0f, 0.0f};
  const float source = max(fma(float(from) / float(to), float(position) + 0.5f, -0.5f), 0.0f);
  const int first = min(int(source), from - 1);
  const float second_weight = clamp(source - float(first), 0.0f, 1.0f);
  return {first, min(first + 1, from - 1), 1.0f - second_weight, second_weight};
}

inline float resize_between(float first, float second, resize_axis axis) {
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
  return fma(first, axis.first_weight, second * axis.second_weight);
}

template <typename Logits>
inline float resized(thread Logits& logits, int column, int row, int mask, int width, int height) {
  const resize_axis x = resize_at(column, logits.get_extent(0), width);
  const resize_axis y = resize_at(row, logits.get_extent(1), height);
  const float above = resize_between(float(logits[x.first, y.first, mask]), float(logits[x.second, y.first, mask]), x);
  const float below = resize_between(float(logits[x.first, y.second, mask]), float(logits[x.second, y.second, mask]), x);
  return resize_between(above, below, y);
}
