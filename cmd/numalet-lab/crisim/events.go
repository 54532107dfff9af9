package crisim

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EventMode selects what GetContainerEvents does.
type EventMode string

// On delivers events. Silent keeps streams open and loses every event. Unimplemented refuses
// streams, as a runtime without this call does, and ends the open ones.
const (
	EventsOn            EventMode = "on"
	EventsSilent        EventMode = "silent"
	EventsUnimplemented EventMode = "unimplemented"
)

// backlog is how many events a listener may lag behind before it loses some.
const backlog = 1000

// events sends each event to every listener and never waits for one.
type events struct {
	mu        sync.Mutex
	mode      EventMode
	listeners map[*listener]bool
}

type listener struct {
	queue chan *runtimeapi.ContainerEventResponse
	gone  chan struct{} // closed when the stream is dropped
}

func newEvents() *events {
	return &events{mode: EventsOn, listeners: map[*listener]bool{}}
}

func (e *events) listened() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.listeners) > 0 && e.mode == EventsOn
}

func (e *events) send(event *runtimeapi.ContainerEventResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.listeners {
		select {
		case l.queue <- event:
		default: // lost, as with a real runtime
		}
	}
}

func (e *events) setMode(mode EventMode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mode = mode
	if mode == EventsUnimplemented {
		e.dropLocked()
	}
}

// drop ends every open stream.
func (e *events) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropLocked()
}

func (e *events) dropLocked() {
	for l := range e.listeners {
		close(l.gone)
	}
	clear(e.listeners)
}

func (e *events) listen() (*listener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mode == EventsUnimplemented {
		return nil, status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	l := &listener{
		queue: make(chan *runtimeapi.ContainerEventResponse, backlog),
		gone:  make(chan struct{}),
	}
	e.listeners[l] = true
	return l, nil
}

func (e *events) leave(l *listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, l)
}

// GetContainerEvents streams new events until either side ends the stream.
func (r *runtimeService) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer,
) error {
	l, err := r.store.events.listen()
	if err != nil {
		return err
	}
	defer r.store.events.leave(l)
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-l.gone:
			return status.Error(codes.Unavailable, "event stream dropped")
		case event := <-l.queue:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}
