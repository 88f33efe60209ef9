/* The event engine's core: messages, the mailbox, the fabrics and remote memory. See events.h. */
#include "events.h"

enum { CABLE, TO_SWITCH, FROM_SWITCH, PORT };   /* kinds of links, for their names */

void ev_prepare_network(Sim *sim) {
    const Job *job = sim->job;
    sim->coordinates = ev_memory(sim, job->dims * job->npus, sizeof(int32_t));
    for (int64_t place = 0; place < job->dims; place++)
        for (int64_t rank = 0; rank < job->npus; rank++) {
            int64_t coordinate = rank / job->stride.at[place] % job->dim_npus.at[place];
            sim->coordinates[place * job->npus + rank] = (int32_t)coordinate;
        }
    sim->links_of = ev_memory(sim, 2 * job->dims * job->entities, sizeof(Link *));
    sim->sends = ev_memory(sim, job->channels, sizeof(int64_t));
    sim->receives = ev_memory(sim, job->channels, sizeof(int64_t));
    sim->stores = ev_memory(sim, job->npus, sizeof(Store));
}

static int64_t coordinate(const Sim *sim, int64_t rank, int64_t place) {
    return sim->coordinates[place * sim->job->npus + rank];
}

/* Return the links between two NPUs of a dimension whose coordinates differ by *distance*. */
static int64_t hops_between(const Job *job, int64_t place, int64_t distance) {
    if (job->topology.at[place] == RING) {
        int64_t npus = job->dim_npus.at[place], forward = distance < 0 ? distance + npus : distance;
        return forward < npus - forward ? forward : npus - forward;
    }
    return job->topology.at[place] == SWITCH ? 2 : 1;
}

/* Return the first dimension in which two ranks differ, and the links between them there. */
int64_t ev_first_difference(const Sim *sim, int64_t source, int64_t target, int64_t *hops) {
    for (int64_t place = 0; place < sim->job->dims; place++) {
        int64_t distance = coordinate(sim, target, place) - coordinate(sim, source, place);
        if (distance == 0) continue;
        if (hops != NULL) *hops = hops_between(sim->job, place, distance);
        return place;
    }
    if (hops != NULL) *hops = 0;
    return 0;
}

/* Return a time in whole nanoseconds. */
static int64_t truncated(Sim *sim, double nanoseconds) {
    if (!(nanoseconds >= 0 && nanoseconds < (double)LAST_NS)) ev_fail(sim, UNLIKE);
    return (int64_t)nanoseconds;
}

/* Return the time of a message without congestion: t = trunc(h a + m / B). */
int64_t ev_delay_ns(Sim *sim, int64_t source, int64_t target, int64_t size) {
    int64_t hops, place = ev_first_difference(sim, source, target, &hops);
    double latency = (double)hops * sim->job->latency_ns.at[place];
    double delay = latency + (double)size / sim->job->bytes_per_ns.at[place];
    if (!(delay >= 0 && delay < (double)(LAST_NS / 8))) ev_fail(sim, UNLIKE);   /* some are added up */
    return (int64_t)delay;
}

void ev_count_sent(Sim *sim, int64_t entity, int64_t place, int64_t size) {
    int64_t *sent = &sim->job->sent.at[entity * sim->job->dims + place];
    if (size > LAST_NS - *sent) ev_fail(sim, UNLIKE);
    *sent += size;
}

/* ------------------------------------------------------------------------------------------------- links */

static void transmit(Sim *sim, Link *link, int64_t size, double latency_ns, Then then) {
    double serial = (double)size / link->bytes_per_ns;
    int64_t busy = truncated(sim, serial);
    ev_after(sim, truncated(sim, latency_ns + serial), then);
    link->free_at = sim->clock.now + busy;
    link->free_decided = sim->clock.now;
    link->free_first = ++sim->clock.count;  /* a place is reserved */
    link->busy_ns += busy;
}

static int is_free(const Link *link, const Clock *clock) {
    if (link->free_at != clock->now) return link->free_at < clock->now;
    if (link->free_decided != clock->decided) return link->free_decided < clock->decided;
    return link->free_first < clock->first;
}

static void wait_until_free(Sim *sim, Link *link) {
    ev_at_place(sim, link->free_at, link->free_decided, link->free_first, ev_then(FREED, link, 0));
}

