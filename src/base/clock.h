/* clock.h: monotonic time. Part: base. */
#ifndef RM_BASE_CLOCK_H
#define RM_BASE_CLOCK_H

/* Seconds since some fixed moment. */
double rm_clock_s(void);

#endif /* RM_BASE_CLOCK_H */
