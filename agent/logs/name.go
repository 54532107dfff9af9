package logs

import "strings"

// stampFormat is the time in the name of a rotated log, in the node's time zone.
const stampFormat = "20060102-150405"

const (
	compressed = ".gz"
	unfinished = ".tmp" // it is being compressed
)

// Rotated reports whether a file of that name was once the log of the name base.
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

// tidying is what is to be done with the files that were once a log.
type tidying struct{ remove, compress []string }

// tidy decides it: the newest keep of them stay, all but the newest one compressed. What a crash
// left half done goes.
func tidy(base string, names []string, keep int) (t tidying) {
	var logs []string // the oldest first, since names are sorted
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
