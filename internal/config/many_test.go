package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A pipeline more takes as much memory with few others as with many.
func TestPipelinesTakeEqualMemory(t *testing.T) {
	const top = `source: {url: "postgres://cdc@localhost/app"}` + "\n"
	for name, write := range map[string]func(f folder, names []string){
		"in the file": func(f folder, names []string) {
			f.write("main.yaml", top+"pipelines:\n  "+strings.Join(names, ": {}\n  ")+": {}\n")
		},
		"in files": func(f folder, names []string) {
			f.write("main.yaml", top+"discovery: {directory: pipelines.d}\n")
			for _, name := range names {
				f.write("pipelines.d/"+name+".yaml", "pipelines: {"+name+": {}}")
			}
		},
		"of a listing": func(f folder, names []string) {
			f.write("main.yaml", top+"discovery: {names_file: tenants.csv}\npipeline_template: {checkpoint: {topic: '%{name}.checkpoints'}}\n")
			f.write("tenants.csv", "name\n"+strings.Join(names, "\n")+"\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			each := func(n int) uint64 {
				f := inFolder(t)
				names := make([]string, n)
				for i := range names {
					names[i] = fmt.Sprintf("tenant_%04d", i)
				}
				write(f, names)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if found := len(f.config().Pipelines); found != n {
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
		})
	}
}
