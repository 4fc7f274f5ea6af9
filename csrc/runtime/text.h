// Words of Foundation in C++.
#pragma once

#import <Foundation/Foundation.h>

#include <string>

namespace mtl4::runtime {

inline NSString* ns_string(const std::string& s) { return [NSString stringWithUTF8String:s.c_str()]; }

inline std::string text_of(NSString* s) {
  const char* bytes = s.UTF8String;
  return bytes ? bytes : "";
}

inline std::string text_of(NSError* error) {
  return error ? text_of(error.localizedDescription) : "Metal gave no reason";
}

}  // namespace mtl4::runtime
