package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

// Health is how a device is, in its driver's words.
type Health string

// Values of Health.
const (
	Healthy   Health = "Healthy"
	Unhealthy Health = "Unhealthy"
	Unknown   Health = "Unknown"
)

// DeviceHealth is one device in a message of a health stream.
type DeviceHealth struct {
	Pool, Name string
	Health     Health
	// Updated is the time when the message came. The driver's own time is ignored, as by the kubelet.
	Updated time.Time
	// Timeout is how long after Updated it holds.
	Timeout time.Duration
	// Message explains it, in at most v1.ResourceHealthMessageMaxLength bytes.
	Message string
}

// MaxHealthDevices bounds the devices of a driver whose health is followed, as the kubelet does.
const MaxHealthDevices = 16384

const (
	healthTimeout = 30 * time.Second     // of devices without a timeout
	maxTimeout    = 365 * 24 * time.Hour // beyond that nothing differs
	// maxHealthBytes bounds a message: the devices above, each with a long message.
	maxHealthBytes = 32 << 20
)

// followHealth keeps the health stream of an instance, which may end with Unimplemented for good. It
// goes over the connection of the calls.
func (in *instance) followHealth(ctx context.Context) {
	d := in.drivers
	log := klog.FromContext(ctx).WithValues("service", in.health)
	var wrong complaint.Complaint[string]
	for ctx.Err() == nil {
		l := in.current()
		err := in.hearHealth(ctx, l)
		if status.Code(err) == codes.Unimplemented {
			log.V(2).Info("DRA driver lists the health service and does not serve it")
			return
		}
		if l.over.Err() != nil && in.current() != l {
			continue // the next one's stream is begun at once
		}
		if ctx.Err() == nil && !errors.Is(err, io.EOF) && wrong.Begins(complaint.Of(err)) {
			log.Info("Health stream of DRA driver is tried again", "reason", err.Error())
		}
		await.For(ctx, d.cfg.Deadlines.Stream)
	}
}

// hearHealth passes on one stream until it ends. The messages of all versions of the service are the
// same on the wire.
func (in *instance) hearHealth(ctx context.Context, l *link) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)()
	d := in.drivers
	defer d.voices.end(in)
	var left complaint.Complaint[int]
	return socket.Latest(ctx, func(ctx context.Context) (grpc.ClientStream, error) {
		return socket.Frames(ctx, l, "/"+in.health+"/NodeWatchResources",
			&healthv1.NodeWatchResourcesRequest{}, grpc.MaxCallRecvMsgSize(maxHealthBytes))
	}, func(frame socket.Frame) error {
		devices, dropped, err := healthIn(frame.ReadOnlyData(), time.Now())
		if err != nil {
			return err
		}
		if left.Begins(dropped) {
			klog.FromContext(ctx).Info("DRA driver's health message has devices that are left out",
				"leftOut", dropped, "most", MaxHealthDevices)
		}
		d.voices.hear(in, devices)
		return nil
	})
}

// healthIn decodes a message and returns its devices, and how many of them were left out: those beyond
// the bound, which are not decoded, and those that healthOf leaves out.
func healthIn(raw []byte, now time.Time) (out []DeviceHealth, dropped int, err error) {
	const devices = 1 // the number of the only field
	end, many := 0, 0
	for rest := raw; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, 0, fmt.Errorf("decode the message: %w", protowire.ParseError(n))
		}
		rest = rest[n:]
		if number == devices {
			many++
		}
		if many <= MaxHealthDevices {
			end = len(raw) - len(rest)
		}
	}
	var resp healthv1.NodeWatchResourcesResponse
	if err := proto.Unmarshal(raw[:end], &resp); err != nil {
		return nil, 0, fmt.Errorf("decode the message: %w", err)
	}
	out, dropped = healthOf(&resp, now)
	return out, dropped + max(0, many-MaxHealthDevices), nil
}

// healthOf returns the devices of a message, and how many of them were left out: those whose names no
// ResourceSlice can have.
func healthOf(resp *healthv1.NodeWatchResourcesResponse, now time.Time) (
	out []DeviceHealth, dropped int) {
	out = []DeviceHealth{}
	for _, h := range resp.GetDevices() {
		pool, name := h.GetDevice().GetPoolName(), h.GetDevice().GetDeviceName()
		if name == "" || len(name) > maxName || len(pool) > maxPool {
			dropped++
			continue
		}
		one := DeviceHealth{
			Pool: pool, Name: name, Health: Unknown, Updated: now, Timeout: healthTimeout,
			Message: shortMessage(h.GetMessage()),
		}
		switch h.GetHealth() {
		case healthv1.HealthStatus_HEALTHY:
			one.Health = Healthy
		case healthv1.HealthStatus_UNHEALTHY:
			one.Health = Unhealthy
		}
		if seconds := h.GetHealthCheckTimeoutSeconds(); seconds > 0 {
			one.Timeout = time.Duration(min(seconds, int64(maxTimeout/time.Second))) * time.Second
		}
		out = append(out, one)
	}
	return out, dropped
}

// shortMessage cuts a message as the kubelet does, but not within a character.
func shortMessage(text string) string {
	const note = "..."
	if len(text) <= v1.ResourceHealthMessageMaxLength {
		return text
	}
	end := v1.ResourceHealthMessageMaxLength - len(note)
	for end > 0 && text[end]&0xC0 == 0x80 { // inside a character of UTF-8
		end--
	}
	return text[:end] + note
}

// voices passes on what streams say. Of several instances of a driver with a stream, the newest
// speaks for it, so that the end of an older one says nothing.
type voices struct {
	tell func(driver string, devices []DeviceHealth)

	mu sync.Mutex // held while tell runs: news keep their order
	// speaking has the instances whose streams have said something, by driver, oldest first.
	speaking map[string][]*instance
}

func (v *voices) hear(in *instance, devices []DeviceHealth) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.speaking[in.driver]
	if !slices.Contains(now, in) {
		now = append(now, in)
		slices.SortFunc(now, func(a, b *instance) int { return int(a.number) - int(b.number) })
		v.speaking[in.driver] = now
	}
	if now[len(now)-1] == in {
		v.tell(in.driver, devices)
	}
}

func (v *voices) end(in *instance) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.speaking[in.driver]
	at := slices.Index(now, in)
	if at < 0 {
		return
	}
	now = slices.Delete(now, at, at+1)
	v.speaking[in.driver] = now
	if len(now) == 0 {
		delete(v.speaking, in.driver)
		v.tell(in.driver, nil)
	}
}
