/* Exact search with the tables of a multi-index. Included once per instruction set. */

#include "places.h"

#define BATCH 16         /* groups prefetched before the first is read, so that their cache misses overlap */
#define GROUP_COST 64    /* cost of looking up a group, in compared codes */
#define SINGLE_COST 96   /* cost of comparing a single code, in codes compared in bulk */
#define TIES_COST 8192   /* cost of single codes between two checks whether ties are decided */
#define AHEAD 160        /* heads to prefetch per group; the hardware prefetches the following ones */
#define WAITING 256      /* near codes whose rows are looked up together */

#define FEW_WAITING 32   /* the same if rows are deleted, which must not be counted: few codes are offered too much */

/* Near codes whose rows are not known yet. They are counted already, unless rows are deleted: by the time
 * they are looked up, most are too far away. */
typedef struct {
    struct {
        Place at;
        uint16_t t, distance;
    } near[WAITING];
    int n;
} Waiting;

/* One round: table t, all keys with `flips` flipped bits. */
typedef struct {
    const Tables *tables;
    const Rows *rows;
    Collector *collector;
    Waiting *waiting;
    uint64_t rest;   /* rest of the query for this table */
    int t, flips;
    int tail_least;  /* smallest distance that the tail of an unseen code can have */
    uint64_t others[MAX_TABLES]; /* bits of each other table's key within the rest */
    uint32_t last_row; /* rows after this one cannot be results any more */
} Round;

/* The bits of a code without the key of a table. */
INLINE uint64_t rest_of(uint64_t code, const Table *table)
{
    uint64_t low = code & (((uint64_t)1 << table->shift) - 1);
    int end = table->shift + table->width;
    return end < 64 ? low | code >> end << table->shift : low;
}

/* Whether a code is seen for the first time: no other table has it with fewer flips, and no earlier
 * table with as many. */
KERNEL INLINE bool is_first(const Round *round, uint64_t difference)
{
    for (int u = 0; u < round->tables->count; u++)
        if (u != round->t && __builtin_popcountll(difference & round->others[u]) < round->flips + (u < round->t))
            return false;
    return true;
}

/* Look up the rows of the codes that wait, and hold those that are still near enough. */
KERNEL static void hold_waiting(const Tables *tables, const Rows *rows, Collector *collector, Waiting *waiting)
{
    size_t first[WAITING], bits[WAITING];
    int n = 0;
    for (int i = 0; i < waiting->n; i++)
        if (waiting->near[i].distance <= collector->reach)
            waiting->near[n++] = waiting->near[i];
    waiting->n = 0;
    /* Each loop asks for the memory that the next one reads. */
    for (int i = 0; i < n; i++)
        ask_place(&tables->table[waiting->near[i].t], rows->n, waiting->near[i].at);
    for (int i = 0; i < n; i++) {
        const Table *table = &tables->table[waiting->near[i].t];
        bits[i] = first_bit(table, rows->n, waiting->near[i].at);
        if (bits[i] / 64 < uppers_count(rows->n, table->width))
            __builtin_prefetch(&table->uppers[bits[i] / 64]);
    }
    for (int i = 0; i < n; i++) {
        first[i] = block_from(&tables->table[waiting->near[i].t], rows->n, waiting->near[i].at, &bits[i]);
        if (first[i] < rows->n) {
            __builtin_prefetch(&rows->words[first[i]]);
            if (rows->alive)
                __builtin_prefetch(&rows->alive[first[i] / 64]);
            __builtin_prefetch((const char *)&rows->words[first[i]] + 63); /* the same line if words are aligned */
        }
    }
    for (int i = 0; i < n; i++) {
        int distance = waiting->near[i].distance;
        size_t row = row_in_block(&tables->table[waiting->near[i].t], rows, waiting->near[i].at, first[i], bits[i]);
        if (row >= rows->n)
            continue;
        if (!rows->alive)
            collector_hold(collector, distance, (uint32_t)row);
        else if (distance <= collector->reach && is_alive(rows, row))
            collector_offer(collector, distance, (uint32_t)row);
    }
}

/* Offer the code at a place whose distance is ≤ reach. */
KERNEL INLINE void offer_near(const Round *round, Place at, int distance)
{
    const bool counts = !round->rows->alive;
    Waiting *waiting = round->waiting;
    if (waiting->n == (counts ? WAITING : FEW_WAITING))
        hold_waiting(round->tables, round->rows, round->collector, waiting);
    waiting->near[waiting->n].at = at;
    waiting->near[waiting->n].t = (uint16_t)round->t;
    waiting->near[waiting->n++].distance = (uint16_t)distance;
    if (counts)
        collector_count(round->collector, distance);
}

