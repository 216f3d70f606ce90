/*
 * template_impl.h: what the template_*.c files share. Part: text.
 *
 *     source -> lex -> parse -> nodes -> exec (statements), eval (expressions) -> pieces -> output
 *     JSON ---> read ----------> dict --/
 *
 * One rm_tpl is one rendering. Memory is one block: values, strings and nodes are taken from its
 * low end and never given back; a string that is being built lies above the middle of what is free
 * and is moved down when it is complete.
 *
 * Every loop that input can make long is charged: rm_tpl_work(). Every recursion is counted:
 * rm_tpl_enter(). Text carries a mark for each byte (see template.h); a string without marks of its
 * own has one mark for all bytes.
 */
#ifndef RM_TEXT_TEMPLATE_IMPL_H
#define RM_TEXT_TEMPLATE_IMPL_H

#include "text/template.h"

#include <stdbool.h>
#include <string.h>

/* --- values --------------------------------------------------------------------------------- */

typedef enum rm_tpl_type {
    RM_TPL_ABSENT, /* an argument that was not given: templates never see it */
    RM_TPL_UNDEFINED,
    RM_TPL_NONE,
    RM_TPL_BOOL,
    RM_TPL_INT,
    RM_TPL_FLOAT,
    RM_TPL_BIG, /* an integer of the JSON that needs more than 64 bits: its digits */
    RM_TPL_STRING,
    RM_TPL_LIST,
    RM_TPL_RANGE,
    RM_TPL_DICT,
    RM_TPL_NAMESPACE,
    RM_TPL_LOOP,
    RM_TPL_MACRO,
    RM_TPL_BUILTIN,
    RM_TPL_METHOD,
} rm_tpl_type;

typedef struct rm_tpl rm_tpl;
typedef struct rm_tpl_list rm_tpl_list;
typedef struct rm_tpl_dict rm_tpl_dict;
typedef struct rm_tpl_range rm_tpl_range;
typedef struct rm_tpl_loop rm_tpl_loop;
typedef struct rm_tpl_macro rm_tpl_macro;
typedef struct rm_tpl_method rm_tpl_method;
typedef struct rm_tpl_builtin rm_tpl_builtin;
typedef struct rm_tpl_node rm_tpl_node;
typedef struct rm_tpl_scope rm_tpl_scope;

typedef struct rm_tpl_string {
    const char *bytes;
    const uint8_t *marks; /* one a byte; NULL: all are `mark` */
    size_t count;
    bool mark;
} rm_tpl_string;

typedef struct rm_tpl_value {
    uint8_t type; /* rm_tpl_type */
    bool own;     /* bool, int, float: computed from the template alone; its text is marked */
    union {
        bool b;
        int64_t i;
        double f;
        const rm_tpl_string *s; /* string, big; undefined: what it was called, or NULL */
        rm_tpl_list *list;
        rm_tpl_dict *dict; /* namespace too */
        const rm_tpl_range *range;
        rm_tpl_loop *loop;
        const rm_tpl_macro *macro;
        const rm_tpl_builtin *builtin;
        const rm_tpl_method *method;
    };
} rm_tpl_value;

/* How a list came to be decides how Python would print and test it. */
typedef enum rm_tpl_list_kind {
    RM_TPL_PLAIN,
    RM_TPL_TUPLE,
    RM_TPL_ITEMS,
    RM_TPL_KEYS,
    RM_TPL_VALUES,
    RM_TPL_STREAM, /* a generator in Python */
} rm_tpl_list_kind;

struct rm_tpl_list {
    rm_tpl_value *items;
    uint32_t count, cap;
    uint8_t kind;
};

typedef struct rm_tpl_pair {
    rm_tpl_value key, value;
    uint32_t hash;
} rm_tpl_pair;

struct rm_tpl_dict {
    rm_tpl_pair *pairs; /* in the order they came */
    uint32_t count, cap;
    uint32_t *slots; /* place + 1 of a pair, by hash; NULL while there are few */
    uint32_t slot_count;
};

