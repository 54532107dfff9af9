package actuator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// none is an API server without objects.
type none struct {
	volume.Objects
	begun, released []types.UID
	refuse          error
}

func (n *none) ConfigMap(_ context.Context, _ *v1.Pod, name string) (*v1.ConfigMap, error) {
	return nil, &cri.ObjectError{Err: apierrors.NewNotFound(v1.Resource("configmap"), name)}
}

func (n *none) Begin(pod *v1.Pod) error {
	n.begun = append(n.begun, pod.UID)
	return n.refuse
}

func (n *none) Release(pod types.UID) { n.released = append(n.released, pod) }

func (n *none) Environment(context.Context, *v1.Pod, *v1.Container) (*cri.Objects, error) {
	return &cri.Objects{}, nil
}

func (n *none) PullSecrets(context.Context, *v1.Pod) ([]*v1.Secret, []string) { return nil, nil }

func (n *none) RuntimeHandler(_ context.Context, class string) (string, error) {
	if class == "gvisor" {
		return "runsc", nil
	}
	return "", &cri.ObjectError{Err: errors.New("no such class")}
}

// Each volume that cannot be made has an event, and a missing object is reported as missing.
func TestVolumesThatCannotBeMade(t *testing.T) {
	server := &none{}
	volumes := newVolumes(t, filepath.Join(t.TempDir(), "root"), server)
	var events []string
	a := New(Config{Volumes: volumes, Objects: server, Tell: Tell{
		Event: func(_ *v1.Pod, eventType, reason, message string) {
			events = append(events, eventType+" "+reason+" "+message)
		}}})
	pod := podtest.New("u", podtest.Containers("c"))
	for _, name := range []string{"a", "b"} {
		v := v1.Volume{Name: name}
		v.ConfigMap = &v1.ConfigMapVolumeSource{}
		v.ConfigMap.Name = name
		podtest.Mounts(v)(pod)
	}
	want := []string{
		`Warning FailedMount MountVolume.SetUp failed for volume "a" : configmap "a" not found`,
		`Warning FailedMount MountVolume.SetUp failed for volume "b" : configmap "b" not found`,
	}
	var lacks *cri.ObjectError
	b := build{Actuator: a, pod: pod, say: about{pod, a.cfg.Tell, t.Context().Err}}
	if err := b.setUpVolumes(t.Context()); !errors.As(err, &lacks) || !slices.Equal(events, want) {
		t.Errorf("got %v and the events %q", err, events)
	}
	if !slices.Equal(server.begun, []types.UID{"u"}) {
		t.Errorf("begun %v", server.begun)
	}
	events = nil
	var why *cri.StartError
	err := b.updateVolumes(t.Context())
	if !errors.As(err, &why) || !errors.As(err, &lacks) || !slices.Equal(events, want) ||
		time.Until(why.RetryAt) < updateRetry/2 {
		t.Errorf("an update: got %v and the events %q", err, events)
	}
	if err := a.cleanUp(t.Context(), pod, cri.Pod{}); err != nil ||
		!slices.Equal(server.released, []types.UID{"u"}) {
		t.Errorf("cleaned up: %v, released %v", err, server.released)
	}
	server.refuse, events = errors.New("too many"), nil
	if err := b.setUpVolumes(t.Context()); !errors.As(err, &why) || why.Reason != "FailedMount" ||
		!slices.Equal(events, []string{"Warning FailedMount too many"}) {
		t.Errorf("got %v and the events %q", err, events)
	}
	server.refuse, events = errors.Join(&volume.MapError{Volume: "pv", Err: errors.New("gone")}), nil
	if err := b.setUpVolumes(t.Context()); !errors.As(err, &why) || why.Reason != "FailedMount" ||
		!slices.Equal(events, []string{
			`Warning FailedMapVolume MapVolume.MapBlockVolume failed for volume "pv" : gone`}) {
		t.Errorf("a device: got %v and the events %q", err, events)
	}
}

// A truncated resolver configuration makes an event of the pod, and of the node if the node's own
// configuration is the cause.
func TestDNSIsReported(t *testing.T) {
	var reported []string
	about{&v1.Pod{}, Tell{
		Event: func(_ *v1.Pod, _, reason, message string) {
			reported = append(reported, "pod "+reason+" "+message)
		},
		Node: func(_, reason, message string) {
			reported = append(reported, "node "+reason+" "+message)
		},
	}, t.Context().Err}.dns([]cri.DNSProblem{
		{Reason: "DNSConfigForming", Message: "x"},
		{Reason: "MissingClusterDNS", Message: "p", Node: "n"},
	})
	want := []string{"pod DNSConfigForming x", "pod MissingClusterDNS p", "node MissingClusterDNS n"}
	if !slices.Equal(reported, want) {
		t.Errorf("told %q", reported)
	}
}

// up is a working network on a node without addresses.
var up = Network{IPs: func() []string { return nil }, Problem: func() string { return "" }}

// newVolumes returns volumes that mount nothing.
func newVolumes(t *testing.T, root string, objects volume.Objects) *volume.Volumes {
	t.Helper()
	volumes, err := volume.New(volume.Config{
		Root: root, Objects: objects, Mounter: mount.NewFakeMounter(nil),
		Facts:  func() cri.Facts { return cri.Facts{} },
		Labels: func() map[string]string { return nil },
		Ends: volume.Ends{
			Done: func(operation.Done) {},
			Tell: func(runtime.Object, string, string, string) {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return volumes
}

// Volumes that cannot be taken back make an event, unless the error repeats an earlier one.
func TestUnmountFails(t *testing.T) {
	a, r := newHooked(t)
	failed := errors.New("rpc error: busy")
	for _, repeated := range []bool{false, true} {
		err := fmt.Errorf("tear down: %w", errors.Join(&cri.PausedError{Err: failed, Repeated: repeated}))
		if got := a.unmounted(t.Context(), &v1.Pod{}, err); got != err {
			t.Errorf("it returns %v", got)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_ = a.unmounted(ended, &v1.Pod{}, failed)
	if want := []string{"Warning FailedUnMount: rpc error: busy"}; !slices.Equal(r.log, want) {
		t.Errorf("events %q, want %q", r.log, want)
	}
}
