package logs

import (
	"strings"

	"github.com/numalet/numalet/cri/logfiles"
)

// tidying lists what to do with rotated files.
type tidying struct{ remove, compress []string }

// tidy keeps the newest keep rotated files, and compresses all of them but the newest. It removes
// what a crash left half done.
func tidy(base string, names []string, keep int) (t tidying) {
	var logs []string // oldest first, since names are sorted
	has := map[string]bool{}
	for _, name := range names {
		has[name] = true
	}
	for _, name := range names {
		whole := strings.TrimSuffix(name, logfiles.Unfinished)
		switch {
		case !logfiles.Rotated(base, whole):
		case name != whole, has[name+logfiles.Compressed]:
			t.remove = append(t.remove, name)
		default:
			logs = append(logs, name)
		}
	}
	if excess := len(logs) - keep; excess > 0 {
		t.remove, logs = append(t.remove, logs[:excess]...), logs[excess:]
	}
	for _, name := range logs[:max(len(logs)-1, 0)] {
		if !strings.HasSuffix(name, logfiles.Compressed) {
			t.compress = append(t.compress, name)
		}
	}
	return t
}
