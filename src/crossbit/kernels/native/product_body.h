/* Batch-invariant product of rows with a matrix.
 *
 * Every element is summed in the order of the columns of its row, ((0 + x0 w0) + x1 w1) + …, so the
 * product of a row does not depend on the other rows. A tile of TILE rows times two vectors of
 * columns stays in registers; the matrix is stored in row-major panels of PANEL columns, padded with
 * zeros.
 *
 * Needs from the lanes: F (a vector of FLOATS floats), TILE, f_splat, f_load, f_store, f_fma, f_signs, f_finite. */

/* R rows of x times a panel plus its part of the bias, into R rows of PANEL numbers. */
KERNEL INLINE void tile(const int R, const float *x, size_t depth, const float *panel, const float *bias, float *out)
{
    for (int c = 0; c < PANEL; c += 2 * FLOATS) {
        F sum[TILE][2];
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
            sum[r][0] = sum[r][1] = f_splat(0);
        for (size_t j = 0; j < depth; j++) {
            F first = f_load(panel + j * PANEL + c), second = f_load(panel + j * PANEL + c + FLOATS);
#pragma GCC unroll 12
            for (int r = 0; r < R; r++) {
                F value = f_splat(x[(size_t)r * depth + j]);
                sum[r][0] = f_fma(value, first, sum[r][0]);
                sum[r][1] = f_fma(value, second, sum[r][1]);
            }
        }
        F shift[2] = {f_load(bias + c), f_load(bias + c + FLOATS)};
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            f_store(out + r * PANEL + c, sum[r][0] + shift[0]);
            f_store(out + r * PANEL + c + FLOATS, sum[r][1] + shift[1]);
        }
    }
}

KERNEL static void full_tile(const float *x, size_t depth, const float *panel, const float *bias, float *out)
{
    tile(TILE, x, depth, panel, bias, out);
}

KERNEL static void single_row(const float *x, size_t depth, const float *panel, const float *bias, float *out)
{
    tile(1, x, depth, panel, bias, out);
}

KERNEL INLINE uint32_t panel_signs(const float *values)
{
    uint32_t bits = 0;
    for (int c = 0; c < PANEL; c += FLOATS)
        bits |= f_signs(f_load(values + c)) << c;
    return bits;
}

KERNEL INLINE bool panel_finite(const float *values)
{
    bool finite = true;
    for (int c = 0; c < PANEL; c += FLOATS)
        finite &= f_finite(f_load(values + c));
    return finite;
}

/* Store the columns of one panel for one row; false if one of them is not finite. */
KERNEL INLINE bool deliver(const Product *product, size_t row, size_t panel, const float *values)
{
    size_t begin = panel * PANEL, columns = product->columns - begin < PANEL ? product->columns - begin : PANEL;
    if (product->out)
        memcpy(product->out + row * product->columns + begin, values, columns * sizeof *values);
    if (!product->words)
        return true;
    uint64_t bits = panel_signs(values) & (columns < PANEL ? ((uint32_t)1 << columns) - 1 : UINT32_MAX);
    product->words[row * product->width + panel / 2] |= bits << (panel % 2 * PANEL);
    return panel_finite(values);
}

/* Multiply the rows begin … end − 1; returns the first with an element that is not finite, or `end`. */
KERNEL static size_t multiply(const Product *product, size_t begin, size_t end)
{
    float values[TILE * PANEL];
    size_t panels = (product->columns + PANEL - 1) / PANEL, depth = product->depth, bad = end;
    for (size_t p = 0; p < panels; p++) {
        const float *panel = product->panels + p * depth * PANEL, *bias = product->bias + p * PANEL;
        for (size_t row = begin; row < end;) {
            size_t rows = end - row >= TILE ? TILE : 1;
            (rows == TILE ? full_tile : single_row)(product->x + row * depth, depth, panel, bias, values);
            for (size_t r = 0; r < rows; r++)
                if (RARELY(!deliver(product, row + r, p, values + r * PANEL)) && row + r < bad)
                    bad = row + r;
            row += rows;
        }
    }
    return bad;
}
