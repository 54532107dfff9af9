package logfiles

import "strings"

// StampFormat is the format of the time in the name of a rotated log, in the node's time zone.
const StampFormat = "20060102-150405"

// Endings of the names of rotated logs.
const (
	Compressed = ".gz"
	Unfinished = ".tmp" // being compressed
)

// Rotated reports whether name is that of a rotated file of the log base.
func Rotated(base, name string) bool {
	stamp, ok := strings.CutPrefix(name, base+".")
	stamp = strings.TrimSuffix(stamp, Compressed)
	if !ok || len(stamp) != len(StampFormat) {
		return false
	}
	for i, c := range stamp {
		if i == 8 && c != '-' || i != 8 && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
