package volume

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi"
)

// A pod whose volume is one too many for the node is given up once it has waited, in the kubelet's words,
// once. Nobody is given up for another error of the attacher, or for a driver that does not say anew how
// many volumes the node takes.
func TestNodeTakesNoMoreVolumes(t *testing.T) {
	const message = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], " +
		"unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
	full := &csi.FullError{Err: errors.New("no slot")}
	for name, test := range map[string]struct {
		err      error
		period   *int64
		patience time.Duration
		want     string // the message that a pod waits with; "": it is another
		gone     int
	}{
		"at first":                    {full, ptr.To[int64](60), time.Hour, message, 0},
		"at last":                     {full, ptr.To[int64](60), time.Nanosecond, message, 1},
		"another error":               {errors.New("no slot"), ptr.To[int64](60), time.Nanosecond, "", 0},
		"a driver that does not tell": {full, nil, time.Nanosecond, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newDisk(t, stages)
			var said []string
			n.cfg.Limit = func(_ *v1.Pod, message string) { said = append(said, message) }
			n.patience = test.patience
			n.start()
			n.objects.has(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
				NodeAllocatableUpdatePeriodSeconds: test.period,
				VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
					storagev1.VolumeLifecyclePersistent}}})
			n.objects.change(func(o *diskObjects) { o.unattached, o.failed = true, test.err })
			pod := diskPod("u")
			_, err := n.Lacking(t.Context(), pod)
			if got := Limit(err); got != test.want {
				t.Errorf("before admission: %q", got)
			}
			for range 2 {
				if got := Limit(n.SetUp(t.Context(), pod)); got != test.want {
					t.Errorf("set up: %q", got)
				}
			}
			if len(said) != test.gone || test.gone > 0 && said[0] != message {
				t.Errorf("given up with %q, want %d times", said, test.gone)
			}
			tearDown(t, n, "u")
			_ = n.SetUp(t.Context(), pod)
			if len(said) != 2*test.gone {
				t.Errorf("in another life given up %d times", len(said)-test.gone)
			}
		})
	}
}
