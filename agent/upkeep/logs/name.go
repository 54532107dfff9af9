package logs

import "strings"

// stampFormat is the format of the time in the name of a rotated log, in the node's time zone.
const stampFormat = "20060102-150405"

const (
	compressed = ".gz"
	unfinished = ".tmp" // being compressed
)

// Rotated reports whether name is that of a rotated file of the log base.
func Rotated(base, name string) bool {
	stamp, ok := strings.CutPrefix(name, base+".")
	stamp = strings.TrimSuffix(stamp, compressed)
	if !ok || len(stamp) != len(stampFormat) {
		return false
	}
	for i, c := range stamp {
		if i == 8 && c != '-' || i != 8 && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

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
		whole := strings.TrimSuffix(name, unfinished)
		switch {
		case !Rotated(base, whole):
		case name != whole, has[name+compressed]:
			t.remove = append(t.remove, name)
		default:
			logs = append(logs, name)
		}
	}
	if excess := len(logs) - keep; excess > 0 {
		t.remove, logs = append(t.remove, logs[:excess]...), logs[excess:]
	}
	for _, name := range logs[:max(len(logs)-1, 0)] {
		if !strings.HasSuffix(name, compressed) {
			t.compress = append(t.compress, name)
		}
	}
	return t
}
