// Text put together at compile time, for the messages of static_assert and the names of costs.
#pragma once
#include "scalar.h"
namespace msl {
struct Text {
  char data_[320] = {};
  size_t size_ = 0;

  constexpr Text() = default;
  constexpr Text(const char *s) {
    while (*s && size_ < sizeof data_ - 1) data_[size_++] = *s++;
  }
  constexpr Text operator+(const Text &o) const {
    Text sum = *this;
    for (size_t i = 0; i < o.size_ && sum.size_ < sizeof data_ - 1; i++) sum.data_[sum.size_++] = o.data_[i];
    return sum;
  }
  static constexpr Text number(long n) {
    if (n < 0) return Text("-") + number(-n);
    char digit[2] = {(char)('0' + n % 10), 0};
    return n < 10 ? Text(digit) : number(n / 10) + Text(digit);
  }
  constexpr const char *data() const { return data_; }
  constexpr size_t size() const { return size_; }
};
} // namespace msl
