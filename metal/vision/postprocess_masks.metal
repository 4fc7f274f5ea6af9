// A thread a pixel of the resized masks.
const int x = int(position.x), y = int(position.y), mask = int(position.z);
const resize_axis across = resize_at(x, logits.get_extent(0), masks.get_extent(0));
const resize_axis down = resize_at(y, logits.get_extent(1), masks.get_extent(1));
masks[x, y, mask] = resized(logits, across, down, mask) > threshold ? 1 : 0;
