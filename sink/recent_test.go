package sink

import (
	"slices"
	"testing"
	"time"
)

func TestRecentForesees(t *testing.T) {
	of := func(numbers ...int32) partitions {
		set := partitions{{marks, 0}: true}
		for _, n := range numbers {
			set[partition{"t", n}] = true
		}
		return set
	}
	for name, c := range map[string]struct {
		transactions []partitions
		want         []int32
	}{
		"nothing before the first":            {nil, nil},
		"nothing after the first":             {[]partitions{of(0, 1)}, nil},
		"the same again":                      {[]partitions{of(0, 1), of(0, 1)}, []int32{0, 1}},
		"what the last lacks":                 {[]partitions{of(0, 1), of(1)}, []int32{0, 1}},
		"what several have together":          {[]partitions{of(0, 1), of(2), of(0, 2)}, []int32{0, 1, 2}},
		"nothing while others come":           {[]partitions{of(0, 1), of(0, 1), of(2)}, nil},
		"nothing that is long ago":            {[]partitions{of(0, 1), of(1), of(1), of(1), of(1)}, []int32{1}},
		"what is as long ago as it remembers": {[]partitions{of(0, 1), of(1), of(1), of(1)}, []int32{0, 1}},
		"a mark alone does not count":         {[]partitions{of(0), of(0), of(), of(), of(), of()}, []int32{0}},
		"nothing after what was long ago":     {[]partitions{of(0, 1), of(1), of(1), of(1), of(1), of(0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var r recent
			now := time.Now()
			for _, of := range c.transactions {
				r.note(of, now)
			}
			if late := r.next(now.Add(fresh + 1)); late != nil {
				t.Errorf("foresees %v when the last one is long ago", late)
			}
			var got []int32
			for p := range r.next(now.Add(fresh)) {
				if p.topic == "t" {
					got = append(got, p.number)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("foresees %v, want %v", got, c.want)
			}
		})
	}
}
