package csi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/numalet/numalet/agent/volume/csi"
)

// attaching is an API server whose drivers all have their volumes attached.
type attaching struct{ csi.Objects }

func (attaching) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) { return nil, nil }

// That a volume is not attached yet is usual for as long as the kubelet waits, from when the pod began
// to want it.
func TestAttachmentTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drivers, err := csi.New(csi.Config{})
		if err != nil {
			t.Fatal(err)
		}
		m := csi.NewMounts(t.Context(), csi.MountsConfig{Drivers: drivers, Root: t.TempDir(),
			Objects: attaching{}, Attached: func(context.Context, csi.Attachment) (
				map[string]string, bool, error) {
				return nil, false, nil
			}})
		pod := &v1.Pod{}
		pod.UID = "u"
		r := csi.Request{Pod: pod, Volume: csi.Volume{Key: csi.Key{Driver: "d", Handle: "v"}, Path: "pv"}}
		for after, want := range []bool{true, true, true, false} {
			m.Want(r)
			pending, is := errors.AsType[*csi.PendingError](m.SetUp(t.Context(), r, nil))
			if !is || pending.Usual() != want {
				t.Errorf("after %d min: %v, want it usual: %t", after, pending, want)
			}
			time.Sleep(time.Minute)
		}
	})
}