/* Transmit when the link is free; within a nanosecond the place of the event decides. */
static void enter(Sim *sim, Link *link, int64_t size, double latency_ns, Then then) {
    if (is_free(link, &sim->clock)) {
        transmit(sim, link, size, latency_ns, then);
        return;
    }
    if (link->head == NULL) wait_until_free(sim, link);
    Waiting *waiting = ev_take(sim, &sim->waitings);
    waiting->then = then;
    waiting->size = size;
    waiting->latency_ns = latency_ns;
    if (link->head == NULL)
        link->head = waiting;
    else
        link->tail->next = waiting;
    link->tail = waiting;
}

static void freed(Sim *sim, Link *link) {
    Waiting first = *link->head;
    ev_give(&sim->waitings, link->head);
    link->head = first.next;
    transmit(sim, link, first.size, first.latency_ns, first.then);
    if (link->head != NULL) wait_until_free(sim, link);
}

static Link *new_link(Sim *sim, int64_t place, int64_t kind, int64_t from, int64_t to) {
    Link *link = ev_take(sim, &sim->links);
    link->place = place;
    link->kind = kind;
    link->from = from;
    link->to = to;
    link->bytes_per_ns = sim->job->bytes_per_ns.at[place];
    link->latency_ns = sim->job->latency_ns.at[place];
    link->free_decided = link->free_first = link->reached_at = link->reached_by = -1;
    if (sim->first_link == NULL)
        sim->first_link = link;
    else
        sim->last_link->next = link;
    sim->last_link = link;
    sim->link_count++;
    return link;
}

/* Return a rank's link of one of two ways: up and down a switch, round a ring, or its one port. */
static Link *link_of(Sim *sim, int64_t place, int64_t owner, int way, int64_t kind, int64_t from, int64_t to) {
    int64_t entity = sim->job->entity_of.at[owner];
    Link **link = &sim->links_of[2 * (place * sim->job->entities + entity) + way];
    if (*link == NULL) *link = new_link(sim, place, kind, from, to);
    return *link;
}

static Link *cable(Sim *sim, int64_t place, int64_t from, int64_t to) {
    Key key = {place, sim->job->entity_of.at[from], to, 0};
    Value *found = ev_find(&sim->direct_links, &key);
    if (found == NULL) {
        Link *link = new_link(sim, place, CABLE, from, to);
        found = ev_insert(sim, &sim->direct_links, &key);
        found->pointer = link;
    }
    return found->pointer;
}

/* Return the next link on a message's way, and move the message behind it: dimension by dimension, innermost first. */
static Link *next_link(Sim *sim, Message *message) {
    const Job *job = sim->job;
    int64_t place = 0, here = message->here, distance = 0;
    while (place < job->dims && distance == 0) {
        distance = coordinate(sim, message->target, place) - coordinate(sim, here, place);
        if (distance == 0) place++;
    }
    if (distance == 0) ev_fail(sim, UNLIKE);    /* a message to its own sender has no route */
    int64_t there = here + distance * job->stride.at[place];
    switch (job->topology.at[place]) {
    case RING: {
        int64_t npus = job->dim_npus.at[place], forward = distance < 0 ? distance + npus : distance;
        int back = forward > npus - forward;
        int64_t at = coordinate(sim, here, place), next = back ? at - 1 : at + 1;
        next = next < 0 ? next + npus : next == npus ? 0 : next;
        there = here + (next - at) * job->stride.at[place];
        message->here = (int32_t)there;
        return link_of(sim, place, here, back, CABLE, here, there);
    }
    case SWITCH:
        message->at_switch = !message->at_switch;
        if (message->at_switch) return link_of(sim, place, here, 0, TO_SWITCH, here, 0);
        message->here = (int32_t)there;
        return link_of(sim, place, there, 1, FROM_SWITCH, 0, there);
    default:
        message->here = (int32_t)there;
        return cable(sim, place, here, there);
    }
}

/* ------------------------------------------------------------------------------------------------- fabrics */

static Then on_arrival(Message *message) { return ev_then(message->is_ready ? READY : ARRIVED, message, 0); }