/* The last of the k rows held; UINT32_MAX if there are not yet k. */
KERNEL static uint32_t last_held(const Tables *tables, const Rows *rows, Collector *collector, Waiting *waiting)
{
    hold_waiting(tables, rows, collector, waiting);
    collector_settle(collector);
    return collector->held < collector->k ? UINT32_MAX : (uint32_t)collector->keys[collector->held - 1];
}

/* The k-th distance if no row of the group from a place on can win a tie at it, else −1; rows ascend
 * within a group. */
KERNEL static int tie_limit(const Round *round, Place at)
{
    Collector *collector = round->collector;
    if (!collector->histogram)
        return -1;
    uint32_t last = last_held(round->tables, round->rows, collector, round->waiting);
    size_t one, first = block_of(&round->tables->table[round->t], round->rows->n, at, &one);
    return first > last ? collector->kth : -1;
}

/* The codes of a key, begin … end − 1 of the table. */
typedef struct {
    uint32_t key, begin, end;
} Group;

/* The group of a key, within the n codes of the table for any content of `starts`. */
INLINE Group group_of(const Table *table, uint32_t key, size_t n)
{
    uint32_t begin = table->starts[key], end = table->starts[key + 1];
    end = end < n ? end : (uint32_t)n;
    return (Group){key, begin < end ? begin : end, end};
}

/* Compare the codes of a group: first their heads and, where one is near, the tails. Returns the
 * cost of comparing single codes; stops when it exceeds the allowance. */
KERNEL INLINE uint64_t look(const Round *round, Group group, uint64_t allowance)
{
    const Table *table = &round->tables->table[round->t];
    Collector *collector = round->collector;
    uint64_t cost = 0, check = TIES_COST;
    const uint32_t *heads = table->heads;
    const uint32_t rest = (uint32_t)round->rest;
    const int tail_least = round->tail_least;
    int most = collector->reach - round->flips, decided = -1; /* distance at which ties are decided */
    for (size_t i = group.begin; i < group.end; i += HEADS) {
        if (!RARELY(heads_within(heads + i, rest, most - tail_least)))
            continue;
        uint32_t near = codes_within(table->heads + i, table->tails + i, round->rest, most);
        if (group.end - i < HEADS)
            near &= (1u << (group.end - i)) - 1;
        for (; near; near &= near - 1) {
            size_t place = i + (size_t)__builtin_ctz(near);
            uint64_t difference = rest_at(table, place) ^ round->rest;
            int d = round->flips + __builtin_popcountll(difference);
            if (d <= collector->reach && is_first(round, difference))
                offer_near(round, (Place){group.key, group.begin, (uint32_t)place}, d);
            cost += SINGLE_COST;
        }
        if (RARELY(cost > check)) { /* this many near codes are probably ties */
            decided = tie_limit(round, (Place){group.key, group.begin, (uint32_t)i});
            check = cost + TIES_COST;
        }
        if (RARELY(cost > allowance))
            break;
        most = collector->reach - (collector->kth == decided) - round->flips;
    }
    return cost;
}

/* Prefetch the first codes of a group, and their tails if many are likely to be near. */
KERNEL INLINE void ask(const Table *table, Group group, bool tails)
{
    size_t end = group.end - group.begin > AHEAD ? (size_t)group.begin + AHEAD : group.end;
    for (size_t i = group.begin; i < end; i += 16)
        __builtin_prefetch(&table->heads[i]);
    for (size_t i = group.begin; tails && i < end; i += 32)
        __builtin_prefetch(&table->tails[i]);
}

/* The key of a code in a table. */
INLINE uint32_t key_of(uint64_t code, const Table *table)
{
    return (uint32_t)(code >> table->shift & (((uint64_t)1 << table->width) - 1));
}

/* Prefetch the groups of the query's own keys in all tables; they are always read. */
KERNEL INLINE void ask_first(const Tables *tables, size_t n, uint64_t query)
{
    for (int t = 0; t < tables->count; t++)
        __builtin_prefetch(&tables->table[t].starts[key_of(query, &tables->table[t])]);
    for (int t = 0; t < tables->count; t++) {
        const Table *table = &tables->table[t];
        Group group = group_of(table, key_of(query, table), n);
        ask(table, group, true);
    }
}

/* Compare up to BATCH groups with the given keys and return the cost in compared codes. Reads
 * nothing beyond the budget. */
