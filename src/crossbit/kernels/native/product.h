/* Matrix product of many rows on several threads. */
#ifndef CROSSBIT_PRODUCT_H
#define CROSSBIT_PRODUCT_H

#include "common.h"

/* Returns the first row with an element that is not finite, or n; checked only for signs. */
size_t product_run(const Level *level, const Product *product, size_t threads);

#endif
