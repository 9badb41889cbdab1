//===- LoaderLibrary.cpp - a library with a runtime of its own ------------===//
//
// What the compiler links: code, descriptor, weights and the static runtime, in one shared library.
//
//===----------------------------------------------------------------------===//

#include "HandModel.h"

using namespace disc::test;

static const disc_variant variants[] = {
    {"never", "avx4096", &kScaleInfo, scaleInit, scaleMain, scaleShapes, 0},
    {"test", "", &kScaleInfo, scaleInit, scaleMain, scaleShapes, 0},
};

// The header's length (60), the header, and 3.0f.
alignas(64) static const char weights[] = "\x3c\0\0\0\0\0\0\0"
                                          "{\"scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  "
                                          "\0\0\x40\x40";

extern "C" __attribute__((visibility("default"))) const disc_library disc_library_model = {
    DISC_LIBRARY_VERSION, &disc_rt_api, "loaded", 2, variants, weights, sizeof(weights) - 1, "", 0, nullptr};
