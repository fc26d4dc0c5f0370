/* One product of many rows, by several threads. */
#ifndef CROSSBIT_PRODUCT_H
#define CROSSBIT_PRODUCT_H

#include "common.h"

/* The first row with an element that is not finite, or n; looked at only where signs are asked for. */
size_t product_run(const Level *level, const Product *product, size_t threads);

#endif