static void hop(Sim *sim, Message *message) {
    Link *link = next_link(sim, message);
    if (sim->job->folded && message->hops) {
        /* Which of several senders is first at a link of equivalent ranks is unknown. */
        if (link->reached_at == sim->clock.now && link->reached_by != message->source) ev_fail(sim, AMBIGUOUS);
        link->reached_at = sim->clock.now;
        link->reached_by = message->source;
    }
    message->hops++;
    int last = message->here == message->target && !message->at_switch;
    Then then = last ? on_arrival(message) : ev_then(HOP, message, 0);
    enter(sim, link, message->size, link->latency_ns, then);
}

static Link *port(Sim *sim, int64_t rank, int64_t place) { return link_of(sim, place, rank, 0, PORT, rank, 0); }

/* Send through the port of the slowest dimension, with the latency of all. */
static void send_consistently(Sim *sim, Message *message) {
    const Job *job = sim->job;
    int64_t slowest = -1;
    double latency = 0.0;
    for (int64_t place = 0; place < job->dims; place++) {
        int64_t distance = coordinate(sim, message->target, place) - coordinate(sim, message->source, place);
        if (distance == 0) continue;
        latency += (double)hops_between(job, place, distance) * job->latency_ns.at[place];
        if (slowest < 0 || job->bytes_per_ns.at[place] < job->bytes_per_ns.at[slowest]) slowest = place;
    }
    if (slowest < 0) ev_fail(sim, UNLIKE);
    enter(sim, port(sim, message->source, slowest), message->size, latency, on_arrival(message));
}

static void send(Sim *sim, Message *message) {
    switch (sim->job->fabric) {
    case AWARE: hop(sim, message); break;
    case CONSISTENT: send_consistently(sim, message); break;
    case TIMED: ev_after(sim, message->size, on_arrival(message)); break;
    default:
        ev_after(sim, ev_delay_ns(sim, message->source, message->target, message->size), on_arrival(message));
    }
}

void ev_to_switch(Sim *sim, int64_t rank, int64_t place, int64_t size, Then then) {
    double latency_ns = sim->job->latency_ns.at[place];
    if (sim->job->fabric == AWARE)
        enter(sim, link_of(sim, place, rank, 0, TO_SWITCH, rank, 0), size, latency_ns, then);
    else
        ev_after(sim, truncated(sim, latency_ns), then);
}

void ev_from_switch(Sim *sim, int64_t rank, int64_t place, int64_t size, Then then) {
    double latency_ns = sim->job->latency_ns.at[place];
    if (sim->job->fabric == AWARE)
        enter(sim, link_of(sim, place, rank, 1, FROM_SWITCH, 0, rank), size, latency_ns, then);
    else if (sim->job->fabric == CONSISTENT)
        enter(sim, port(sim, rank, place), size, latency_ns, then);
    else
        ev_after(sim, truncated(sim, latency_ns + (double)size / sim->job->bytes_per_ns.at[place]), then);
}

/* ------------------------------------------------------------------------------------------------- messages */

/* Call *then* when the message *key* has arrived. */
static void wait_for(Sim *sim, Key key, Then then) {
    Value *found = ev_find(&sim->mailbox, &key);
    if (found != NULL && found->then.code == NOTHING) {
        ev_remove(&sim->mailbox, found);
        ev_after(sim, 0, then);
        return;
    }
    if (found == NULL) found = ev_insert(sim, &sim->mailbox, &key);
    found->then = then;
}

/* In the mailbox, nothing to do means: it has arrived, and its receive was not posted yet. */
static void has_arrived(Sim *sim, Key key) {
    Value *found = ev_find(&sim->mailbox, &key);
    if (found == NULL) {
        ev_insert(sim, &sim->mailbox, &key)->then = ev_then(NOTHING, NULL, 0);
        return;
    }
    Then then = found->then;
    if (then.code == NOTHING) ev_fail(sim, UNLIKE);
    ev_remove(&sim->mailbox, found);
    ev_do(sim, then);
}

static Key ready_key(Key key) {
    key.d |= 1;
    return key;
}

static Message *new_message(Sim *sim, int64_t source, int64_t target, int64_t size, Key key, Then then) {
    Message *message = ev_take(sim, &sim->messages);
    message->source = message->here = (int32_t)source;
    message->target = (int32_t)target;
    message->size = size;
    message->key = key;
    message->then = then;
    return message;
}

