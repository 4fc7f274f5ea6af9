// Ownership of an Objective-C object without ARC, which torch's own headers do not allow.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace mtl4::runtime {

template <typename T>
class Held {
 public:
  Held() = default;
  // Takes over what a method named new..., alloc..., copy... or mutableCopy... returned.
  static Held owned(T object) { return Held(object); }
  static Held retained(T object) { return Held([object retain]); }

  Held(const Held& other) : object_([other.object_ retain]) {}
  Held(Held&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Held& operator=(Held other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Held() { [object_ release]; }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  explicit Held(T object) : object_(object) {}
  T object_ = nil;
};

}  // namespace mtl4::runtime