struct rm_tpl_range {
    int64_t start, step;
    uint32_t count;
};

struct rm_tpl_method {
    rm_tpl_value self;
    const rm_tpl_builtin *builtin;
};

struct rm_tpl_macro {
    const rm_tpl_node *node; /* macro or call block: parameters in a, body in b */
    rm_tpl_scope *scope;     /* where it was defined */
    const rm_tpl_string *name;
};

/* A loop while it runs; the variable `loop`. */
struct rm_tpl_loop {
    const rm_tpl_node *node;
    rm_tpl_scope *scope; /* around the loop */
    rm_tpl_value source; /* list or range */
    rm_tpl_list *taken;  /* with a filter: what has passed so far */
    uint32_t looked;     /* with a filter: of source, so many were looked at */
    uint32_t index;
    rm_tpl_list *changed; /* arguments of the last loop.changed() */
};

typedef struct rm_tpl_named {
    const rm_tpl_string *name;
    rm_tpl_value value;
} rm_tpl_named;

typedef struct rm_tpl_args {
    const rm_tpl_value *at;
    uint32_t count;
    const rm_tpl_named *named;
    uint32_t named_count;
} rm_tpl_args;

/* A filter, test, method or global function. a: the arguments by the order of params; those that
 * were not given are absent. all: as they were given. */
typedef int rm_tpl_builtin_fn(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self,
                              const rm_tpl_value *a, const rm_tpl_args *all);

enum { RM_TPL_PARAMS_MAX = 6 };

struct rm_tpl_builtin {
    const char *name;
    rm_tpl_builtin_fn *call;
    const char *params; /* names, with a blank between; NULL: takes any */
    uint32_t required;  /* so many of them must be given */
};

typedef struct rm_tpl_var {
    const rm_tpl_string *name; /* interned */
    rm_tpl_value value;
    struct rm_tpl_var *next;
} rm_tpl_var;

struct rm_tpl_scope {
    rm_tpl_scope *parent;
    rm_tpl_var *vars;
    bool kept; /* a macro holds on to it */
};

/* --- nodes ---------------------------------------------------------------------------------- */

typedef enum rm_tpl_kind {
    /* expressions */
    RM_TPL_N_CONST,   /* v */
    RM_TPL_N_NAME,    /* name */
    RM_TPL_N_LIST,    /* a: items */
    RM_TPL_N_TUPLE,   /* a: items */
    RM_TPL_N_DICT,    /* a: key, value, key, value .. */
    RM_TPL_N_COND,    /* a if b else c (c may be NULL) */
    RM_TPL_N_NOT,     /* a */
    RM_TPL_N_NEGATE,  /* a; op: '-' or '+' */
    RM_TPL_N_AND,     /* a: first operand; b: N_OP .. */
    RM_TPL_N_OR,      /* the same */
    RM_TPL_N_COMPARE, /* a: first operand; b: N_OP .. */
    RM_TPL_N_ARITH,   /* a: first operand; b: N_OP ..; count of them */
    RM_TPL_N_OP,      /* op (a token); a: operand */
    RM_TPL_N_POSTFIX, /* a: base; b: the five below .. */
    RM_TPL_N_ATTR,    /* name */
    RM_TPL_N_ITEM,    /* a */
    RM_TPL_N_SLICE,   /* a, b, c, each may be NULL */
    RM_TPL_N_CALL,    /* a: arguments: expressions, N_KEYWORD, N_STAR; count of them */
    RM_TPL_N_FILTER,  /* name, builtin (NULL: unknown), arguments as N_CALL */
    RM_TPL_N_TEST,    /* as N_FILTER; op: 1 when negated */
    RM_TPL_N_KEYWORD, /* name, a */
    RM_TPL_N_STAR,    /* a; op: 1 or 2 stars */
    RM_TPL_N_NSREF,   /* name; a: N_NAME of the attribute */
    /* statements */
    RM_TPL_N_DATA,     /* name: the text */
    RM_TPL_N_PRINT,    /* a */
    RM_TPL_N_IF,       /* a: N_BRANCH .. */
    RM_TPL_N_BRANCH,   /* a: condition or NULL; b: body */
    RM_TPL_N_FOR,      /* a: target; b: iterable; c: N_FOR_REST */
    RM_TPL_N_FOR_REST, /* a: filter or NULL; b: body; c: else body */
    RM_TPL_N_SET,      /* a: target; b: expression */
    RM_TPL_N_SET_BODY, /* a: target; b: body; c: filters */
    RM_TPL_N_WITH,     /* a: N_SET ..; b: body */
    RM_TPL_N_MACRO,    /* name; a: N_KEYWORD .. (parameters); b: body; op: RM_TPL_USES_.. */
    RM_TPL_N_CALLER,   /* call block: as macro, and c: the call */
    RM_TPL_N_FILTERED, /* a: filters; b: body */
    RM_TPL_N_BREAK,
    RM_TPL_N_CONTINUE,
} rm_tpl_kind;

