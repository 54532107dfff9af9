package logs

import (
	"context"
	"errors"
	"io"
	"slices"
)

// tail finds the last lines: it returns the files to read and the number of their first lines to
// skip. It counts backwards from the newest file and opens no more files than needed.
func tail(ctx context.Context, all []segment, want int64, p *printer) ([]segment, int64, error) {
	var found int64
	for i, s := range slices.Backward(all) {
		n, err := count(ctx, s, p)
		if err != nil {
			return nil, 0, err
		}
		found += n
		if found >= want {
			return all[i:], found - want, nil
		}
	}
	return all, 0, nil
}

// count returns the number of wanted lines that end in a file.
func count(ctx context.Context, s segment, p *printer) (n int64, err error) {
	text, file, err := s.open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for lines := newLines(text); ctx.Err() == nil; {
		piece, err := lines.next()
		last := errors.Is(err, io.EOF)
		switch {
		case last && !p.options.Follow: // a follower gets it when it is finished
			piece, _ = lines.remainder()
		case err != nil && !last:
			return n, err
		}
		if r, ok := parse(piece.text); ok && piece.begins && !r.partial && p.wants(r) {
			n++
		}
		if last {
			return n, nil
		}
	}
	return n, ctx.Err()
}