KERNEL static uint64_t look_at_groups(const Round *round, const uint32_t *keys, int n_keys, uint64_t budget)
{
    const Table *table = &round->tables->table[round->t];
    const size_t n = round->rows->n;
    const bool partly = round->last_row < n - 1;
    Group groups[BATCH];
    uint64_t cost = GROUP_COST * (uint64_t)n_keys;
    for (int i = 0; i < n_keys; i++)
        __builtin_prefetch(&table->starts[keys[i]]);
    for (int i = 0; i < n_keys; i++) {
        groups[i] = group_of(table, keys[i], n);
        if (partly)
            ask_group(table, n, keys[i], groups[i].begin);
        else
            ask(table, groups[i], round->flips < 2);
    }
    for (int i = 0; i < n_keys; i++) {
        if (partly) { /* rows ascend within a group: the later ones cannot be results */
            groups[i].end = end_of_rows(table, n, keys[i], groups[i].begin, groups[i].end, round->last_row);
            ask(table, groups[i], round->flips < 2);
        }
        cost += groups[i].end - groups[i].begin;
    }
    for (int i = 0; i < n_keys && cost <= budget; i++)
        cost += look(round, groups[i], budget - cost);
    return cost;
}

/* Compare every group whose key differs from the query's in exactly `flips` bits; returns the cost. */
KERNEL static uint64_t look_around(const Round *round, uint32_t key, uint64_t budget)
{
    uint64_t limit = (uint64_t)1 << round->tables->table[round->t].width, mask = ((uint64_t)1 << round->flips) - 1, cost = 0;
    uint32_t keys[BATCH];
    for (bool more = mask < limit; more && cost <= budget;) {
        int n = 0;
        for (; n < BATCH && more; n++) {
            keys[n] = key ^ (uint32_t)mask;
            /* The next larger number with the same popcount (Gosper's hack). */
            uint64_t low = mask & -mask, ripple = mask + low;
            more = mask && ripple < limit;
            mask = ripple | ((mask ^ ripple) >> 2) >> (mask ? __builtin_ctzll(mask) : 0);
        }
        cost += look_at_groups(round, keys, n, budget - cost);
    }
    return cost;
}

/* Prepare the round of table t at `flips` flips. */
KERNEL static Round round_make(const Tables *tables, const Rows *rows, uint64_t query, Collector *collector, Waiting *waiting,
                               int t, int flips)
{
    const Table *own = &tables->table[t];
    Round round = {.tables = tables, .rows = rows, .collector = collector, .waiting = waiting,
                   .rest = rest_of(query, own), .t = t, .flips = flips, .last_row = UINT32_MAX};
    for (int u = 0; u < tables->count; u++) {
        if (u == t)
            continue;
        int shift = tables->table[u].shift - (u > t ? own->width : 0);
        round.others[u] = (((uint64_t)1 << tables->table[u].width) - 1) << shift;
        if (shift >= 32)
            round.tail_least += flips + (u < t);
    }
    return round;
}

/* Offer every row that can be among the nearest, or within the radius; false if that would exceed
 * the budget.
 *
 * If a code differs from the query in d bits, then by the pigeonhole principle one of its m keys
 * differs in at most d / m bits (Norouzi, Punjani, Fleet 2012). Rounds are ordered by flips, then by
 * table: before round (flips, t) every unseen code differs in at least flips·m + t bits. The search
 * ends when that exceeds the k-th distance; while it is equal, only rows smaller than the last one
 * held can still win a tie.
 *
 * Reads tables, rows and query, which the caller owns; writes only the collector, which must accept
 * rows in any order. */
KERNEL static bool probe(const Tables *tables, const Rows *rows, const uint64_t *query, Collector *collector, uint64_t budget)
{
    int m = tables->count, widest = 0;
    for (int t = 0; t < m; t++)
        widest = tables->table[t].width > widest ? tables->table[t].width : widest;
    uint64_t cost = 0;
    Waiting waiting;
    waiting.n = 0;
    ask_first(tables, rows->n, query[0]);
    for (int flips = 0; flips <= widest; flips++)
        for (int t = 0; t < m; t++) {
            int unseen = flips * m + t;
            if (rows->alive)
                hold_waiting(tables, rows, collector, &waiting);
            if (unseen > collector->reach)
                goto end;
            Round round = round_make(tables, rows, query[0], collector, &waiting, t, flips);
            if (collector->histogram && unseen == collector->kth)
                round.last_row = last_held(tables, rows, collector, &waiting);
            cost += look_around(&round, key_of(query[0], &tables->table[t]), budget - cost);
            if (RARELY(cost > budget))
                return false;
        }
end:
    hold_waiting(tables, rows, collector, &waiting);
    return true;
}
