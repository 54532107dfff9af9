package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// maxLine bounds the part of a line that is held in memory; longer lines are written in pieces.
// Runtimes break lines at 16 KiB.
const maxLine = 64 << 10

// lookEvery is how often a follower polls for new output. It polls only the open file, which costs
// less than inotify, whose instances are limited per user.
const lookEvery = 100 * time.Millisecond

// Log is the log of one container.
type Log struct {
	// Path is the file that the runtime writes.
	Path string
	// Running reports whether the container may write more.
	Running func() bool
}

// Copy writes the part of the log that options select. With Follow it returns when the container
// has ended. It returns no error if enough was written or ctx has ended.
func (l Log) Copy(ctx context.Context, out io.Writer, options Options) error {
	p := newPrinter(out, options)
	if p.left == 0 || p.lines == 0 {
		return nil
	}
	all, err := segments(l.Path)
	if err == nil && len(all) == 0 {
		err = &fs.PathError{Op: "open", Path: l.Path, Err: fs.ErrNotExist}
	}
	if err != nil {
		return err
	}
	var skip int64
	if options.Tail != nil {
		if all, skip, err = tail(ctx, all, *options.Tail, p); err != nil {
			return err
		}
	}
	r := &reading{log: l, printer: p, skip: skip}
	err = errors.Join(r.files(ctx, all), r.close())
	if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
		return err
	}
	return p.out.Flush()
}

// reading is the progress through the files of a log.
type reading struct {
	log     Log
	printer *printer
	skip    int64 // number of lines to skip
	lines   *lines
	file    *os.File // the open file, or nil
}

func (r *reading) close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// files shows one file after the other and, with Follow, new output and files.
func (r *reading) files(ctx context.Context, all []segment) error {
	for len(all) > 0 {
		s := all[0]
		entered, err := r.enter(s)
		if err != nil {
			return err
		}
		if !entered {
			if all, err = r.renamed(s, all[1:]); err != nil {
				return err
			}
			continue
		}
		if err := r.show(ctx); err != nil {
			return err
		}
		if all = all[1:]; len(all) == 0 && r.printer.options.Follow {
			if all, err = r.follow(ctx); err != nil {
				return err
			}
		}
		if err := r.remainder(); err != nil {
			return err
		}
	}
	return nil
}

// enter opens a segment's file; false: the name belongs to another file or to none.
func (r *reading) enter(s segment) (bool, error) {
	if err := r.close(); err != nil {
		return false, err
	}
	text, file, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.file, r.lines = file, newLines(text)
	now, err := file.Stat()
	return err == nil && os.SameFile(now, s.info), err
}

// renamed finds the files from s on after s was renamed; if s is gone, it returns the rest.
func (r *reading) renamed(s segment, rest []segment) ([]segment, error) {
	all, err := segments(r.log.Path)
	if err != nil {
		return nil, err
	}
	now, known := from(all, s.info)
	if !known && len(rest) > 0 {
		return rest, nil
	}
	return now, nil
}

// show writes the present rest of the open file.
func (r *reading) show(ctx context.Context) error {
	for ctx.Err() == nil {
		piece, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.piece(piece); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *reading) piece(piece piece) error {
	if !piece.begins {
		if r.lines.shown {
			return r.printer.rest(r.lines.record, piece.text, piece.more)
		}
		return nil
	}
	now, ok := parse(piece.text)
	if !ok || r.skip > 0 && r.printer.wants(now) {
		if ok && !now.partial {
			r.skip--
		}
		r.lines.shown = false
		return nil
	}
	r.lines.record, r.lines.shown = now, r.printer.wants(now)
	if !r.lines.shown {
		return nil
	}
	return r.printer.print(now, piece.more)
}

// follow shows new output until the file is no longer the log, and returns the files after it. It
// returns none if the container has ended and all its output was shown.
func (r *reading) follow(ctx context.Context) ([]segment, error) {
	if r.file == nil {
		return nil, nil
	}
	tick := time.Tick(lookEvery)
	for {
		// asked before the last read, which then sees all of the container's output
		running := r.log.Running()
		replaced, err := r.replaced()
		if err != nil {
			return nil, err
		}
		if err := r.show(ctx); err != nil {
			return nil, err
		}
		if replaced {
			return r.behind()
		}
		if !running {
			return nil, nil
		}
		if err := r.printer.out.Flush(); err != nil {
			return nil, err
		}
		if !await.On(ctx, tick) {
			return nil, ctx.Err()
		}
	}
}

// replaced reports whether another file has the log's name.
func (r *reading) replaced() (bool, error) {
	mine, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(r.log.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // renamed, and the next one does not exist yet
	}
	return err == nil && !os.SameFile(mine, now), err
}

func (r *reading) behind() ([]segment, error) {
	mine, err := r.file.Stat()
	if err != nil {
		return nil, err
	}
	all, err := segments(r.log.Path)
	rest, known := from(all, mine)
	if known {
		rest = rest[1:]
	}
	return rest, err
}

// remainder shows an unfinished line at the end of a file that is no longer written to.
func (r *reading) remainder() error {
	if rest, ok := r.lines.remainder(); ok {
		return r.piece(rest)
	}
	return nil
}

// lines reads the lines of a file in pieces.
type lines struct {
	in     *bufio.Reader
	within bool   // the last piece did not end its line
	held   []byte // part of an unfinished line
	record record // of the line being shown
	shown  bool
}

// piece is a line with its newline, or a part of a long line. It is valid until the next call of
// next.
type piece struct {
	text         []byte
	begins, more bool
}

func newLines(text io.Reader) *lines { return &lines{in: bufio.NewReaderSize(text, maxLine)} }

// next returns io.EOF at the end of the file, even in the middle of a line. The line is returned by
// a later call, once the file has grown.
func (l *lines) next() (piece, error) {
	text, err := l.in.ReadSlice('\n')
	if len(l.held) > 0 || err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		l.held = append(l.held, text...)
		text = l.held
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull), err != nil && len(l.held) >= maxLine:
		p := piece{text, !l.within, true}
		l.within, l.held = true, l.held[:0]
		return p, nil
	case err != nil:
		return piece{}, err
	}
	p := piece{text, !l.within, false}
	l.within, l.held = false, l.held[:0]
	return p, nil
}

// remainder returns an unfinished line; false: there is none.
func (l *lines) remainder() (piece, bool) {
	if len(l.held) == 0 {
		return piece{}, false
	}
	p := piece{l.held, !l.within, false}
	l.within, l.held = false, nil
	return p, true
}
