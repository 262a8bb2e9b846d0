package config

import (
	"fmt"
	"runtime"
	"testing"
)

// A tenant more takes as much memory with few others as with many.
func TestTenantsTakeEqualMemory(t *testing.T) {
	each := func(n int) uint64 {
		f := inFolder(t)
		f.write("main.yaml", `
source: {url: "postgres://cdc@localhost/app"}
discovery: {names_file: tenants.csv}
pipeline_template: {checkpoint: {topic: "%{name}.checkpoints"}}`)
		text := "name\n"
		for i := range n {
			text += fmt.Sprintf("tenant_%04d\n", i)
		}
		f.write("tenants.csv", text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if found := len(f.load().Config.Pipelines); found != n {
			t.Errorf("%d pipelines, want %d", found, n)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	each(1)
	few, many := each(50), each(500)
	t.Logf("%d bytes each of 50, %d each of 500", few, many)
	if many > few+few/4 {
		t.Errorf("%d bytes each of 50, and %d each of 500", few, many)
	}
}
