/*
 * pressure.c: see pressure.h.
 *
 * Shrinking is quick and growing slow: too small a budget costs time, too large a one ends the
 * process. The kernel's figures are means over 10 seconds, made anew every 2: when the cause is
 * gone they need 11 seconds to fall from 30 % to 10 %. A tenth at every poll would have taken
 * 98 % by then, so a tenth is taken once for each new figure, and not while the figures fall.
 */
#include "base/pressure.h"

#define POLL_S    0.25
#define SQUEEZE_S 2.0 /* the kernel's own period */
#define CALM_S    5.0

enum {
    SOME_HIGH = 1000, /* 10 %, in hundredths of a percent */
    FULL_HIGH = 200,
    SQUEEZE_PART = 10, /* of what is held */
    GROW_PART = 8,     /* of what is allowed, a poll */
    IDLE_PART = 32,    /* below this, room has only been counted a moment later */
    MIB = 1 << 20,
};

void rm_pressure_start(rm_pressure *p, uint64_t most) {
    *p = (rm_pressure){.most = most, .allowed = most};
}

bool rm_pressure_due(const rm_pressure *p, double now_s) {
    return !p->started || now_s - p->polled_s >= POLL_S;
}

uint64_t rm_pressure_reserve(uint64_t limit_bytes) {
    uint64_t reserve = limit_bytes / 10;
    if (reserve < 64 * MIB) reserve = 64 * MIB;
    if (reserve > 1024 * MIB) reserve = 1024 * MIB;
    return reserve < limit_bytes / 4 ? reserve : limit_bytes / 4;
}

/* Bytes that the tightest level leaves to the process. */
static uint64_t room_of(const rm_pressure_sources *s, uint64_t resident) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->level_count; i++) {
        const uint64_t reserve = rm_pressure_reserve(s->levels[i].limit_bytes);
        uint64_t room;
        if (__builtin_add_overflow(s->levels[i].left_bytes, resident, &room)) room = UINT64_MAX;
        room = room > reserve ? room - reserve : 0;
        if (room < least) least = room;
    }
    return least;
}

static bool high(const rm_machine_pressure *p) {
    return p->some > SOME_HIGH || p->full > FULL_HIGH;
}

/* A tenth less than is held, where the figures ask for it. */
static void squeeze(rm_pressure *p, const rm_machine_pressure *now, uint64_t resident,
                    double now_s) {
    if (!high(now)) {
        p->squeezed = false;
        return;
    }
    p->low_s = now_s;
    if (p->squeezed) {
        if (now_s - p->squeezed_s < SQUEEZE_S) return;
        const bool falling = now->some <= p->at.some && now->full <= p->at.full &&
                             (now->some < p->at.some || now->full < p->at.full);
        p->at = *now;
        p->squeezed_s = now_s;
        if (falling) return;
    }
    p->squeezed = true;
    p->squeezed_s = now_s;
    p->at = *now;
    const uint64_t less = resident - resident / SQUEEZE_PART;
    if (less < p->allowed) p->allowed = less;
}

static void grow(rm_pressure *p, uint64_t room, double now_s) {
    if (now_s - p->low_s < CALM_S) return;
    if (room <= p->allowed) return;
    if (room < p->most && room - p->allowed < p->allowed / IDLE_PART) return;
    uint64_t step = p->allowed / GROW_PART;
    if (step < MIB) step = MIB;
    p->allowed = room - p->allowed < step ? room : p->allowed + step;
}

uint64_t rm_pressure_step(rm_pressure *p, const rm_pressure_sources *s, uint64_t resident_bytes,
                          double now_s) {
    uint64_t room = room_of(s, resident_bytes);
    if (room > p->most) room = p->most;
    const bool first = !p->started;
    p->started = true;
    p->polled_s = now_s;
    if (first || room < p->allowed) {
        p->allowed = room;
        p->low_s = now_s;
    }
    /* Not at first: what is held then is not what the process is going to need. */
    if (!first) squeeze(p, &s->pressure, resident_bytes, now_s);
    grow(p, room, now_s);
    return p->allowed;
}

uint64_t rm_pressure_poll(rm_pressure *p, uint64_t resident_bytes, double now_s) {
    if (!rm_pressure_due(p, now_s)) return p->allowed;
    rm_pressure_sources s;
    s.level_count = rm_machine_levels(s.levels);
    rm_machine_pressure_now(&s.pressure);
    return rm_pressure_step(p, &s, resident_bytes, now_s);
}