static void send_now(Sim *sim, Message *message) {
    int64_t place = ev_first_difference(sim, message->source, message->target, NULL);
    ev_count_sent(sim, sim->job->entity_of.at[message->source], place, message->size);
    send(sim, message);
}

/* Send a message to the receive of *key*; do *sent* when it has arrived. */
void ev_post_send(Sim *sim, int64_t source, int64_t target, int64_t size, Key key, Then sent) {
    Message *message = new_message(sim, source, target, size, key, sent);
    if (sim->job->rendezvous)
        wait_for(sim, ready_key(key), ev_then(SEND_NOW, message, 0));
    else
        send_now(sim, message);
}

/* Do *then* when the message *key* has arrived. */
void ev_post_receive(Sim *sim, int64_t rank, int64_t source, Key key, Then then) {
    if (!sim->job->rendezvous) {
        wait_for(sim, key, then);
        return;
    }
    Message *message = new_message(sim, rank, source, READY_BYTES, key, then);
    message->is_ready = 1;
    send(sim, message);
}

void ev_exchange(Sim *sim, Rank *rank, int64_t row) {
    const Job *job = sim->job;
    int64_t exchange = job->use.at[rank->first + row];
    int64_t peer = job->peer.at[exchange], channel = job->channel.at[exchange];
    int sends = job->action.at[rank->row + row] == SEND;
    int64_t *count = sends ? &sim->sends[channel] : &sim->receives[channel];
    Key key = {-1, (*count)++, channel, 0};     /* the n-th send matches the n-th receive */
    if (sends)
        ev_post_send(sim, rank->rank, peer, job->size.at[rank->row + row], key, ev_then(COMPLETE, rank, row));
    else
        ev_post_receive(sim, rank->rank, peer, key, ev_then(COMPLETE, rank, row));
}

/* ------------------------------------------------------------------------------------------------- memory */

static void serve(Sim *sim, Request *request) {
    ev_of_rank(sim, request->rank, request->duration, ev_then(SERVED, request, 0));
}

static void served(Sim *sim, Request *request) {
    Store *store = &sim->stores[request->store];
    Then then = request->then;
    ev_give(&sim->requests, request);
    if (store->head != NULL) {
        Request *next = store->head;
        store->head = next->next;
        serve(sim, next);
    } else {
        store->busy = 0;
    }
    ev_do(sim, then);
}

/* Load or store a node's bytes: a store serves one request at a time. */
void ev_access(Sim *sim, Rank *rank, int64_t row) {
    const Job *job = sim->job;
    double transfer = (double)job->size.at[rank->row + row] / job->remote_gb_per_s;
    int64_t duration = job->memory_latency_ns + truncated(sim, transfer);
    if (duration >= LAST_NS) ev_fail(sim, UNLIKE);
    Then then = ev_then(COMPLETE, rank, row);
    if (job->memory == PRIVATE) {
        ev_of_rank(sim, rank->rank, duration, then);
        return;
    }
    Request *request = ev_take(sim, &sim->requests);
    request->store = job->memory == PER_NODE ? rank->rank / job->npus_per_node : 0;
    request->rank = rank->rank;
    request->duration = duration;
    request->then = then;
    Store *store = &sim->stores[request->store];
    if (!store->busy) {
        store->busy = 1;
        serve(sim, request);
    } else if (store->head == NULL) {
        store->head = store->tail = request;
    } else {
        store->tail->next = request;
        store->tail = request;
    }
}

/* Do what follows an event of a message, a link or memory. */
void ev_message(Sim *sim, Then then) {
    switch (then.code) {
    case HOP: hop(sim, then.what); break;
    case FREED: freed(sim, then.what); break;
    case SEND_NOW: send_now(sim, then.what); break;
    case SERVED: served(sim, then.what); break;
    case ARRIVED: {
        Message message = *(Message *)then.what;
        ev_give(&sim->messages, then.what);
        if (message.then.code != NOTHING) ev_do(sim, message.then);
        has_arrived(sim, message.key);
        break;
    }
    case READY: {
        Message message = *(Message *)then.what;
        ev_give(&sim->messages, then.what);
        wait_for(sim, message.key, message.then);
        has_arrived(sim, ready_key(message.key));
        break;
    }
    default: break;
    }
}
