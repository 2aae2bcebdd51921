"""The aggregate functions in an expression: state is kept for them, and not for what is computed from their results."""

import re

from tidemill.plans.plan_tree import closing

_NAMES = (
    "any|any_value|approx_count_distinct|approx_percentile|approx_top_k|array_agg|avg|bit_and|bit_or|bit_xor|"
    "bitmap_construct_agg|bitmap_or_agg|bool_and|bool_or|collect_list|collect_set|corr|count|count_if|count_min_sketch|"
    "covar_pop|covar_samp|every|first|first_value|grouping|grouping_id|histogram_numeric|hll_sketch_agg|hll_union_agg|"
    "kurtosis|last|last_value|listagg|max|max_by|mean|median|min|min_by|mode|percentile|percentile_approx|"
    "percentile_cont|percentile_disc|product|regr_avgx|regr_avgy|regr_count|regr_intercept|regr_r2|regr_slope|regr_sxx|"
    "regr_sxy|regr_syy|skewness|some|std|stddev|stddev_pop|stddev_samp|string_agg|sum|try_avg|try_sum|var_pop|var_samp|"
    "variance"
)
_CALL = re.compile(rf"(?<![\w.`])(?:{_NAMES})\(")
_FILTER = " FILTER ("


def kept_aggregates(expression: str) -> list[str]:
    """Return the calls of aggregate functions in an expression of a plan, with their filters.

    Returns:
        The calls, in their order; the whole expression where none is known, such as a function of a user.
    """
    calls = []
    position = 0
    while match := _CALL.search(expression, position):
        end = closing(expression, match.end())
        position = end
        if expression.startswith("#", end):
            continue  # the name of a column
        if expression.startswith(_FILTER, end):
            position = end = closing(expression, end + len(_FILTER))
        calls.append(expression[match.start() : end])
    return calls or [expression]
