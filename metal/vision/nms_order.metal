// order[r] is the box with the r-th largest score; of equal scores the first box comes first.
const int n = scores.get_extent(0);
if (int(box) < n) {
  const int key = nms_key(float(scores[int(box)]));
  int rank = 0;
  for (int other = 0; other < n; ++other) {
    const int other_key = nms_key(float(scores[other]));
    rank += other_key > key || (other_key == key && other < int(box));
  }
  order[rank] = int(box);
}
