package admission

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
)

// A pod that asks for what cannot be had yet holds nothing while it waits, so that others are
// admitted in its place, and is rejected when its time is over.
func TestWhatCannotBeHadIsAwaitedWithoutAnything(t *testing.T) {
	volumes := func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			CSI: &v1.CSIVolumeSource{Driver: "d"}}}}
	}
	for reason, change := range map[string]func(*v1.Pod){
		"VolumeNotSupported": volumes,
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				p := &plugins{}
				p.offer("example.com/gpu", 4)
				d := open(t, dir, p, func(c *Config) {
					c.Wait = time.Minute
					c.Handlers = []decide.Handler{handlers.Volumes(func(p *v1.Pod) (bool, error) {
						if len(p.Spec.Volumes) > 0 {
							return p.Name == "never", errors.New("no such volumes")
						}
						return false, nil
					})}
				})
				defer d.stop()
				stuck := pod("stuck", "cpu=2 example.com/gpu=4")
				change(stuck)
				d.queue.Submit(stuck, false)
				d.queue.Submit(pod("next", "cpu=2 example.com/gpu=4"), false)
				never := pod("never", "cpu=1")
				change(never)
				d.queue.Submit(never, false)
				synctest.Wait()
				if said := d.outcomes(); said["stuck"] != "Wait "+reason || said["next"] != "Admit" ||
					said["never"] != "Reject" {
					t.Errorf("said %v", said)
				}
				time.Sleep(2 * time.Minute)
				if said := d.outcomes(); said["stuck"] != "Reject" {
					t.Errorf("when its time is over: %v", said)
				}
			})
		})
	}
}
