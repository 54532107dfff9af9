package cri

import (
	"context"
	"time"
)

// toStart is how long a runtime may take for a start that its caller has given up. A runtime that is told
// at once leaves half of it: containerd a task that it does not remove until its own restart.
const toStart = 10 * time.Second

// outlasting returns a context with ctx's values that ends some time after ctx does, with its cause.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(by)
		defer late.Stop()
		select {
		case <-late.C:
			end(context.Cause(ctx))
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		end(nil)
	}
}
