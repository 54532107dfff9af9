package podresources

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
)

const (
	// bookmarkPeriod is the time after which a reader without changes gets a bookmark.
	bookmarkPeriod = time.Minute
	// stallLimit bounds how long a message may wait for its reader; the watch ends within twice that.
	stallLimit = 30 * time.Second
)

// watcher serves watches.
type watcher struct {
	watchv1.UnimplementedPodResourcesWatcherServer
	feed     *feed
	measures *measures
	// senders are the goroutines that send; those of disconnected readers outlive the call briefly.
	senders sync.WaitGroup
}

func (w *watcher) Watch(req *watchv1.WatchRequest,
	stream grpc.ServerStreamingServer[watchv1.WatchResponse]) error {
	if err := w.feed.join(); err != nil {
		return status.Errorf(codes.ResourceExhausted,
			"%v: %d are open, which is the limit; end one of them", err, maxReaders)
	}
	defer w.feed.leave()
	w.measures.watches.Inc()
	defer w.measures.watches.Dec()

	r := &reader{
		feed: w.feed, send: stream.Send, filter: filter{
			namespace: req.GetNamespace(), resource: req.GetResourceName(),
			allocatable: req.GetAllocatable(),
		},
	}
	first := r.begin(req)
	sent := make(chan error, 1)
	w.senders.Go(func() { sent <- r.run(stream.Context(), first) })
	err := r.guard(sent)
	if status.Code(err) == codes.ResourceExhausted {
		w.measures.dropped.Inc()
	}
	return err
}

// reader is one watch with two goroutines. run sends and may block while the client does not read;
// guard notices such a client and ends the call, which unblocks run.
type reader struct {
	feed   *feed
	filter filter
	send   func(*watchv1.WatchResponse) error

	// at is the generation that the client has, or will have after the state that is being sent.
	at atomic.Uint64
	// sends counts starts and ends of sends: it is odd while a message waits.
	sends atomic.Uint64
}

// begin returns the first messages: none if the client can continue at its generation, else the
// state.
func (r *reader) begin(req *watchv1.WatchRequest) iter.Seq[*watchv1.WatchResponse] {
	now := r.feed.refresh()
	asked := req.GetGeneration()
	_, lost, _ := r.feed.next(asked)
	if req.GetInstance() == r.feed.instance && !lost && asked <= now.generation {
		r.at.Store(asked)
		return none
	}
	r.at.Store(now.generation)
	return now.messages(r.filter, req.GetInstance() != "" || asked != 0)
}

// run sends the first messages and then every change.
func (r *reader) run(ctx context.Context, first iter.Seq[*watchv1.WatchResponse]) error {
	if err := r.tell(r.at.Load(), first); err != nil {
		return err
	}
	tick := time.NewTicker(bookmarkPeriod)
	defer tick.Stop()
	for {
		c, lost, moved := r.feed.next(r.at.Load())
		switch {
		case lost:
			return r.behind()
		case c != nil:
			if err := r.step(c); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-moved:
		case <-tick.C:
			if err := r.tell(r.at.Load(), one(bookmark())); err != nil {
				return err
			}
		}
	}
}

// step sends one change.
func (r *reader) step(c *change) error {
	if c.whole {
		now := r.feed.refresh()
		r.at.Store(now.generation)
		return r.tell(now.generation, now.messages(r.filter, true))
	}
	if err := r.tell(c.generation, c.messages(r.filter)); err != nil {
		return err
	}
	r.at.Store(c.generation)
	return nil
}

func none(func(*watchv1.WatchResponse) bool) {}

func one(m *watchv1.WatchResponse) iter.Seq[*watchv1.WatchResponse] {
	return func(yield func(*watchv1.WatchResponse) bool) { yield(m) }
}

// tell sends the messages of one generation; all but the last are partial.
func (r *reader) tell(generation uint64, messages iter.Seq[*watchv1.WatchResponse]) error {
	var held *watchv1.WatchResponse
	send := func(partial bool) error {
		held.Instance, held.Generation, held.Partial = r.feed.instance, generation, partial
		r.sends.Add(1)
		defer r.sends.Add(1)
		return r.send(held)
	}
	for m := range messages {
		if held != nil {
			if err := send(true); err != nil {
				return err
			}
		}
		held = m
	}
	if held == nil {
		return nil // nothing that the reader wants
	}
	return send(false)
}

// guard returns the error of sending, or the reason why the reader is disconnected.
func (r *reader) guard(sent <-chan error) error {
	tick := time.NewTicker(stallLimit)
	defer tick.Stop()
	var before uint64
	for {
		_, lost, moved := r.feed.next(r.at.Load())
		if lost {
			return r.behind()
		}
		select {
		case err := <-sent:
			return err
		case <-moved:
		case <-tick.C:
			now := r.sends.Load()
			if now%2 == 1 && now == before {
				return status.Errorf(codes.ResourceExhausted, "the reader took no message for %v; "+
					"watch again with the instance and the generation of the last complete message",
					stallLimit)
			}
			before = now
		}
	}
}

func (r *reader) behind() error {
	return status.Errorf(codes.ResourceExhausted, "the reader fell behind: changes after "+
		"generation %d are forgotten; watch again, from a snapshot", r.at.Load())
}