enum { RM_TPL_USES_CALLER = 1, RM_TPL_USES_VARARGS = 2, RM_TPL_USES_KWARGS = 4 };

struct rm_tpl_node {
    uint8_t kind, op;
    uint32_t line;
    uint32_t count;
    rm_tpl_node *next; /* in a list */
    rm_tpl_node *a, *b, *c;
    union {
        rm_tpl_value v;
        struct {
            const rm_tpl_string *name; /* interned, but for N_DATA */
            const rm_tpl_builtin *builtin;
        };
    };
};

/* --- a rendering ---------------------------------------------------------------------------- */

typedef struct rm_tpl_piece {
    const rm_tpl_string *s;
    struct rm_tpl_piece *next;
} rm_tpl_piece;

/* Where text goes: the output, or the inside of a block that is captured. */
typedef struct rm_tpl_sink {
    rm_tpl_piece *first, *last;
    size_t bytes;
} rm_tpl_sink;

typedef struct rm_tpl_interned {
    const rm_tpl_string *name;
    struct rm_tpl_interned *next;
} rm_tpl_interned;

enum { RM_TPL_NAME_BUCKETS = 256 };

struct rm_tpl {
    uint8_t *low, *high; /* the free memory */
    size_t memory_bytes;
    rm_template_limits limits;
    uint64_t steps;
    uint32_t depth;
    uint32_t line; /* of the template, where we are; 0: not in the template */
    remat_error *err;
    rm_tpl_dict *variables; /* the JSON object */
    const rm_template_extra *extra;
    uint32_t extra_count;
    rm_tpl_scope *scope;
    rm_tpl_var *spare_vars;
    rm_tpl_sink *sink;
    enum { RM_TPL_GO_ON, RM_TPL_BREAK, RM_TPL_CONTINUE } flow;
    rm_tpl_interned *names[RM_TPL_NAME_BUCKETS];
};

/* template_memory.c: limits, memory, interned names. */

/* "template line N: ...". A macro, so that an analyser sees that a failure is not REMAT_OK. */
#define rm_tpl_fail(t, ...) (rm_tpl_fail_write((t), __VA_ARGS__), (int)REMAT_E_FAILED)
__attribute__((format(printf, 2, 3))) void rm_tpl_fail_write(rm_tpl *t, const char *fmt, ...);
int rm_tpl_no_steps(rm_tpl *t);
int rm_tpl_enter(rm_tpl *t);

static inline void rm_tpl_leave(rm_tpl *t) {
    t->depth--;
}

/* Charges for touching n bytes. */
static inline int rm_tpl_work(rm_tpl *t, size_t n) {
    t->steps += 1 + n / 16;
    return t->steps > t->limits.steps_max ? rm_tpl_no_steps(t) : REMAT_OK;
}

