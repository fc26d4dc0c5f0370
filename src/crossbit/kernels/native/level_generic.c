#include "common.h"


#include "lanes_generic.h"

#include "scan_body.h"

#include "slices_body.h"

#include "bitslice_body.h"

#include "probe_body.h"

#include "rings_body.h"

#include "weigh_body.h"

#include "product_body.h"

const Level level_generic = {"generic", scan, scan_blocks, bitslice, probe, ring_search, assign, weigh, multiply, matrix};

