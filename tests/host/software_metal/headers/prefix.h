// Included before everything when Objective-C++ is compiled against GNUstep.
#pragma once
#ifdef __OBJC__
#import <Foundation/Foundation.h>
#undef _
#undef __

#ifndef NS_INLINE
#define NS_INLINE static inline
#endif
#ifndef NS_RETURNS_RETAINED
#define NS_RETURNS_RETAINED
#endif

// GNUstep knows the version of its own system only.
typedef struct {
  NSInteger majorVersion, minorVersion, patchVersion;
} NSOperatingSystemVersion;
@interface NSProcessInfo (SoftwareMetal)
@property(readonly) NSOperatingSystemVersion operatingSystemVersion;
@end
#endif
