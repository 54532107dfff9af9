package gpu

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A doubt about a GPU is logged once; the text of an unhealthy GPU contains it.
func TestDoubtsAreSaid(t *testing.T) {
	var said []string
	w := &watch{counts: newCounts(), histories: map[part]history{},
		log: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	s := gpus(2)
	s.GPUs[1].NodeDoubt, s.Warnings = "it is said to be on node 0", []string{"no files"}
	for range 2 {
		w.read(s, time.Now())
		w.offers(Defaults())
	}
	s.GPUs[1].Reading.RemapFailed = true
	w.read(s, time.Now())
	w.offers(Defaults())
	text := strings.Join(said, "\n")
	for part, times := range map[string]int{"GPU 1 (GPU-1): it is said to be on node 0": 1,
		"replace the GPU; it is said to be on node 0": 1, "no files": 1} {
		if strings.Count(text, part) != times {
			t.Errorf("%q is not said %d times in\n%s", part, times, text)
		}
	}
}
