package dra

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// The health of a device comes with a timeout and a message within bounds.
func TestHealthOf(t *testing.T) {
	now := time.Now()
	is := func(h *healthv1.DeviceHealth) DeviceHealth {
		t.Helper()
		h.Device = &healthv1.DeviceIdentifier{PoolName: "p", DeviceName: "d"}
		out, dropped := healthOf(&healthv1.NodeWatchResourcesResponse{
			Devices: []*healthv1.DeviceHealth{h},
		}, now)
		if dropped != 0 || len(out) != 1 {
			t.Fatalf("%v, %d dropped", out, dropped)
		}
		return out[0]
	}
	long := strings.Repeat("ä", v1.ResourceHealthMessageMaxLength)
	for _, tc := range []struct {
		in   *healthv1.DeviceHealth
		want DeviceHealth
	}{
		{&healthv1.DeviceHealth{}, DeviceHealth{Health: Unknown, Timeout: 30 * time.Second}},
		{&healthv1.DeviceHealth{Health: 77, HealthCheckTimeoutSeconds: -1},
			DeviceHealth{Health: Unknown, Timeout: 30 * time.Second}},
		{&healthv1.DeviceHealth{Health: healthv1.HealthStatus_HEALTHY, LastUpdatedTime: 1,
			HealthCheckTimeoutSeconds: 1 << 62}, DeviceHealth{Health: Healthy, Timeout: maxTimeout}},
		{&healthv1.DeviceHealth{Health: healthv1.HealthStatus_UNHEALTHY, Message: long},
			DeviceHealth{Health: Unhealthy, Timeout: 30 * time.Second,
				Message: long[:1020] + "..."}},
	} {
		tc.want.Pool, tc.want.Name, tc.want.Updated = "p", "d", now
		if got := is(tc.in); got != tc.want || !utf8.ValidString(got.Message) {
			t.Errorf("%v\nis   %+v\nwant %+v", tc.in, got, tc.want)
		}
	}
	if out, _ := healthOf(&healthv1.NodeWatchResourcesResponse{}, now); out == nil {
		t.Error("a message without devices is taken for the end of the stream")
	}
}

// Devices beyond the bound, and those without a name, are left out; a message that is none is an error.
func TestHealthIn(t *testing.T) {
	many := &healthv1.NodeWatchResourcesResponse{}
	for range MaxHealthDevices + 2 {
		many.Devices = append(many.Devices, &healthv1.DeviceHealth{
			Device: &healthv1.DeviceIdentifier{DeviceName: "d"},
		})
	}
	many.Devices[0].Device.DeviceName = ""
	raw, err := proto.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	out, dropped, err := healthIn(raw, time.Now())
	if len(out) != MaxHealthDevices-1 || dropped != 3 || err != nil {
		t.Errorf("%d devices, %d dropped, %v", len(out), dropped, err)
	}
	for _, cut := range []int{1, len(raw) - 1} {
		if _, _, err := healthIn(raw[:cut], time.Now()); err == nil {
			t.Errorf("a message cut to %d bytes is taken", cut)
		}
	}
	if _, _, err := healthIn([]byte{1<<3 | 2, 1, 0xff}, time.Now()); err == nil {
		t.Error("a device that is none is taken")
	}
}
