package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrNoEvents reports that the runtime does not implement GetContainerEvents (KEP-3386).
var ErrNoEvents = errors.New("runtime has no container events")

// ErrEventsEnded reports that the runtime closed the event stream.
var ErrEventsEnded = errors.New("runtime closed the container event stream")

// EventType is the kind of change of a container or sandbox.
type EventType string

// The event types of CRI.
const (
	EventCreated EventType = "Created"
	EventStarted EventType = "Started"
	EventStopped EventType = "Stopped"
	EventDeleted EventType = "Deleted"
)

var eventTypes = map[runtimeapi.ContainerEventType]EventType{
	runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: EventCreated,
	runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: EventStarted,
	runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: EventStopped,
	runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: EventDeleted,
}

// Event hints that a pod should be read again; it carries no state to rely on.
type Event struct {
	// PodUID is empty if the runtime no longer knows the pod.
	PodUID types.UID
	// ContainerID is the id of a container or of a sandbox.
	ContainerID string
	Type        EventType
	At          time.Time
}

// Events calls connected, unless it is nil, and then fn for each event, one at a time, until the
// stream or ctx ends. It never returns nil. fn must not block: the runtime drops events for slow
// listeners.
func (c *Client) Events(ctx context.Context, connected func(), fn func(Event)) error {
	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	ended := make(chan error, 1)
	go func() {
		defer close(events)
		ended <- c.runtime.GetContainerEvents(quiet(ctx), events,
			func(runtimeapi.RuntimeService_GetContainerEventsClient) {
				if connected != nil {
					connected()
				}
			})
	}()
	// cri-client sends without watching ctx, so the channel must be drained until it is closed.
	for e := range events {
		fn(fromEvent(e))
	}
	return eventsError(<-ended)
}

func eventsError(err error) error {
	switch {
	case status.Code(err) == codes.Unimplemented:
		return ErrNoEvents
	case err == nil, errors.Is(err, io.EOF):
		return ErrEventsEnded
	default:
		return fmt.Errorf("read container events: %w", err)
	}
}

func fromEvent(e *runtimeapi.ContainerEventResponse) Event {
	uid := e.GetPodSandboxStatus().GetLabels()[LabelPodUID]
	uid = cmp.Or(uid, e.GetPodSandboxStatus().GetMetadata().GetUid())
	of := e.GetContainerEventType()
	return Event{
		PodUID:      types.UID(uid),
		ContainerID: e.GetContainerId(),
		Type:        cmp.Or(eventTypes[of], EventType(of.String())),
		At:          time.Unix(0, e.GetCreatedAt()),
	}
}
