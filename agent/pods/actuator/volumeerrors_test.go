package actuator

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// An error that stays the same is reported again as often as by the kubelet; one that is new at once, and one
// of a call to a driver for each call.
func TestVolumeErrorsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all volumeErrors
		a, b := errors.New("no slot"), errors.New("no key")
		called := &cri.PausedError{Err: errors.New("no mkfs"), Until: time.Now().Add(time.Hour)}
		for _, step := range []struct {
			pause time.Duration
			err   error
			want  string
		}{
			{0, a, "no slot"},
			{2 * time.Second, a, "<nil>"},
			{2 * time.Second, errors.Join(a, b), "no key"},
			{time.Minute, errors.Join(a, b), "<nil>"},
			{time.Minute, errors.Join(a, b), "no slot"},
			{2 * time.Second, errors.Join(a, called), "no mkfs"},
			{2 * time.Second, errors.Join(a, called), "no mkfs"},
			{2 * time.Second, b, "no key"},
		} {
			time.Sleep(step.pause)
			if got := fmt.Sprint(all.news("u", step.err)); got != step.want {
				t.Errorf("of %v is told %q, want %q", step.err, got, step.want)
			}
		}
		if got := all.news("other", b); got == nil {
			t.Error("nothing is told of another pod")
		}
		all.forget("u")
		if got := all.news("u", b); got == nil {
			t.Error("nothing is told of what fails anew")
		}
		all.forget("u")
		all.forget("other")
		if len(all.pods) > 0 {
			t.Errorf("left are %v", all.pods)
		}
	})
}
