package admission

import (
	"testing"

	"github.com/numalet/numalet/deviceplugin"
)

func TestNoWaitRejectsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.set(deviceplugin.Resource{Name: "example.com/gpu"})
		d := open(t, dir, p, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to no healthy devices " +
			"present; cannot allocate unhealthy devices example.com/gpu, which is unexpected")
	})
}
