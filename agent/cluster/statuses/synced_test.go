package statuses

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/podtest"
)

// Who waits until the API server has all statuses waits while it refuses one, and not for a pod
// that it does not have.
func TestSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		away := true
		s.trouble = func(string, *v1.Pod) error {
			if away {
				return errLost
			}
			return nil
		}
		w.Wrote(podstatus.Change{Pod: podtest.New("elsewhere", podtest.UID("other")),
			After: v1.PodStatus{Phase: v1.PodFailed}})
		s.says(w, "a", v1.PodStatus{Phase: v1.PodFailed}, false)
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if w.Synced(within) {
			t.Error("an API server that answers nothing was told")
		}
		s.mu.Lock()
		away = false
		s.mu.Unlock()
		if !w.Synced(t.Context()) {
			t.Error("it was not told")
		}
		if got, _ := s.pod("a"); got.Status.Phase != v1.PodFailed {
			t.Errorf("it was told, and has %s", got.Status.Phase)
		}
	})
}
