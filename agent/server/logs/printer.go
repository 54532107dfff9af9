package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// timestampFormat has all nine digits of the second's fraction.
const timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// errEnough says that all that was asked for is written.
var errEnough = errors.New("as much as was asked for")

// Options are what is wanted of a log.
type Options struct {
	// Since leaves out what was written before; zero: nothing.
	Since time.Time
	// Tail is how many lines there are at most, the last ones; nil: all.
	Tail *int64
	// Limit is how many bytes there are at most; nil: all.
	Limit *int64
	// Timestamps puts the time before each line.
	Timestamps bool
	// Stream is "stdout" or "stderr"; "": both.
	Stream string
	// Follow goes on with what is written until the container has ended.
	Follow bool
}

// printer writes records as the options want them.
type printer struct {
	out     *bufio.Writer
	options Options
	left    int64           // bytes; less than 0: any number
	lines   int64           // that are still to be shown; less than 0: any number
	within  map[string]bool // streams of which a line has begun and not ended
}

func newPrinter(out io.Writer, options Options) *printer {
	p := &printer{bufio.NewWriterSize(out, maxLine), options, -1, -1, map[string]bool{}}
	if options.Limit != nil {
		p.left = *options.Limit
	}
	if options.Tail != nil && !options.Follow {
		p.lines = *options.Tail // whatever is written meanwhile
	}
	return p
}

// wants reports whether the record is shown.
func (p *printer) wants(r record) bool {
	return !r.at.Before(p.options.Since) && (p.options.Stream == "" || p.options.Stream == r.stream)
}

// print writes a record; more: its content goes on with the next call of rest.
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