/* *(void **)out: count * size zeroed bytes, aligned for anything here. */
int rm_tpl_take(void *out, rm_tpl *t, size_t count, size_t size);
int rm_tpl_take_bytes(void *out, rm_tpl *t, size_t count); /* not zeroed, not aligned */

/* The one string with these bytes: names are equal when their pointers are. */
int rm_tpl_intern(const rm_tpl_string **out, rm_tpl *t, const char *bytes, size_t count);

/* A string under construction. Memory may be taken meanwhile, other strings too may be built. */
typedef struct rm_tpl_build {
    char *bytes;
    uint8_t *marks, *high; /* high: what t->high was */
    size_t count, cap;
    bool full;
} rm_tpl_build;

void rm_tpl_build_start(rm_tpl_build *b, rm_tpl *t);
void rm_tpl_put(rm_tpl_build *b, const char *bytes, size_t count, bool mark);
void rm_tpl_put_text(rm_tpl_build *b, const char *text); /* mark 0 */
void rm_tpl_put_part(rm_tpl_build *b, const rm_tpl_string *s, size_t from, size_t to);
int rm_tpl_build_end(rm_tpl_value *out, rm_tpl *t, rm_tpl_build *b);

/* template_string.c. Positions are bytes unless "char" is said. */

static inline bool rm_tpl_mark_at(const rm_tpl_string *s, size_t at) {
    return s->marks != NULL ? s->marks[at] != 0 : s->mark;
}

int rm_tpl_string_of(rm_tpl_value *out, rm_tpl *t, const char *bytes, size_t count, bool mark);
int rm_tpl_part(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, size_t from, size_t to);
int rm_tpl_concat(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *const *parts, size_t count);
bool rm_tpl_is_text(const rm_tpl_string *s, const char *text);
bool rm_tpl_same_text(const rm_tpl_string *a, const rm_tpl_string *b);
size_t rm_tpl_char_count(const rm_tpl_string *s);
size_t rm_tpl_char_offset(const rm_tpl_string *s, size_t index); /* count when past the end */
int rm_tpl_strip(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, const rm_tpl_string *chars,
                 bool left, bool right); /* chars NULL: white space */

typedef enum rm_tpl_case {
    RM_TPL_UPPER,
    RM_TPL_LOWER,
    RM_TPL_CAPITALIZE,
    RM_TPL_TITLE,        /* Python's: a letter after a non-letter */
    RM_TPL_TITLE_FILTER, /* Jinja's: after white space, - ( { [ < */
    RM_TPL_SWAP,
} rm_tpl_case;

int rm_tpl_change_case(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, rm_tpl_case how);
int rm_tpl_replace(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, const rm_tpl_string *old,
                   const rm_tpl_string *new, int64_t most); /* most < 0: all */
/* The byte after the next line of s from `at`, and where its line break begins. */
size_t rm_tpl_line_end(const rm_tpl_string *s, size_t at, size_t *next);

/* template_char.c: single characters. Bytes that are not UTF-8 count as characters of their own. */
size_t rm_tpl_char(const char *s, size_t n, uint32_t *code); /* length; code RM_TPL_BAD_CHAR */
enum { RM_TPL_BAD_CHAR = 0x110000 };
size_t rm_tpl_char_put(char out[4], uint32_t code);
bool rm_tpl_is_space(uint32_t c);
bool rm_tpl_is_printable(uint32_t c);
bool rm_tpl_is_letter(uint32_t c);
uint32_t rm_tpl_upper(uint32_t c);
uint32_t rm_tpl_lower(uint32_t c);

/* template_ops.c: what operators do. */
const char *rm_tpl_type_name(const rm_tpl_value *v);
bool rm_tpl_truth(const rm_tpl_value *v);
int rm_tpl_equal(bool *out, rm_tpl *t, const rm_tpl_value *a, const rm_tpl_value *b);
int rm_tpl_order(int *out, rm_tpl *t, const rm_tpl_value *a, const rm_tpl_value *b);
int rm_tpl_contains(bool *out, rm_tpl *t, const rm_tpl_value *in, const rm_tpl_value *what);
int rm_tpl_arith(rm_tpl_value *out, rm_tpl *t, uint8_t op, const rm_tpl_value *a,
                 const rm_tpl_value *b);
