/* Heaps in the order (key, tie, place, chunk): that of tuples in Python, so that both pop the same. */
#ifndef COSMIC_HEAP_H
#define COSMIC_HEAP_H

#include <stdint.h>
#include <stdlib.h>

typedef struct {
    double key;
    uint32_t tie;
    int32_t place;
    int32_t chunk;
} Item;

typedef struct {
    Item *items;
    int64_t count, room;
} Heap;

static inline int before(const Item *a, const Item *b) {
    if (a->key != b->key) return a->key < b->key;
    if (a->tie != b->tie) return a->tie < b->tie;
    if (a->place != b->place) return a->place < b->place;
    return a->chunk < b->chunk;
}

static inline int heap_push(Heap *heap, Item item) {
    if (heap->count == heap->room) {
        int64_t room = heap->room ? 2 * heap->room : 16;
        Item *items = realloc(heap->items, (size_t)room * sizeof(Item));
        if (!items) return 0;
        heap->items = items;
        heap->room = room;
    }
    int64_t at = heap->count++;
    while (at > 0) {
        int64_t up = (at - 1) / 2;
        if (!before(&item, &heap->items[up])) break;
        heap->items[at] = heap->items[up];
        at = up;
    }
    heap->items[at] = item;
    return 1;
}

static inline Item heap_pop(Heap *heap) {
    Item top = heap->items[0];
    Item last = heap->items[--heap->count];
    int64_t at = 0, count = heap->count;
    while (2 * at + 1 < count) {
        int64_t down = 2 * at + 1;
        if (down + 1 < count && before(&heap->items[down + 1], &heap->items[down])) down++;
        if (!before(&heap->items[down], &last)) break;
        heap->items[at] = heap->items[down];
        at = down;
    }
    if (count > 0) heap->items[at] = last;
    return top;
}

#endif
