package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallError says that a call to a plugin got no answer: the deadline passed or the connection
// broke. An answer of the plugin, even a refusal, is never a CallError.
type CallError struct {
	RPC      string
	Deadline time.Duration
	Err      error
}

func (e *CallError) Error() string {
	if status.Code(e.Err) == codes.DeadlineExceeded {
		return fmt.Sprintf("%s was not answered within its deadline of %s", e.RPC, e.Deadline)
	}
	return fmt.Sprintf("the connection to the plugin was lost while %s was under way (its "+
		"deadline is %s), as when the plugin panics or is killed: %s", e.RPC, e.Deadline,
		status.Convert(e.Err).Message())
}

func (e *CallError) Unwrap() error { return e.Err }

// unanswered returns the error of a call, as a *CallError if the call got no answer. If the caller
// itself ended the call, the plugin is not to blame and the error stays as it is.
func (c *call) unanswered(caller context.Context, err error) error {
	// gRPC sends the deadline to the plugin, whose side may notice first that it has passed.
	passed := errors.Is(c.ctx.Err(), context.DeadlineExceeded) ||
		time.Since(c.began) > c.deadline*9/10
	late := status.Code(err) == codes.DeadlineExceeded && passed && caller.Err() == nil
	broken := status.Code(err) == codes.Unavailable && len(c.header)+len(c.trailer) == 0
	if !late && !broken {
		return err // every answer, even a refusal, has a header or a trailer
	}
	return &CallError{RPC: c.rpc, Deadline: c.deadline, Err: err}
}
