package figures

import (
	"cmp"
	"math"
	"slices"
)

// Median is the median of at least one value. The values may be in any order, and keep
// their order.
func Median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

// Percentile is the smallest value not exceeded by p percent (the nearest rank), or 0
// without values. The values are sorted.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	// Rounded, as 99.9 is no binary fraction: the 999th of 1000 is meant.
	rank := int(math.Ceil(math.Round(p*float64(len(sorted))*1e6) / 1e8))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
