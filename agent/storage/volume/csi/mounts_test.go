package csi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// attaching is an API server whose drivers all have their volumes attached.
type attaching struct {
	csi.Objects
	driver *storagev1.CSIDriver
}

func (a attaching) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return a.driver, nil
}

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
		r := csi.Request{Pod: podtest.New("u"), Volume: csi.Volume{Key: csi.Key{Driver: "d", Handle: "v"}, Path: "pv"}}
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

// That the node takes no more volumes counts for drivers that say time and again how many it takes. They
// are asked at once, once for each time that the attacher says so.
func TestFullNode(t *testing.T) {
	for name, test := range map[string]struct {
		period *int64
		full   bool
	}{
		"no period": {}, "a period": {ptr.To[int64](10), true}, "a period of 0": {new(int64), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drivers, err := csi.New(csi.Config{})
				if err != nil {
					t.Fatal(err)
				}
				asked, news := 0, true
				m := csi.NewMounts(t.Context(), csi.MountsConfig{Drivers: drivers, Root: t.TempDir(),
					Patience: time.Minute, Exhausted: func(string) { asked++ },
					Objects: attaching{driver: &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
						NodeAllocatableUpdatePeriodSeconds: test.period,
						VolumeLifecycleModes:               []storagev1.VolumeLifecycleMode{"Persistent"}}}},
					Attached: func(context.Context, csi.Attachment) (map[string]string, bool, error) {
						defer func() { news = false }()
						return nil, false, &csi.FullError{Err: errors.New("no room"), News: news}
					}})
				key := csi.Key{Driver: "d", Handle: "v"}
				r := csi.Request{Pod: podtest.New("u"), Volume: csi.Volume{Key: key, Path: "pv"}}
				m.Want(r)
				for _, lasts := range []bool{false, false, true} {
					err := m.SetUp(t.Context(), r, nil)
					full, is := errors.AsType[*csi.FullError](err)
					if is != test.full || is && full.Lasts() != lasts || err.Error() != "no room" {
						t.Errorf("a full node: %v, %+v; want it to last: %t", err, full, lasts)
					}
					joined := errors.Join(errors.New("other"), err)
					if !csi.Awaits(joined, key) || csi.Awaits(joined, csi.Key{Driver: "d", Handle: "w"}) {
						t.Errorf("the pod waits for another volume: %v", err)
					}
					if _, again := errors.AsType[*cri.ObjectError](err); !again {
						t.Errorf("when the attachment changes nothing is tried again: %v", err)
					}
					time.Sleep(30 * time.Second)
				}
				if want := map[bool]int{true: 1}[test.full]; asked != want {
					t.Errorf("the driver was asked %d times, want %d", asked, want)
				}
			})
		})
	}
}
