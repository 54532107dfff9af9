package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallError says that a call to a plugin had no answer: the deadline passed, or the connection
// broke. What the plugin answers is never one.
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

// unanswered is the error of a call, as a *CallError if it had no answer. A call that its caller
// has ended is not the plugin's fault.
func (c *call) unanswered(caller context.Context, err error) error {
	// gRPC tells the deadline to the plugin's side, which may notice first that it has passed.
	passed := errors.Is(c.ctx.Err(), context.DeadlineExceeded) ||
		time.Since(c.began) > c.deadline*9/10
	late := status.Code(err) == codes.DeadlineExceeded && passed && caller.Err() == nil
	broken := status.Code(err) == codes.Unavailable && len(c.header)+len(c.trailer) == 0
	if !late && !broken {
		return err // an answer has one of the two, be it a refusal
	}
	return &CallError{RPC: c.rpc, Deadline: c.deadline, Err: err}
}
