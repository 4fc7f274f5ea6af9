// What decides in non-maximum suppression: the order of scores, and which box suppresses which.

// Larger scores have larger keys, NaN the largest, and zeros are equal: whole numbers, since fast math knows no NaN.
inline int nms_key(float score) {
  const int bits = as_type<int>(score), magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fffffff;
  return bits < 0 ? -magnitude : magnitude;
}

// Boxes are (x1, y1, x2, y2). The order of the sums is torchvision's. NaN in a box makes its area NaN, and the ratio,
// which is above nothing then.
inline bool nms_suppresses(float4 box, float4 other, float threshold) {
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
  const float width = max(min(box.z, other.z) - max(box.x, other.x), 0.0f);
  const float height = max(min(box.w, other.w) - max(box.y, other.y), 0.0f);
  const float area = (box.z - box.x) * (box.w - box.y), other_area = (other.z - other.x) * (other.w - other.y);
  const float intersection = width * height;
  return intersection / (area + other_area - intersection) > threshold;
}
