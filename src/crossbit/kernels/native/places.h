/* The rows of the places of a table, in about 15 bits each.
 *
 * Within a group rows ascend, and the code of a place is known. So only row >> BLOCK_BITS, the block of
 * the row, is stored: the row is that whose code equals the place's, among the few rows of the block.
 * The bits of a block below the width of the key are stored in `lows`; those above ascend within a
 * group and are counted in unary (Elias, Fano): the place p of group x whose row is r has the one bit
 * p + x · steps + (r >> width) of `uppers`, where `steps` is the number of values of r >> width. Every
 * SAMPLE-th place has r >> width in `samples` too, where counting may begin.
 *
 * Numbers are checked when they are read: a damaged table gives wrong rows, none beyond n. */
#ifndef CROSSBIT_PLACES_H
#define CROSSBIT_PLACES_H

#include "common.h"

#define BLOCK_BITS 3
#define SAMPLE 256

/* Bits of a row that `lows` and `uppers` do not hold, for keys of `width` bits. */
INLINE int block_bits(int width)
{
    return width < BLOCK_BITS ? width : BLOCK_BITS;
}

INLINE int low_bits(int width)
{
    return width - block_bits(width);
}

INLINE size_t steps_of(size_t n, int width)
{
    return n ? ((n - 1) >> width) + 1 : 1;
}

/* Number of elements of the three arrays, for n places. */
INLINE size_t lows_count(size_t n, int width)
{
    return (n * (size_t)low_bits(width) + 7) / 8 + sizeof(uint64_t); /* eight bytes are read at a time */
}

INLINE size_t uppers_count(size_t n, int width)
{
    return (n + (steps_of(n, width) << width) + 63) / 64;
}

INLINE size_t samples_count(size_t n)
{
    return n / SAMPLE + 2;
}

/* Numbers of elements of starts, heads, tails, lows, uppers and samples, as an initializer. */
#define TABLE_COUNTS(n, width)                                                                                        \
    {((size_t)1 << (width)) + 1, (n) + READ_AHEAD, (n) + READ_AHEAD, lows_count(n, width), uppers_count(n, width),     \
     samples_count(n)}

INLINE uint32_t low_of(const Table *table, size_t place)
{
    int bits = low_bits(table->width);
    size_t at = place * (size_t)bits;
    uint64_t loaded;
    memcpy(&loaded, table->lows + at / 8, sizeof loaded);
    return (uint32_t)(loaded >> at % 8 & (((uint64_t)1 << bits) - 1));
}

/* The position of the one bit number `skip`, from 0, of a word that has it. */
INLINE size_t nth_one(uint64_t word, size_t skip)
{
    size_t found = 0;
    for (int half = 32; half; half /= 2) {
        size_t ones = (size_t)__builtin_popcountll(word & (((uint64_t)1 << half) - 1));
        bool above = skip >= ones;
        skip -= above ? ones : 0;
        word >>= above ? half : 0;
        found += above ? (size_t)half : 0;
    }
    return found;
}

/* The one bit number `skip`, from 0, of those from bit `at` on; the end of the words if there is none. */
INLINE size_t find_one(const uint64_t *words, size_t count, size_t at, size_t skip)
{
    size_t i = at / 64;
    if (i >= count)
        return count * 64;
    uint64_t word = words[i] & ~(uint64_t)0 << at % 64;
    for (size_t ones; (ones = (size_t)__builtin_popcountll(word)) <= skip; word = words[i]) {
        skip -= ones;
        if (++i == count)
            return count * 64;
    }
    return i * 64 + nth_one(word, skip);
}

/* A place of a table, in the group of `key` that begins at `begin`. */
typedef struct {
    uint32_t key, begin, place;
} Place;

/* Prefetch what `first_bit` and `block_of` read first. */
INLINE void ask_place(const Table *table, size_t n, Place at)
{
    __builtin_prefetch(table->lows + (size_t)at.place * (size_t)low_bits(table->width) / 8);
    size_t from = at.place & ~(size_t)(SAMPLE - 1);
    if (from > at.begin)
        __builtin_prefetch(table->samples + from / SAMPLE);
    else
        __builtin_prefetch(table->uppers + (at.begin + at.key * steps_of(n, table->width)) / 64);
}

