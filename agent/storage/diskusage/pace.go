package diskusage

import (
	"context"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// A walk that has worked for slice rests for idle times as long, so that it takes an eighth of one CPU,
// and in a hurry a quarter as long as it worked. A walk on a slow disk rests at most longest.
const slice, idle, longest = 5 * time.Millisecond, 7, 50 * time.Millisecond

// pace has a walk rest.
type pace struct {
	since  time.Time // the last rest
	worked time.Duration
	// hurries reports whether the walk is in a hurry now; nil: it never is.
	hurries func() bool
}

// rest pauses a walk that has worked for a while. It returns an error if ctx ended.
func (p *pace) rest(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Since(p.since)
	if now < slice {
		return nil
	}
	p.worked += now
	pause := idle * now
	if p.hurries != nil && p.hurries() {
		pause = now / 4
	}
	p.since = time.Now()
	if !await.For(ctx, min(pause, longest)) {
		return ctx.Err()
	}
	p.since = time.Now()
	return nil
}