int rm_tpl_negate(rm_tpl_value *out, rm_tpl *t, uint8_t op, const rm_tpl_value *a);
int rm_tpl_undefined_used(rm_tpl *t, const rm_tpl_value *v); /* "'x' is undefined" */

static inline rm_tpl_value rm_tpl_bool(bool b) {
    return (rm_tpl_value){.type = RM_TPL_BOOL, .b = b};
}
static inline rm_tpl_value rm_tpl_int(int64_t i) {
    return (rm_tpl_value){.type = RM_TPL_INT, .i = i};
}
static inline rm_tpl_value rm_tpl_float(double f) {
    return (rm_tpl_value){.type = RM_TPL_FLOAT, .f = f};
}
static inline rm_tpl_value rm_tpl_none(void) {
    return (rm_tpl_value){.type = RM_TPL_NONE};
}
static inline rm_tpl_value rm_tpl_of_string(const rm_tpl_string *s) {
    return (rm_tpl_value){.type = RM_TPL_STRING, .s = s};
}
static inline rm_tpl_value rm_tpl_of_list(rm_tpl_list *list) {
    return (rm_tpl_value){.type = RM_TPL_LIST, .list = list};
}
static inline bool rm_tpl_given(const rm_tpl_value *v) {
    return v->type != RM_TPL_ABSENT;
}

/* template_list.c: lists, dicts, and what can be iterated. */
int rm_tpl_list_new(rm_tpl_list **out, rm_tpl *t, uint8_t kind, size_t cap);
int rm_tpl_list_add(rm_tpl *t, rm_tpl_list *list, const rm_tpl_value *v);
int rm_tpl_pair_list(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *a, const rm_tpl_value *b);
int rm_tpl_dict_new(rm_tpl_dict **out, rm_tpl *t);
int rm_tpl_dict_find(rm_tpl_value **out, rm_tpl *t, const rm_tpl_dict *d, const rm_tpl_value *key);
int rm_tpl_dict_set(rm_tpl *t, rm_tpl_dict *d, const rm_tpl_value *key, const rm_tpl_value *v);
int rm_tpl_dict_remove(rm_tpl *t, rm_tpl_dict *d, const rm_tpl_value *key);
int rm_tpl_dict_fill(rm_tpl *t, rm_tpl_dict *d, const rm_tpl_args *all);
int rm_tpl_dict_view(rm_tpl_value *out, rm_tpl *t, const rm_tpl_dict *d, rm_tpl_list_kind kind);
int rm_tpl_range_new(rm_tpl_value *out, rm_tpl *t, int64_t start, int64_t stop, int64_t step);

/* The items of anything that can be iterated; of a list, itself. */
int rm_tpl_items(rm_tpl_list **out, rm_tpl *t, const rm_tpl_value *v);
int rm_tpl_length(int64_t *out, rm_tpl *t, const rm_tpl_value *v);

/* Sorts keys and moves items along; stable. count of both is the same. */
int rm_tpl_sort(rm_tpl *t, rm_tpl_list *items, rm_tpl_list *keys, bool reverse);

/* template_print.c */
int rm_tpl_to_string(const rm_tpl_string **out, rm_tpl *t, const rm_tpl_value *v); /* str() */
int rm_tpl_repr(rm_tpl *t, rm_tpl_build *b, const rm_tpl_value *v);                /* repr() */
size_t rm_tpl_float_text(char out[32], double f);
bool rm_tpl_read_float(double *out, const char *text, size_t count); /* decimal, whole text */

/* template_json.c, template_tojson.c */
int rm_tpl_json_read(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *json, const char *what);
typedef struct rm_tpl_json_style {
    const rm_tpl_string *item, *key; /* separators */
    const rm_tpl_string *indent;     /* for one level; NULL: all in one line */
    bool ascii, sort;
} rm_tpl_json_style;
extern const rm_tpl_builtin rm_tpl_tojson;

