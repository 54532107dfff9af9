package csi_test

import (
	"fmt"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
)

func backend(s csipb.StorageHealthErrorType, reason, message string) *csipb.NodeGetStorageHealthResponse_StorageBackendHealth {
	return &csipb.NodeGetStorageHealthResponse_StorageBackendHealth{Status: s, Reason: reason, Message: message}
}

// Drivers say what is wrong with their storage. It is news if the conditions are others, and a driver
// that hangs or fails is asked once at a time and keeps what it said.
func TestStorageHealth(t *testing.T) {
	r := metrics.NewKubeRegistry()
	n := newNode(t, csi.Config{Registry: r})
	d := csitest.Start(t, csitest.Config{Registry: n.registry,
		Can: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_GET_STORAGE_HEALTH}})
	eventually(t, "the driver", func() bool { return n.Registered(csitest.Name) })
	n.AskStorage()
	eventually(t, "an answer", func() bool { _, known := n.StorageHealth(csitest.Name); return known })
	changes := n.changes.Load()
	ask := func(what string, storage []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth, news bool, want string) {
		t.Helper()
		d.Ill(nil, storage)
		eventually(t, what, func() bool {
			n.AskStorage()
			said, known := n.StorageHealth(csitest.Name)
			return known && text(said) == want
		})
		eventually(t, "the end of the call", func() bool { return (n.changes.Load() != changes) == news })
		changes = n.changes.Load()
	}
	mount := &csipb.VolumeCapability{AccessType: &csipb.VolumeCapability_Mount{Mount: &csipb.VolumeCapability_MountVolume{}},
		AccessMode: &csipb.VolumeCapability_AccessMode{Mode: csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER}}
	slow := backend(csipb.StorageHealthErrorType_STORAGE_DEGRADED, "Slow", "one")
	ask("ill", []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth{slow}, true, "StorageDegraded Slow one / ;")
	ask("other words", []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth{
		backend(csipb.StorageHealthErrorType_STORAGE_DEGRADED, "Slow", "two")}, false, "StorageDegraded Slow two / ;")
	gone := backend(csipb.StorageHealthErrorType_STORAGE_UNREACHABLE, "Gone", "")
	gone.VolumeCapability = mount
	ask("worse", []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth{slow, gone}, true,
		"StorageDegraded Slow one / ;StorageUnreachable Gone  ReadWriteOncePod/Filesystem ;")
	if got := gauges(t, r); got != 2 {
		t.Errorf("the metric has %d conditions", got)
	}
	d.Fault(csitest.StorageHealth, csitest.Fault{Hang: true})
	d.Forget()
	for range 3 {
		n.AskStorage()
	}
	eventually(t, "a call", func() bool { return len(d.Calls(csitest.StorageHealth)) == 1 })
	n.AskStorage()
	if said, known := n.StorageHealth(csitest.Name); len(said) != 2 || !known || len(d.Calls(csitest.StorageHealth)) != 1 {
		t.Errorf("while it hangs: %v, asked %d times", said, len(d.Calls(csitest.StorageHealth)))
	}
	d.Fault(csitest.StorageHealth, csitest.Fault{})
	d.Kill()
	d.Revive(t)
	ask("well", nil, true, "")
	if got := gauges(t, r); got != 0 {
		t.Errorf("the metric has %d conditions of a healthy storage", got)
	}
	d.Stop()
	eventually(t, "it is gone", func() bool { _, known := n.StorageHealth(csitest.Name); return !known })
}

func text(all []storagev1.StorageHealthCondition) (out string) {
	for _, c := range all {
		access, volume := "", ""
		if c.AccessMode != nil {
			access, volume = string(*c.AccessMode), string(*c.VolumeMode)
		}
		out += fmt.Sprintf("%s %s %s %s/%s ;", c.Status, c.Reason, c.Message, access, volume)
	}
	return out
}

func gauges(t *testing.T, r metrics.KubeRegistry) (n int) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "csi_node_storage_health_status" {
			n += len(f.GetMetric())
		}
	}
	return n
}
