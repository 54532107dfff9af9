package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// openFailures reads what was done about failed devices.
func openFailures(ctx context.Context, n node) (*health.FailureBook, error) {
	rules, err := n.cfg.Failures.Rules()
	if err != nil {
		return nil, err
	}
	book, err := health.OpenFailures(n.cfg.RootDir, rules)
	return book, n.quarantined(ctx, err, "DeviceFailuresQuarantined", "what was done about failed "+
		"devices may be done once more")
}

// newFailures has done what the settings say about pods whose devices fail.
func newFailures(n node, d deviceDomain, p podDomain) (*health.Failures, error) {
	return health.NewFailures(health.FailuresConfig{
		Config: healthConfig(n, d, p), Book: d.failures,
		Known: p.mayHave,
		Grace: podworker.Grace,
		End: func(ends *v1.Pod, message string, grace time.Duration) {
			p.statuses.events.Put(syncloop.Killed(ends.UID, deviceFailed(message), grace))
		},
		Changed: mailbox.Subscribe(p.statuses.Changes(), d.changed, d.drivers.ill,
			n.store.Changes()),
		Registry: n.registry,
	})
}

func deviceFailed(message string) pod.Why {
	return pod.Why{Reason: podspec.ReasonDeviceFailed, Message: message}
}

// doomed are the pods that an earlier run of the agent was about to end for their devices.
func (d deviceDomain) doomed(p *v1.Pod) (why pod.Why, grace time.Duration, ok bool) {
	message, grace, ok := d.failures.Doomed(p)
	return deviceFailed(message), grace, ok
}

// doomers says of a pod what the first of several says that was about to end it.
func doomers(all ...func(*v1.Pod) (pod.Why, time.Duration, bool)) func(*v1.Pod) (
	pod.Why, time.Duration, bool) {
	return func(p *v1.Pod) (pod.Why, time.Duration, bool) {
		for _, one := range all {
			if why, grace, ok := one(p); ok {
				return why, grace, true
			}
		}
		return pod.Why{}, 0, false
	}
}
