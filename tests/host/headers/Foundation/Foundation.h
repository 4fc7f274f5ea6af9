// The part of Foundation that csrc/runtime and the declarations of Metal name, for compilers without Apple's SDK.
#pragma once
#include <objc/NSObject.h>
#include <objc/objc.h>

#define NS_INLINE static __inline__ __attribute__((always_inline, unused))
#define NS_ENUM(T, N) \
  enum N : T N;       \
  enum __attribute__((enum_extensibility(open))) N : T
#define NS_OPTIONS(T, N) \
  T N;                   \
  enum __attribute__((flag_enum, enum_extensibility(open))) : T
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))

typedef struct {
  NSUInteger location, length;
} NSRange;
typedef struct {
  NSInteger majorVersion, minorVersion, patchVersion;
} NSOperatingSystemVersion;

@class NSURL;

@interface NSString : NSObject
@property(readonly) const char* UTF8String;
+ (instancetype)stringWithUTF8String:(const char*)text;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString* localizedDescription;
@end

@interface NSArray<T> : NSObject
@property(readonly) NSUInteger count;
- (T)objectAtIndex:(NSUInteger)index;
@end

@interface NSProcessInfo : NSObject
@property(class, readonly) NSProcessInfo* processInfo;
@property(readonly) NSOperatingSystemVersion operatingSystemVersion;
@end
