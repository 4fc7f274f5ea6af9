// A thread a pixel of the resized masks.
const int x = int(position.x), y = int(position.y), mask = int(position.z);
const float logit = resized(logits, x, y, mask, masks.get_extent(0), masks.get_extent(1));
masks[x, y, mask] = logit > threshold ? 1 : 0;
