// Package part has what an agent is made of at work: goroutines with names, each with its owner.
package part

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
)

// Part is one goroutine of the agent, or several. Run returns only when all of them have.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// Of returns a part.
func Of(name string, run func(context.Context) error) Part { return Part{Name: name, Run: run} }

// Chore is a task with a goroutine of its own.
func Chore(t housekeeping.Task) Part { return Of(t.Name, housekeeping.New(t).Run) }

// Each hands on what comes into a mailbox.
func Each[T any](name string, from *mailbox.Box[T], to func(T)) Part {
	return Of(name, func(ctx context.Context) error { return from.Each(ctx, to) })
}

// Start runs parts in a group, which ends with the first that fails.
func Start(ctx context.Context, group *errgroup.Group, parts []Part) {
	for _, p := range parts {
		group.Go(func() error {
			if err := p.Run(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			return nil
		})
	}
}