/* template_parse.c, template_statement.c */
int rm_tpl_parse(rm_tpl_node **out, rm_tpl *t, const char *source, size_t bytes);

/* template_eval.c */
int rm_tpl_eval(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n);
int rm_tpl_eval_parts(rm_tpl *t, const rm_tpl_node *n, rm_tpl_value *v,
                      const rm_tpl_string ***parts, uint32_t *count);
int rm_tpl_eval_filters(rm_tpl_value *v, rm_tpl *t, const rm_tpl_node *filters);
int rm_tpl_truth_of(bool *out, rm_tpl *t, const rm_tpl_node *n);
/* a.b and a[b]: in Jinja the one looks for attributes first, the other for items. */
int rm_tpl_attribute(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v,
                     const rm_tpl_string *name);
int rm_tpl_item(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const rm_tpl_value *key);
/* 'a.b.0', as filters take it; NULL gives v itself. */
int rm_tpl_path(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const rm_tpl_value *path);

/* template_call.c */
int rm_tpl_call(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *callee, const rm_tpl_args *args);
int rm_tpl_invoke(rm_tpl_value *out, rm_tpl *t, const rm_tpl_builtin *b, const rm_tpl_value *self,
                  const rm_tpl_args *args);
int rm_tpl_want_int(int64_t *out, rm_tpl *t, const rm_tpl_value *v, const char *what);
int rm_tpl_want_string(const rm_tpl_string **out, rm_tpl *t, const rm_tpl_value *v,
                       const char *what);
int rm_tpl_want_builtin(const rm_tpl_builtin **out, rm_tpl *t, const rm_tpl_value *name,
                        const rm_tpl_builtin *(*find)(const rm_tpl_string *), const char *what);

/* template_exec.c */
int rm_tpl_exec(rm_tpl *t, const rm_tpl_node *list);
int rm_tpl_macro_call(rm_tpl_value *out, rm_tpl *t, const rm_tpl_macro *m, const rm_tpl_args *args);
int rm_tpl_loop_at(rm_tpl_value *out, bool *found, rm_tpl *t, rm_tpl_loop *loop, size_t index);
int rm_tpl_loop_attribute(rm_tpl_value *out, rm_tpl *t, rm_tpl_loop *loop,
                          const rm_tpl_string *name);
int rm_tpl_emit(rm_tpl *t, const rm_tpl_string *s);
int rm_tpl_sink_text(rm_tpl_value *out, rm_tpl *t, const rm_tpl_sink *sink);
rm_tpl_value *rm_tpl_lookup(rm_tpl *t, const rm_tpl_string *name);

/* Tables: NULL when there is none of that name. */
const rm_tpl_builtin *rm_tpl_find_in(const rm_tpl_builtin *table, size_t count,
                                     const rm_tpl_string *name);
const rm_tpl_builtin *rm_tpl_find_filter(const rm_tpl_string *name);     /* template_filter.c */
const rm_tpl_builtin *rm_tpl_find_seq_filter(const rm_tpl_string *name); /* template_filter_seq.c */
const rm_tpl_builtin *rm_tpl_find_test(const rm_tpl_string *name);       /* template_test.c */
const rm_tpl_builtin *rm_tpl_find_global(const rm_tpl_string *name);     /* template_global.c */
const rm_tpl_builtin *rm_tpl_find_method(const rm_tpl_value *v, const rm_tpl_string *name);
const rm_tpl_builtin *rm_tpl_find_string_method(const rm_tpl_string *name);
int rm_tpl_format_printf(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s,
                         const rm_tpl_value *args); /* template_format.c: the % operator */
int rm_tpl_format_braces(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self,
                         const rm_tpl_value *a, const rm_tpl_args *all); /* str.format */

#endif /* RM_TEXT_TEMPLATE_IMPL_H */