/* The bit of `uppers` from which on the ones up to that of a place are counted. */
INLINE size_t first_bit(const Table *table, size_t n, Place at)
{
    size_t base = at.key * steps_of(n, table->width), from = at.place & ~(size_t)(SAMPLE - 1);
    return from > at.begin ? from + base + table->samples[from / SAMPLE] : at.begin + base;
}

/* The first row of the block of a place, n or more if the table is damaged, given its `first_bit`, which
 * becomes its own bit. */
INLINE size_t block_from(const Table *table, size_t n, Place at, size_t *bit)
{
    size_t steps = steps_of(n, table->width), base = at.key * steps, from = at.place & ~(size_t)(SAMPLE - 1);
    *bit = find_one(table->uppers, uppers_count(n, table->width), *bit, at.place - (from > at.begin ? from : at.begin));
    size_t upper = *bit - at.place - base;
    return upper < steps ? upper << table->width | (size_t)low_of(table, at.place) << block_bits(table->width) : n;
}

INLINE size_t block_of(const Table *table, size_t n, Place at, size_t *bit)
{
    *bit = first_bit(table, n, at);
    return block_from(table, n, at, bit);
}

/* Prefetch what `end_of_rows` reads first. */
INLINE void ask_group(const Table *table, size_t n, uint32_t key, uint32_t begin)
{
    const uint64_t *first = table->uppers + (begin + key * steps_of(n, table->width)) / 64;
    __builtin_prefetch(first);
    __builtin_prefetch((const char *)first + 64);
}

/* A place of a group, at most `end`, before which all its rows up to `row` are: the ones before the zero
 * that ends the rows with the same r >> width. */
INLINE uint32_t end_of_rows(const Table *table, size_t n, uint32_t key, uint32_t begin, uint32_t end, uint32_t row)
{
    size_t skip = row >> table->width, bit = begin + key * steps_of(n, table->width), count = uppers_count(n, table->width);
    size_t i = bit / 64, last = (bit + (end - begin) + skip) / 64;
    uint64_t word = i < count ? ~table->uppers[i] & ~(uint64_t)0 << bit % 64 : 0;
    for (size_t zeros; (zeros = (size_t)__builtin_popcountll(word)) <= skip; word = ~table->uppers[i]) {
        skip -= zeros;
        if (++i >= count || i > last)
            return end;
    }
    size_t zero = i * 64 + nth_one(word, skip), place = zero - key * steps_of(n, table->width) - (row >> table->width);
    return place < end ? (place > begin ? (uint32_t)place : begin) : end;
}

/* The code of a place without the bits of its key. */
INLINE uint64_t rest_at(const Table *table, size_t place)
{
    return (uint64_t)table->tails[place] << 32 | table->heads[place];
}

/* How many places directly before this one have the same block and the same code. */
INLINE int twins_before(const Table *table, Place at, size_t one)
{
    uint32_t low = low_of(table, at.place);
    uint64_t rest = rest_at(table, at.place);
    int twins = 0;
    for (uint32_t place = at.place; place > at.begin && one > 0; twins += rest_at(table, place) == rest) {
        one--;
        place--;
        if (!(table->uppers[one / 64] >> one % 64 & 1) || low_of(table, place) != low)
            break;
    }
    return twins;
}

/* The row of a place whose block begins at row `first` and whose bit is `one`; n if there is none. */
INLINE size_t row_in_block(const Table *table, const Rows *rows, Place at, size_t first, size_t one)
{
    if (first >= rows->n)
        return rows->n;
    uint64_t rest = rest_at(table, at.place), low = ((uint64_t)1 << table->shift) - 1;
    int end = table->shift + table->width;
    uint64_t code = (rest & low) | (uint64_t)at.key << table->shift | (end < 64 ? rest >> table->shift << end : 0);
    size_t size = (size_t)1 << block_bits(table->width), count = rows->n - first < size ? rows->n - first : size;
    uint32_t equal = 0;
    for (size_t i = 0; i < count; i++)
        equal |= (uint32_t)(rows->words[first + i] == code) << i;
    if (RARELY(equal & (equal - 1)))
        for (int twins = twins_before(table, at, one); twins > 0; twins--)
            equal &= equal - 1;
    return equal ? first + (size_t)__builtin_ctz(equal) : rows->n;
}

#endif
