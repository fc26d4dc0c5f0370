#include "common.h"

#if defined(__x86_64__)
#include "lanes_avx2.h"

#include "scan_body.h"

#include "slices_body.h"

#include "bitslice_body.h"

#include "probe_body.h"

#include "rings_body.h"

#include "weigh_body.h"

#include "product_body.h"

const Level level_avx2 = {"avx2", scan, scan_blocks, bitslice, probe, ring_search, assign, weigh, multiply, matrix};

#endif
