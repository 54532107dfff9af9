package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/numalet/numalet/topology/await"
)

// maxLine is how much of a file's line is held in memory: runtimes break lines at 16 KiB. What is
// longer is written piece by piece.
const maxLine = 64 << 10

// lookEvery is how often a follower looks for more. It asks the open file alone, which costs less
// than the kernel's notifications, of which a user has few.
const lookEvery = 100 * time.Millisecond

// Log is the log of one container.
type Log struct {
	// Path is the file that the runtime writes.
	Path string
	// Running reports whether the container may write more.
	Running func() bool
}

// Copy writes the log as the options want it. It returns when there is no more to be had: with
// Follow, when the container has ended; without error also when enough was written or ctx has
// ended.
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

// reading is the way through the files of a log.
type reading struct {
	log     Log
	printer *printer
	skip    int64 // lines that are not shown
	lines   *lines
	file    *os.File // open, unless nil
}

func (r *reading) close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// files shows one after the other, and with Follow what comes behind them.
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

// enter opens a file; false: it has that name no more.
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

// renamed are the files from s on, which was renamed since it was found; if it is gone, the rest.
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

// show writes what the open file has now.
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

// follow waits until the open file is the log no more, showing what is written to it, and returns
// the files behind it; none: the container has ended and all of it was shown.
func (r *reading) follow(ctx context.Context) ([]segment, error) {
	if r.file == nil {
		return nil, nil
	}
	tick := time.Tick(lookEvery)
	for {
		running := r.log.Running() // before the last look: what it wrote is there by then
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
		return false, nil // renamed, and the next one is not there yet
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

// remainder shows what stands at the end of a file without a newline, which comes no more.
func (r *reading) remainder() error {
	if rest, ok := r.lines.remainder(); ok {
		return r.piece(rest)
	}
	return nil
}

// lines are those of a file, in pieces.
type lines struct {
	in     *bufio.Reader
	within bool   // the last piece had more behind it
	held   []byte // of a line that is not ended yet
	record record // of the line that is shown
	shown  bool
}

// piece is a line of a file with its newline, or a part of one that is long. It is valid until the
// next one is asked for.
type piece struct {
	text         []byte
	begins, more bool
}

func newLines(text io.Reader) *lines { return &lines{in: bufio.NewReaderSize(text, maxLine)} }

// next is io.EOF where the file ends, which may be in the middle of a line: then it begins there
// when it is called again and there is more.
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

// remainder is a line that has begun and not ended; false: there is none.
func (l *lines) remainder() (piece, bool) {
	if len(l.held) == 0 {
		return piece{}, false
	}
	p := piece{l.held, !l.within, false}
	l.within, l.held = false, nil
	return p, true
}
