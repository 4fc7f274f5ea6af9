// The names of matrices: MSL_MATRICES defines those of one scalar in namespace metal, MSL_USING_MATRICES brings them out.
#pragma once
#define MSL_MATRICES(t) \
  using t##2x2 = matrix<t, 2, 2>; \
  using t##2x3 = matrix<t, 2, 3>; \
  using t##2x4 = matrix<t, 2, 4>; \
  using t##3x2 = matrix<t, 3, 2>; \
  using t##3x3 = matrix<t, 3, 3>; \
  using t##3x4 = matrix<t, 3, 4>; \
  using t##4x2 = matrix<t, 4, 2>; \
  using t##4x3 = matrix<t, 4, 3>; \
  using t##4x4 = matrix<t, 4, 4>;
#define MSL_USING_MATRICES(t) \
  using metal::t##2x2; \
  using metal::t##2x3; \
  using metal::t##2x4; \
  using metal::t##3x2; \
  using metal::t##3x3; \
  using metal::t##3x4; \
  using metal::t##4x2; \
  using metal::t##4x3; \
  using metal::t##4x4;
