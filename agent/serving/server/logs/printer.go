package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// timestampFormat has all nine digits of the fraction.
const timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// errEnough reports that everything asked for is written.
var errEnough = errors.New("as much as was asked for")

// Options selects parts of a log.
type Options struct {
	// Since excludes earlier lines; zero: none.
	Since time.Time
	// Tail bounds the number of lines, counted from the end; nil: no bound.
	Tail *int64
	// Limit bounds the number of bytes; nil: no bound.
	Limit *int64
	// Timestamps prefixes each line with its time.
	Timestamps bool
	// Stream is "stdout" or "stderr"; "": both.
	Stream string
	// Follow continues with new output until the container has ended.
	Follow bool
}

// printer writes records according to the options.
type printer struct {
	out     *bufio.Writer
	options Options
	left    int64           // bytes; negative: any number
	lines   int64           // lines still to be shown; negative: any number
	within  map[string]bool // streams with an unfinished line
}

func newPrinter(out io.Writer, options Options) *printer {
	p := &printer{bufio.NewWriterSize(out, maxLine), options, -1, -1, map[string]bool{}}
	if options.Limit != nil {
		p.left = *options.Limit
	}
	if options.Tail != nil && !options.Follow {
		p.lines = *options.Tail // regardless of later output
	}
	return p
}

// wants reports whether the options select the record.
func (p *printer) wants(r record) bool {
	return !r.at.Before(p.options.Since) && (p.options.Stream == "" || p.options.Stream == r.stream)
}

// print writes a record; if more is set, rest writes the rest of its content.
func (p *printer) print(r record, more bool) error {
	if p.options.Timestamps && !p.within[r.stream] {
		if err := p.write([]byte(r.at.Format(timestampFormat) + " ")); err != nil {
			return err
		}
	}
	return p.rest(r, r.content, more)
}

// rest writes the next piece of a record's content.
func (p *printer) rest(r record, piece []byte, more bool) error {
	if !more {
		piece = bytes.TrimSuffix(piece, []byte{'\n'})
	}
	if err := p.write(piece); err != nil || more {
		return err
	}
	p.within[r.stream] = r.partial
	if r.partial {
		return nil
	}
	if err := p.write([]byte{'\n'}); err != nil {
		return err
	}
	if p.lines--; p.lines == 0 {
		return errEnough
	}
	return nil
}

func (p *printer) write(b []byte) error {
	if p.left < 0 {
		_, err := p.out.Write(b)
		return err
	}
	if int64(len(b)) > p.left {
		b = b[:p.left]
	}
	p.left -= int64(len(b))
	if _, err := p.out.Write(b); err != nil {
		return err
	}
	if p.left == 0 {
		return errEnough
	}
	return nil
}
