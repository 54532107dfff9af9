package health

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// said is what a driver says of gpu-0.
func said(health dra.Health, message string) []dra.DeviceHealth {
	return []dra.DeviceHealth{{Pool: "node", Name: "gpu-0", Health: health, Updated: time.Now(),
		Timeout: 30 * time.Second, Message: message}}
}

var gpu0 = claim.Device{Request: "one", Driver: "gpu.example.com", Pool: "node", Name: "gpu-0"}

// running is a follower of drivers' words.
func running(t *testing.T, dir string) (d *Drivers, changes *atomic.Int32, stop func()) {
	changes = new(atomic.Int32)
	d = OpenDrivers(t.Context(), dir, func() { changes.Add(1) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	return d, changes, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// What a driver says counts for its time, and not once its stream has ended; only what is another is
// told.
func TestDriversSay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, changes, stop := running(t, dir)
		defer stop()
		is := func(want v1.ResourceHealthStatus, words string, reported int32) {
			t.Helper()
			synctest.Wait()
			got, why := d.Of(gpu0)
			if n := changes.Load(); got != want || why != words || n != reported {
				t.Errorf("it is %s, %q, told %d times; want %s, %q, %d times", got, why, n, want, words,
					reported)
			}
		}
		is("Unknown", "", 0)
		d.Hear(gpu0.Driver, said(dra.Healthy, ""))
		is("Healthy", "", 1)
		time.Sleep(20 * time.Second)
		d.Hear(gpu0.Driver, said(dra.Healthy, ""))
		time.Sleep(20 * time.Second)
		is("Healthy", "", 1)
		time.Sleep(11 * time.Second)
		is("Unknown", "", 2)
		d.Hear(gpu0.Driver, said(dra.Unhealthy, "it is hot"))
		is("Unhealthy", "it is hot", 3)
		d.Hear("other.example.com", nil)
		is("Unhealthy", "it is hot", 3)
		d.Hear(gpu0.Driver, nil)
		is("Unknown", "", 4)
	})
}

// What drivers said outlives the agent, in the kubelet's format; a file that is none is none.
func TestDriversAreKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _, stop := running(t, dir)
		d.Hear(gpu0.Driver, said(dra.Unhealthy, "it is hot"))
		synctest.Wait()
		stop()
		raw, err := os.ReadFile(filepath.Join(dir, DriversFile))
		const want = `{"gpu.example.com":{"Devices":{"node/gpu-0":{"PoolName":"node",` +
			`"DeviceName":"gpu-0","Health":"Unhealthy","LastUpdated":"2000-01-01T00:00:00Z",` +
			`"HealthCheckTimeout":30000000000,"Message":"it is hot"}}}}`
		if err != nil || strings.ReplaceAll(string(raw), "+00:00", "Z") != want {
			t.Errorf("the file is %s, %v", raw, err)
		}
		d, _, stop = running(t, dir)
		if got, _ := d.Of(gpu0); got != "Unhealthy" {
			t.Errorf("after a restart it is %s", got)
		}
		stop()
	})
	if err := os.WriteFile(filepath.Join(dir, DriversFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := OpenDrivers(t.Context(), dir, func() {}).Of(gpu0); got != "Unknown" {
		t.Errorf("of a damaged file: %s", got)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, DriversFile+".corrupt-*")); len(aside) != 1 {
		t.Errorf("the damaged file is not moved aside: %v", aside)
	}
}

// The devices of claims are in a pod's status as the kubelet names them, and their changes are told in
// their driver's words.
func TestClaimsHealth(t *testing.T) {
	d := OpenDrivers(t.Context(), t.TempDir(), func() {})
	d.Hear(gpu0.Driver, said(dra.Unhealthy, "it is hot"))
	gpu1 := gpu0
	gpu1.Name = "gpu-1"
	pod := allocation.Pod{UID: "p", Containers: map[string]allocation.Container{
		"main": allocation.Container{}.With(allocation.Claims{
			{Name: "gpus", UID: "u", Devices: []claim.Device{gpu0, gpu1}},
			{Name: "gpus", Request: "one", UID: "u", Devices: []claim.Device{gpu0}},
			{UID: "extended", Devices: []claim.Device{gpu0}},
		}), "plain": {}}}
	from := Sources{Drivers: d}
	got := ResourceStatuses(pod, from, func(uid types.UID, device claim.Device) (string, bool) {
		if uid == "u" && device.Name == "gpu-0" {
			return "example.com/gpu=0", true
		}
		return "", true
	})
	hot := v1.ResourceHealth{ResourceID: "example.com/gpu=0", Health: "Unhealthy",
		Message: ptr.To("it is hot")}
	want := map[string][]v1.ResourceStatus{"main": {
		{Name: "claim:gpus", Resources: []v1.ResourceHealth{hot,
			{ResourceID: "gpu.example.com/node/gpu-1", Health: "Unknown"}}},
		{Name: "claim:gpus/one", Resources: []v1.ResourceHealth{hot}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := ResourceStatuses(pod, from, func(types.UID, claim.Device) (string, bool) { return "", false })
	if len(none["main"]) > 0 {
		t.Errorf("claims that are not prepared have %v", none)
	}
	same := ResourceStatuses(pod, from, func(types.UID, claim.Device) (string, bool) {
		return "example.com/all=1", true
	})
	for _, h := range same["main"][0].Resources {
		if h.ResourceID == "example.com/all=1" {
			t.Error("two devices of a claim have one id, which the API server refuses")
		}
	}
	reported := Amiss(&v1.Pod{}, pod, from, nil)
	const hotWords = "Container main: device gpu-0 of claim gpus: unhealthy, says driver gpu.example.com: " +
		"it is hot; the container keeps running on it, delete the pod to have another one chosen"
	const unknown = "Container main: device gpu-1 of claim gpus: health unknown, driver " +
		"gpu.example.com does not tell it; the container keeps running on it"
	if len(reported) < 2 || !cmp.Equal(reported[:2], []string{hotWords, unknown}) &&
		!cmp.Equal(reported[:2], []string{unknown, hotWords}) {
		t.Errorf("told are %q", reported)
	}
}
