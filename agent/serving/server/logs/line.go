package logs

import (
	"bytes"
	"time"
)

// record is one line of a log file in CRI's format: "TIME STREAM TAG content".
type record struct {
	at      time.Time
	stream  string
	partial bool // the next record of the stream continues the line
	content []byte
}

// parse splits a line of a file, with or without its newline; ok is false if it is not in CRI's
// format. The content is a part of line.
func parse(line []byte) (record, bool) {
	stamp, rest, found := bytes.Cut(line, []byte{' '})
	if !found {
		return record{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return record{}, false
	}
	stream, rest, found := bytes.Cut(rest, []byte{' '})
	if !found || string(stream) != "stdout" && string(stream) != "stderr" {
		return record{}, false
	}
	tags, content, found := bytes.Cut(rest, []byte{' '})
	if !found {
		return record{}, false
	}
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	return record{at, string(stream), string(tag) == "P", content}, true
}
